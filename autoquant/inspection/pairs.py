"""Two Q/DQ pairs in a row that onnxruntime makes one pair with other parameters."""

from collections.abc import Iterator

from autoquant.inspection.kernels import base_op
from autoquant.inspection.written import Quantization, quantization_of
from autoquant.model.graph import Graph, Node

__all__ = ["merged_pairs"]

_DTYPES = ("uint8", "int8", "uint16", "int16")


def merged_pairs(graph: Graph) -> Iterator[Node]:
    """The second Q of each two pairs of one type and unlike parameters, as onnxruntime's DoubleQDQPairsRemover asks.

    Nothing else reads what is dropped, and all that stays has explicit scalar constants.
    """
    return (node for node in graph.nodes if base_op(node) == "QuantizeLinear" and _is_merged(node, graph))


def _is_merged(second: Node, graph: Graph) -> bool:
    dequantizer = _source(second, "DequantizeLinear", graph)
    first = _source(dequantizer, "QuantizeLinear", graph) if dequantizer is not None else None
    if dequantizer is None or first is None:
        return False
    before, after = (_pair(q, dqs, graph) for q, dqs in ((first, (dequantizer,)), (second, _readers(second, graph))))
    return before is not None and after is not None and before.dtype == after.dtype and not before.is_equal(after)


def _source(node: Node, op_type: str, graph: Graph) -> Node | None:
    """What writes the first input of a node, before any Identity, where nothing else reads it."""
    tensor = node.inputs[0]
    while tensor in graph.producer and graph.only_reader(tensor) is not None:
        source = graph.producer[tensor]
        if source.op_type != "Identity":
            return source if base_op(source) == op_type else None
        tensor = source.inputs[0]
    return None


def _readers(quantizer: Node, graph: Graph) -> tuple[Node, ...]:
    """The DQ of a Q; none where anything else reads it."""
    tensor = quantizer.outputs[0]
    readers = graph.consumers.get(tensor, ())
    is_paired = tensor not in graph.pinned and all(base_op(reader) == "DequantizeLinear" for reader in readers)
    return readers if is_paired else ()


def _pair(quantizer: Node, dequantizers: tuple[Node, ...], graph: Graph) -> Quantization | None:
    """What a Q has in common with its DQ, where that can be replaced."""
    found = quantization_of(quantizer, graph)
    is_pair = bool(dequantizers) and all(found.is_equal(quantization_of(dq, graph)) for dq in dequantizers)
    return found if is_pair and _is_replaceable(found) else None


def _is_replaceable(found: Quantization) -> bool:
    """Whether type and numbers are of the kinds that onnxruntime picks anew: a zero point that is left out is not."""
    scale, zero_point = found.scale, found.zero_point
    if scale is None or zero_point is None or found.dtype not in _DTYPES:
        return False
    return scale.size == zero_point.size == 1 and (scale.dtype.name, zero_point.dtype.name) == ("float32", found.dtype)
