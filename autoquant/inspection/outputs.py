"""What behind a node keeps it from running on integers."""

from collections.abc import Iterator

import numpy as np

from autoquant.inspection.kernels import base_op
from autoquant.inspection.sources import moved
from autoquant.inspection.written import EMITS_FLOAT, Quantization, quantization_of, quantizers
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import clip_bounds

__all__ = ["output_causes"]

_FLOAT32 = np.finfo(np.float32).min, np.finfo(np.float32).max
_ABSORBING = ("int8", "uint8", "int16", "uint16")
"""Types that integer kernels write."""


def output_causes(node: Node, graph: Graph) -> Iterator[str]:
    """Every output must go to QuantizeLinear nodes only, through a Relu or Clip that they make redundant."""
    for tensor in node.outputs:
        readers = graph.consumers.get(tensor, ())
        if readers and tensor in graph.outputs:
            yield f"the output is also a graph output ('{tensor}')"
        elif readers and tensor in graph.pinned:
            yield "the output is read inside a body of If, Loop or Scan"
        if len(readers) == 1 and readers[0].op_type in ("Relu", "Clip"):
            yield from _clipping_causes(readers[0], graph)
        elif any(True for _ in quantizers(tensor, graph)):
            readers = graph.consumers[moved(tensor, graph)]
            others = [reader for reader in readers if base_op(reader) != "QuantizeLinear"]
            if others:
                yield f"the output has a consumer that is no QuantizeLinear ({others[0].op_type} '{others[0].name}')"
        elif tensor and base_op(node) not in EMITS_FLOAT:
            yield "no output QuantizeLinear"


def _clipping_causes(clip: Node, graph: Graph) -> Iterator[str]:
    where = f"{clip.op_type} '{clip.name}' behind it"
    tensor = clip.outputs[0]
    found = [quantization_of(q, graph) for q in quantizers(tensor, graph)]
    if tensor in graph.outputs:
        yield f"the output of {where} is also a graph output"
    elif tensor in graph.pinned:
        yield f"the output of {where} is read inside a body of If, Loop or Scan"
    if not found or len(found) < len(graph.consumers.get(tensor, ())):
        yield f"the output of {where} has a consumer that is no QuantizeLinear"
    for q in found[:1]:
        yield from _redundancy_causes(clip, where, q, graph)


def _redundancy_causes(clip: Node, where: str, q: Quantization, graph: Graph) -> Iterator[str]:
    if q.scale is None or q.zero_point is None or q.scale.size != 1 or q.dtype not in _ABSORBING:
        return
    limits = np.iinfo(q.dtype)
    scale, zero_point = float(q.scale), int(q.zero_point)
    if not scale > 0:
        return
    if clip.op_type == "Relu":
        if zero_point != limits.min:
            yield f"{where} is not absorbed: zero point {zero_point} is not the type's minimum {limits.min}"
        return
    bounds = clip_bounds(clip, graph)
    if bounds is None:
        yield f"{where} is not absorbed: a bound is not constant"
        return
    low, high = (float(np.clip(bound, *_FLOAT32)) for bound in bounds)
    if round(low / scale) + zero_point > limits.min or round(high / scale) + zero_point < limits.max:
        covered = [(limit - zero_point) * scale for limit in (limits.min, limits.max)]
        yield (
            f"{where} is not absorbed: its bounds {low:g} and {high:g} lie inside the output's range"
            f" {covered[0]:g} to {covered[1]:g}"
        )
