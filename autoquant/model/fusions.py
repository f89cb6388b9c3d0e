"""Rewrites that give onnxruntime a form that it has faster kernels for; each leaves its argument untouched."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autoquant.domain.region import TensorName
from autoquant.model.affine import without_unused
from autoquant.model.graph import Graph, Node

__all__ = ["fuse_hard_swish", "lower_matmul"]


def fuse_hard_swish(model: onnx.ModelProto) -> onnx.ModelProto:
    """``x * Clip(x + 3, 0, 6) / 6`` becomes ``x * HardSigmoid(x)``, which the kernel of a Conv before it absorbs.

    Both orders of the product and the division are known; exporters of MobileNetV3-like networks write them.
    """
    graph = Graph(model)
    replaced: dict[int, Sequence[onnx.NodeProto]] = {}
    for node in graph.nodes:
        match = _match_hard_swish(graph, node)
        if match is not None and graph.shape(match[0]) == graph.shape(node.outputs[0]):
            x, gone = match
            gate = f"{node.name}_HardSigmoid"
            replaced.update(dict.fromkeys(gone, ()))
            replaced[node.index] = (
                helper.make_node("HardSigmoid", [x], [gate], name=gate, alpha=1 / 6, beta=0.5),
                helper.make_node("Mul", [x, gate], list(node.outputs), name=f"{node.name}_HardSwish"),
            )
    return _with_nodes(model, replaced, ())


def lower_matmul(model: onnx.ModelProto) -> onnx.ModelProto:
    """A MatMul with a constant matrix, and the bias added behind it, becomes Reshape, Gemm, Reshape.

    onnxruntime does the same at load time, though not inside patterns that could be an attention; as a Gemm the integer
    kernel adds the bias itself and may write floats. Inputs with dynamic shapes stay as they are.
    """
    graph = Graph(model)
    replaced: dict[int, Sequence[onnx.NodeProto]] = {}
    shapes: list[onnx.TensorProto] = []
    for node in graph.nodes:
        if node.op_type != "MatMul" or not graph.is_constant(node.inputs[1]):
            continue
        given, weight = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
        if given is None or weight is None or len(weight) != 2 or len(given) < 2:
            continue
        if node.inputs[0] not in graph.float_tensors:
            continue
        add = _bias_add(graph, node, weight[1])
        target = node if add is None else add
        bias = [] if add is None else [next(name for name in add.inputs if graph.is_constant(name))]
        if add is not None:
            replaced[node.index] = ()
        replaced[target.index] = _gemm(node, target.outputs[0], bias)
        sizes = {"in": (int(np.prod(given[:-1])), weight[0]), "out": (*given[:-1], weight[1])}
        shapes += [numpy_helper.from_array(np.array(s, np.int64), f"{node.name}_shape_{k}") for k, s in sizes.items()]
    return _with_nodes(model, replaced, shapes)


def _gemm(node: Node, output: str, bias: Sequence[str]) -> Sequence[onnx.NodeProto]:
    flat, product = f"{node.inputs[0]}_for_{node.name}", f"{node.name}_product"
    return (
        helper.make_node("Reshape", [node.inputs[0], f"{node.name}_shape_in"], [flat], name=f"{node.name}_flatten"),
        helper.make_node("Gemm", [flat, node.inputs[1], *bias], [product], name=node.name),
        helper.make_node("Reshape", [product, f"{node.name}_shape_out"], [output], name=f"{node.name}_unflatten"),
    )


def _bias_add(graph: Graph, node: Node, n_outputs: int) -> Node | None:
    add = _only_reader(graph, node.outputs[0])
    if add is None or add.op_type != "Add":
        return None
    constants = [name for name in add.inputs if graph.is_constant(name)]
    return add if len(constants) == 1 and graph.shape(constants[0]) == (n_outputs,) else None


def _match_hard_swish(graph: Graph, node: Node) -> tuple[TensorName, tuple[int, ...]] | None:
    """The input of a hard swish that ends in this node, and the indices of its other nodes."""
    if node.op_type == "Div":
        product = _only_use(graph, node.inputs[0], "Mul")
        if product is None or not _is_scalar(graph, node.inputs[1], 6):
            return None
        return _match_product(graph, product, {}, (product.index,))
    if node.op_type == "Mul":
        for divided in node.inputs:
            division = _only_use(graph, divided, "Div")
            if division is not None and _is_scalar(graph, division.inputs[1], 6):
                looked_through = {divided: division.inputs[0]}
                return _match_product(graph, node, looked_through, (division.index,))
    return None


def _match_product(
    graph: Graph, product: Node, behind: Mapping[TensorName, TensorName], gone: tuple[int, ...]
) -> tuple[TensorName, tuple[int, ...]] | None:
    """``x`` and the nodes to drop where a product is ``x * Clip(x + 3, 0, 6)``, divisions looked through."""
    for x, gate in (product.inputs, product.inputs[::-1]):
        found = _match_gate(graph, behind.get(gate, gate), x)
        if found is not None:
            return x, (*gone, *found)
    return None


def _match_gate(graph: Graph, clipped: TensorName, x: TensorName) -> tuple[int, int] | None:
    """Indices of Clip and Add where ``clipped`` is ``Clip(x + 3, 0, 6)``."""
    clip = _only_use(graph, clipped, "Clip")
    if clip is None or len(clip.inputs) != 3:
        return None
    if not (_is_scalar(graph, clip.inputs[1], 0) and _is_scalar(graph, clip.inputs[2], 6)):
        return None
    add = _only_use(graph, clip.inputs[0], "Add")
    if add is None or x not in add.inputs:
        return None
    other = add.inputs[1] if add.inputs[0] == x else add.inputs[0]
    return (clip.index, add.index) if _is_scalar(graph, other, 3) else None


def _only_use(graph: Graph, tensor: TensorName, op_type: str) -> Node | None:
    """The producer of a tensor that one node reads, where it is of this type."""
    producer = graph.producer.get(tensor)
    if producer is None or producer.op_type != op_type or _only_reader(graph, tensor) is None:
        return None
    return producer


def _only_reader(graph: Graph, tensor: TensorName) -> Node | None:
    readers = graph.consumers.get(tensor, ())
    return readers[0] if len(readers) == 1 and tensor not in graph.pinned else None


def _is_scalar(graph: Graph, tensor: TensorName, value: float) -> bool:
    if not tensor or not graph.is_constant(tensor) or graph.constant(tensor).size != 1:
        return False
    return bool(np.isclose(graph.constant(tensor).reshape(()), value, rtol=1e-6))


def _with_nodes(
    model: onnx.ModelProto, replaced: dict[int, Sequence[onnx.NodeProto]], constants: Sequence[onnx.TensorProto]
) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    for i, proto in enumerate(model.graph.node):
        copy.graph.node.extend(replaced.get(i, (proto,)))
    copy.graph.initializer.extend(constants)
    return without_unused(copy)
