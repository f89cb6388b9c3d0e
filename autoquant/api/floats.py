"""Sentences that say what of a model stays float whatever the search finds, and why."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from autoquant.domain.region import Region
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import why_float

__all__ = ["float_sentences", "nothing_to_quantize", "outside_sentences"]

_WITHOUT_KERNEL = frozenset({"Attention", "Einsum", "GRU", "RNN"})
"""Operators of products for which onnxruntime has no kernel that takes integers."""
_PRODUCTS = _WITHOUT_KERNEL | {"Conv", "ConvTranspose", "Gemm", "LSTM", "MatMul"}
"""Operators that most of the time goes into where there are some."""

_TOLD_OUTSIDE, _TOLD_OF_ONE = 0.1, 0.02
"""Shares of the latency from which on they are told: of all operators in no region, and of those of one type."""


def nothing_to_quantize(graph: Graph) -> str:
    """Of a model without regions."""
    where = " outside of the bodies of If, Loop and Scan" if graph.has_bodies else ""
    kind = "float16" if graph.has_halves else "float64" if graph.has_doubles else ""
    advice = f"; give the float32 model that it was made from, as it is in {kind}" if kind else ""
    return f"the preprocessed model holds no operator that could be quantized{where}, so it stays float{advice}"


def float_sentences(graph: Graph, regions: Sequence[Region]) -> list[str]:
    """What has products and stays float whatever the search finds; none where nothing does."""
    held = {name for region in regions for name in region.nodes}
    left = [node for node in graph.nodes if node.op_type in _PRODUCTS and node.name not in held]
    others = _counts(f"{node.op_type} ({_why(node, graph)})" for node in left)
    others += _counts((t for t in graph.op_types_in_bodies if t in _PRODUCTS), " in bodies of If, Loop or Scan")
    return [f"in no region, so that they stay float: {', '.join(others)}"] if others else []


def outside_sentences(shares: Mapping[str, float]) -> list[str]:
    """How much of float's latency no scheme changes; none where that is little.

    Args:
        shares: Of it, of the operators in no region, by type.
    """
    found = sorted(((share, name) for name, share in shares.items() if share >= _TOLD_OF_ONE), reverse=True)
    if sum(shares.values()) < _TOLD_OUTSIDE or not found:
        return []
    told = ", ".join(f"{name} {share:.0%}" for share, name in found)
    return [
        f"operators in no region take {sum(shares.values()):.0%} of float's latency, whatever the search finds: {told}"
    ]


def _why(node: Node, graph: Graph) -> str:
    if not graph.size_tensors.isdisjoint(node.outputs):
        return "decides how large other tensors are, as layers that predict durations"
    if node.op_type in _WITHOUT_KERNEL:
        return "no integer kernel"
    if node.index in graph.norm_nodes:
        return "part of a norm"
    return why_float(node, graph) or "no scheme takes it"


def _counts(op_types: Iterable[str], where: str = "") -> list[str]:
    return [f"{n} {op_type}{where}" for op_type, n in Counter(op_types).most_common()]
