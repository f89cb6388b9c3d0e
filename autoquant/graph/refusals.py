"""Models that cannot be compared with anything."""

import math
from collections.abc import Sequence
from pathlib import Path

from autoquant.domain.feed import sample_name
from autoquant.domain.quality import QualityMeter, heard
from autoquant.domain.region import TensorName
from autoquant.errors import DataError, ModelError
from autoquant.graph.likeness import Reference, keeps_outputs
from autoquant.model.copies import Model, without_weights
from autoquant.model.graph import Graph, subgraph_reads
from autoquant.model.io import output_dtypes
from autoquant.model.names import name_nodes
from autoquant.model.numbers import number_outputs
from autoquant.runtime.samples import refuse_non_finite, run_sample
from autoquant.runtime.session import Session

__all__ = ["random_notes", "refuse_no_numbers", "refuse_types"]

_UNREADABLE = frozenset(
    {
        *("bfloat16", "float4_e2m1fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        *("int2", "int4", "uint2", "uint4"),
    }
)


def refuse_types(path: Path, original: Model) -> None:
    """Refuse outputs that onnxruntime cannot hand over.

    Args:
        path: The user's file, for the message.
        original: What is in it.

    Raises:
        ModelError: There is one.
    """
    for name, dtype in output_dtypes(original).items():
        if dtype in _UNREADABLE:
            raise ModelError(
                f"{path}: its output '{name}' is {dtype}, which numpy cannot hold; put a Cast to float32 behind"
                " it, or take it out of the outputs"
            )


def refuse_no_numbers(path: Path, original: Model, reference: Reference, sample_names: Sequence[str]) -> None:
    """Refuse outputs without any number, for the sake of the sample or of a weight.

    Args:
        path: The user's file, for the message.
        original: What is in it.
        reference: What it wrote.
        sample_names: What messages call the feeds; their places by default.

    Raises:
        DataError: An output holds no number on a sample.
        ModelError: So it does, and a weight holds NaN or an infinity.
    """
    names = [TensorName(value.name) for value in original.graph.output]
    for i, outputs in enumerate(reference.outputs):
        for name, values in zip(names, outputs, strict=True):
            try:
                refuse_non_finite([(name, values)], sample_name(sample_names, i))
            except DataError as error:
                broken = _weight_without_numbers(original, name)
                if broken is None:
                    raise
                weight, held = broken
                raise ModelError(
                    f"{path}: its weight '{weight}' holds {held}, and its output '{name}' no number; export the model"
                    " again"
                ) from error


def _weight_without_numbers(original: Model, output: TensorName) -> tuple[TensorName, str] | None:
    """One that leads to an output and holds NaN, or else an infinity; and which of both."""
    graph = Graph(original)
    leading, waiting = {output}, [output]
    while waiting:
        node = graph.producer.get(waiting.pop())
        read = () if node is None else (*node.inputs, *subgraph_reads(graph.model.graph.node[node.index]))
        new = {TensorName(name) for name in read} - leading
        leading |= new
        waiting += new
    floats = [name for name in sorted(leading) if graph.is_constant(name) and (graph.dtype(name) or "")[:5] == "float"]
    for held, is_held in (("NaN", math.isnan), ("an infinity", math.isinf)):
        for name in floats:
            if is_held(graph.magnitude(name)):
                return name, held
    return None


def random_notes(
    path: Path, plain: Model, reference: Reference, session: Session, *, from_halves: bool
) -> tuple[str, ...]:
    """Of nodes that draw numbers which outputs show little of.

    Args:
        path: The user's file, for the message.
        plain: What is in it, without functions.
        reference: What it wrote.
        session: Of it.
        from_halves: Whether tensors of it are float16.

    Raises:
        ModelError: Outputs show much of them.
    """
    drawing = Graph(without_weights(plain, name_nodes)).drawing
    if not drawing or not reference.feeds:
        return ()
    names = [value.name for value in plain.graph.output]
    meter = QualityMeter(names, heard(number_outputs(plain), names, reference.outputs))
    meter.add(reference.outputs[0], run_sample(session, reference.feeds[0], sample_name((), 0)))
    again_db, what = meter.quality().worst_db, f"node '{drawing[0]}' draws other numbers at every inference"
    if not keeps_outputs(plain, again_db, from_halves=from_halves):
        raise ModelError(
            f"{path}: {what}, so that no outputs can be compared; make them an input of the model, or export it without"
        )
    return (f"{what}: the float model agrees with itself to {again_db:.1f} dB",) if again_db < math.inf else ()
