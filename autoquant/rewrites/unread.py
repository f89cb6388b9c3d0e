"""What leads to no output."""

from collections.abc import Collection

import onnx
from onnx import defs

from autoquant.model.copies import Model, copy_of, opset_of
from autoquant.model.subgraphs import read_by
from autoquant.rewrites.edits import without_unused

__all__ = ["drop_unread"]


def drop_unread(model: Model) -> Model:
    """Without nodes of the main graph that lead to no output: onnxruntime would run them.

    Constants that nothing reads go too, and optional outputs: a MaxPool that tells indices has no kernel for integers.
    """
    read = {value.name for value in model.graph.output}
    opset = opset_of(model)
    kept: list[tuple[onnx.NodeProto, int]] = []
    for node in reversed(model.graph.node):
        if read.intersection(filter(None, node.output)):
            kept.append((node, _n_outputs(node, read, opset)))
            read.update(read_by(node))
    has_all = len(kept) == len(model.graph.node) and all(n == len(node.output) for node, n in kept)
    if has_all and read.issuperset(tensor.name for tensor in model.graph.initializer):
        return model
    copy = copy_of(model)
    del copy.graph.node[:]
    for node, n_outputs in reversed(kept):
        copied = copy.graph.node.add()
        copied.CopyFrom(node)
        del copied.output[n_outputs:]
    return without_unused(copy)


def _n_outputs(node: onnx.NodeProto, read: Collection[str], opset: int) -> int:
    """Without optional ones of ONNX's own operators at the end that nothing reads."""
    n = len(node.output)
    while n > 1 and node.output[n - 1] not in read and _is_optional(node, n - 1, opset):
        n -= 1
    return n


def _is_optional(node: onnx.NodeProto, output: int, opset: int) -> bool:
    """Those of a BatchNormalization say, before opset 14, that it takes means of what it reads."""
    if node.domain not in ("", "ai.onnx") or node.op_type == "BatchNormalization" or not defs.has(node.op_type, opset):
        return False
    declared = defs.get_schema(node.op_type, opset).outputs
    return output < len(declared) and declared[output].option == defs.OpSchema.FormalParameterOption.Optional
