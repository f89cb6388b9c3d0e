"""From a file to what is searched: the preprocessed model and its regions."""

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from autoquant.api.steps.models import (
    check_prepared_type,
    check_samples_type,
    example_data,
    model_path,
    read_data,
    running,
    signatures_of,
)
from autoquant.calibration.sources import DataSource
from autoquant.domain.arguments import check_dims, check_n_regions, check_several
from autoquant.domain.feed import Samples, sample_name
from autoquant.domain.region import N_REGIONS, Region
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.target import CPU, Target
from autoquant.errors import DataError, ModelError, TargetError
from autoquant.graph import preprocess, regions
from autoquant.measurement.saturation import is_saturating
from autoquant.model.copies import opset_of
from autoquant.model.ops import can_be_dynamic, is_quantizable
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.own_errors import OwnErrors
from autoquant.qdq.twins import Twins
from autoquant.space.resolve import resolve
from autoquant.space.schema import read_space
from autoquant.study.layout import Layout

__all__ = [
    "compared",
    "definition_of",
    "expressible",
    "find_regions",
    "fitted",
    "layout_of",
    "least_bytes",
    "prepare",
    "prepare_without_data",
]


def prepare(
    model: str | os.PathLike[str],
    samples: Samples,
    *,
    dims: Mapping[str, int] | None = None,
    eps: Collection[str] = (CPU,),
) -> PreparedModel:
    """Preprocess a float model for execution providers: freeze, fold, convert, name, in fast forms.

    Args:
        model: The float model's file, or ``example:digits``.
        samples: What ``read_data`` gave: dimensions in which all of them agree are fixed, and outputs are compared.
        dims: Sizes of named dynamic dimensions.
        eps: Names of the execution providers that the model is for: some forms are faster on that of the CPU alone.

    Raises:
        DataError: Samples are of another size than ``dims`` says.
        ModelError: The model cannot be read or preprocessed.
        UsageError: An argument is of another type.
    """
    check_samples_type(samples)
    check_dims(dims)
    check_several("execution providers", eps, str, "names, e.g. ['cpu']")
    path = model_path(model)
    _check_dims(path, samples, dims or {})
    with running(path):
        return preprocess.prepare(path, samples.feeds, dims=dims, sample_names=samples.names, eps=eps)


def _check_dims(path: Path, samples: Samples, dims: Mapping[str, int]) -> None:
    for signature in signatures_of(path) if dims else ():
        for axis, name in enumerate(signature.shape or ()):
            if not isinstance(name, str) or name not in dims:
                continue
            for i, feed in enumerate(samples.feeds):
                shape = feed[signature.name].shape
                if shape[axis] != dims[name]:
                    is_batch = axis == 0 and shape[0] == 1
                    advice = f"ask for a batch of {dims[name]}" if is_batch else "give data of that size"
                    raise DataError(
                        f"the dimension {name} shall be {dims[name]}, but '{signature.name}' has the shape {shape} in"
                        f" {sample_name(samples.names, i)}; leave it out, or {advice}"
                    )


def compared(prepared: PreparedModel, samples: Samples) -> PreparedModel:
    """A changed model with the difference of its outputs from those of the user's file, on the first few samples.

    Raises:
        ModelError: It cannot be run.
    """
    return preprocess.compared(prepared, samples.feeds)


def prepare_without_data(
    model: str | os.PathLike[str],
    calibration: DataSource | None,
    *,
    dims: Mapping[str, int] | None = None,
    ep: str = CPU,
) -> PreparedModel:
    """Preprocess with the data's shapes where there are data, otherwise with those of ``dims`` alone, unchecked.

    Raises:
        DataError: The data do not fit the model, or are of another size than ``dims`` says.
        ModelError: The model cannot be read or preprocessed.
    """
    check_dims(dims)
    path = model_path(model)
    calibration = calibration if calibration is not None else example_data(model)
    if calibration is None:
        return preprocess.prepare(path, (), dims=dims, eps=(ep,))
    return prepare(path, read_data(path, calibration), dims=dims, eps=(ep,))


