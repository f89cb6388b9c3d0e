"""What really runs of a model."""

import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from autoquant.api.steps import model_path
from autoquant.domain.arguments import check_type
from autoquant.domain.reason import temporary_files
from autoquant.domain.target import DEFAULT_TARGET, Target
from autoquant.errors import ModelError, TargetError
from autoquant.inspection.comparison import Comparison, compare
from autoquant.inspection.inspection import Inspection, inspect_graphs
from autoquant.measurement.saturation import is_saturating
from autoquant.model.around import candidate_alone
from autoquant.model.copies import Model, from_bytes, to_bytes
from autoquant.model.graph import Graph
from autoquant.model.io import load_any
from autoquant.model.names import has_named_nodes, has_repeated_names, name_nodes
from autoquant.model.optimized import RENAMED, read_optimized_nodes
from autoquant.model.rewrite import constants_as_initializers, infer_shapes, inline_functions
from autoquant.runtime.environment import describe_environment
from autoquant.runtime.session import CompiledError, check_room, open_session

__all__ = ["InspectedModel", "inspect_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedModel:
    """What ``inspect_model`` gives.

    Attributes:
        path: The model.
        target: Name of the execution provider and threads.
        inspection: Its nodes, kernels, conversions and remarks.
        comparison: With the float model, where one was given.
        environment: Machine and versions; causes depend on both.
    """

    path: Path
    target: str
    inspection: Inspection
    comparison: Comparison | None
    environment: Mapping[str, object]

    def as_dict(self) -> dict[str, object]:
        """Of plain values, for JSON."""
        return {
            "schema_version": 1,
            "model": str(self.path),
            "target": self.target,
            "environment": dict(self.environment),
            **asdict(self.inspection),
            "against": asdict(self.comparison) if self.comparison is not None else None,
        }


def inspect_model(
    model: str | os.PathLike[str], *, target: Target = DEFAULT_TARGET, against: str | os.PathLike[str] | None = None
) -> InspectedModel:
    """Read back what onnxruntime runs of a model under default session options, node by node, with causes.

    Args:
        model: Any ONNX file, quantized by whatever tool or not at all; of members that are the branch of an If, the
            branch.
        target: Where it shall run.
        against: The float model that it was made from; nodes are followed by name.

    Raises:
        ModelError: A model cannot be read or opened.
        OutputError: There is no place for temporary files.
        TargetError: The execution provider is not installed, or does not show what it runs.
        UsageError: An argument is of another type.
    """
    check_type("the target", target, Target, "one, e.g. Target('cpu')")
    path = model_path(model)
    found = _inspect(path, target)
    comparison = compare(found, _inspect(model_path(against), target)) if against is not None else None
    return InspectedModel(
        path=path, target=target.name, inspection=found, comparison=comparison, environment=describe_environment()
    )


def _inspect(path: Path, target: Target) -> Inspection:
    model = load_any(path)
    inlined = inline_functions(model)
    if has_repeated_names(model):
        open_session(path, target)  # which may refuse it, as other names would not be
    named = inlined if has_named_nodes(inlined) else name_nodes(_named_by_outputs(inlined))
    saturates = is_saturating(target)
    with temporary_files(), tempfile.TemporaryDirectory(prefix="autoquant-") as folder:
        file = Path(folder) / "optimized.onnx"
        try:
            source = path if named is model else to_bytes(named)
            open_session(source, target, optimized_path=file, keeps_constants=saturates)
        except ModelError as error:
            check_room(file.parent)
            raise ModelError(f"{path}: {str(error).removeprefix(f'{path}: ').removeprefix('model: ')}") from error
        except CompiledError as error:
            raise TargetError(f"{error}; inspect the model on the provider cpu") from error
        optimized = read_optimized_nodes(file, has_constants=saturates)
    return inspect_graphs(
        _readable(candidate_alone(named)),
        optimized,
        ep=target.ep,
        machine=platform.machine(),
        is_saturating=saturates,
    )


def _named_by_outputs(model: Model) -> Model:
    """With names for nodes that have none: those of outputs stay, whatever a quantizer puts before and behind them."""
    found = from_bytes(to_bytes(model))
    for node in found.graph.node:
        node.name = node.name or next(iter(node.output), "").removesuffix(RENAMED)
    return found


def _readable(model: Model) -> Graph:
    return Graph(infer_shapes(constants_as_initializers(model)))