def find_regions(
    prepared: PreparedModel, *, space: str | SpaceDefinition = "default", ep: str = "cpu", n_regions: int = N_REGIONS
) -> tuple[Region, ...]:
    """Partition the nodes that some scheme of the space could quantize.

    Args:
        prepared: What ``prepare`` gave.
        space: Name or path of the search space.
        ep: Execution provider whose section of the space counts.
        n_regions: Largest number of regions.

    Raises:
        SpaceError: The space cannot be read, or a group of it matches nothing.
        UsageError: There shall be no region, or the model was not prepared.
    """
    check_prepared_type(prepared)
    check_n_regions(n_regions)
    definition = definition_of(space, ep)
    graph = prepared.graph
    known = [node for node in graph.nodes if node.op_type in definition.op_types]
    chosen = [
        node.name
        for node in known
        if (definition.has_static and is_quantizable(node, graph))
        or (definition.has_dynamic and can_be_dynamic(node, graph))
    ]
    groups = {group.name: group.nodes for group in definition.groups}
    return regions.find_regions(graph, chosen, n_regions=n_regions, groups=groups)


def least_bytes(prepared: PreparedModel, found: Sequence[Region], definition: SpaceDefinition) -> int:
    """What every file takes at least: its constants, all that regions read in the fewest bits, and what is around."""
    graph, inside = prepared.graph, {name for region in found for name in region.nodes}
    read = {name for node in graph.nodes if node.name in inside for name in node.inputs}
    bits = min(form.dtype.bits for scheme in definition.schemes for form in (scheme.activation, scheme.weight))
    floats = (name for name in graph.constants if graph.dtype(name) == "float32")
    n_around = 0 if prepared.around is None else len(prepared.around.model)
    return n_around + sum(math.prod(graph.shape(name) or ()) * (bits if name in read else 32) // 8 for name in floats)


def layout_of(
    prepared: PreparedModel,
    found: Sequence[Region],
    definition: SpaceDefinition,
    twins: Twins,
    own_errors: OwnErrors | None = None,
) -> Layout:
    """Regions, schemes and borders as a sampler sees them."""
    space, work = resolve(definition, found), {region.id: region.work for region in found}
    patterns = {region.id: region.pattern for region in found}
    borders = tuple(regions.borders(prepared.graph, found))
    return Layout.of(space.choices, space.schemes, borders, work, patterns, own_errors, twins)


def definition_of(space: str | SpaceDefinition, ep: str) -> SpaceDefinition:
    """Read a space, unless it was read already, and fit it to the execution provider where that is here and starts."""
    if isinstance(space, SpaceDefinition):
        return space
    target = Target(ep)
    found = read_space(space, ep=target.ep)
    try:
        return fitted(found, [target])
    except TargetError:
        return found


def expressible(definition: SpaceDefinition, prepared: PreparedModel) -> SpaceDefinition:
    """The space without schemes that the opset of the model cannot express.

    Raises:
        ModelError: Nothing is left of it.
    """
    opset = opset_of(prepared.graph.model)
    found = definition.at_opset(opset)
    if definition.schemes and not found.schemes:
        least = min(scheme.opset for scheme in definition.schemes)
        raise ModelError(
            f"{prepared.source}: no scheme of space {definition.name} can be written at opset {opset}, at which the"
            f" model stays; export it again with opset {least} or newer"
        )
    return found


def fitted(definition: SpaceDefinition, targets: Iterable[Target]) -> SpaceDefinition:
    """The space for kernels as they are on this machine: where they saturate, weights take scales at which none can.

    Raises:
        TargetError: An execution provider is not installed, or does not start.
    """
    return definition.unsaturated() if any(is_saturating(target) for target in targets) else definition
