"""Rewrites that give onnxruntime a form that it has faster kernels for.

Each leaves its argument untouched, and gives it back where there is nothing to do.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.opsets import GEMM_WITHOUT_BIAS
from autoquant.rewrites.edits import Edit, Parts, of_each_node
from autoquant.rewrites.moves import axes_of

__all__ = ["divide_by_roots", "fuse_hard_swish", "lower_matmul", "reduce_stacked", "scale_norms", "split_gemm"]

_RANK_OF_GEMM = 2


@of_each_node()
def fuse_hard_swish(edit: Edit, node: Node) -> None:
    """``x * Clip(x + 3, 0, 6) / 6`` becomes ``x * HardSigmoid(x)``, which the kernel of a Conv before it absorbs.

    Wherever it is divided, or multiplied by a sixth; exporters of MobileNetV3-like networks write all of these.
    """
    graph = edit.graph
    match = _match_hard_swish(graph, node)
    if match is None or match[0] not in graph.float_tensors:
        return
    if 0 < graph.rank(match[0]) == graph.rank(node.outputs[0]):
        x, gone = match
        gate = edit.names.new(f"{node.name}_HardSigmoid")
        edit.replaced.update(dict.fromkeys(gone, ()))
        edit.replaced[node.index] = (
            helper.make_node("HardSigmoid", [x], [gate], name=f"{node.name}_HardSigmoid", alpha=1 / 6, beta=0.5),
            helper.make_node("Mul", [x, gate], list(node.outputs), name=f"{node.name}_HardSwish"),
        )


@of_each_node()
def lower_matmul(edit: Edit, node: Node) -> None:
    """A MatMul with a constant matrix, and the bias behind it, becomes Gemm, between two Reshapes unless it is 2-D.

    onnxruntime does the same at load time where sizes are known, though not inside patterns that could be an attention;
    as a Gemm the integer kernel adds the bias itself and may write floats. Inputs of which more than one size is not
    known stay as they are, and so do, below opset 11, those without a bias, which a Gemm has to have there.
    """
    graph = edit.graph
    if node.op_type != "MatMul" or not graph.is_constant(node.inputs[1]):
        return
    given, weight = graph.sizes(node.inputs[0]), graph.shape(node.inputs[1])
    if given is None or weight is None or len(weight) != 2 or len(given) < 2:
        return
    if node.inputs[0] not in graph.float_tensors or 0 in (*given, *weight):  # to Reshape a 0 is another size
        return
    *rows, _ = (-1 if size is None else size for size in given)
    if rows.count(-1) > 1:
        return
    add = _bias_add(graph, node, weight[1])
    if add is None and opset_of(graph.model) < GEMM_WITHOUT_BIAS:
        return
    target = node if add is None else add
    bias = [] if add is None else [next(name for name in add.inputs if graph.is_constant(name))]
    if add is not None:
        edit.replaced[node.index] = ()
    if len(given) == _RANK_OF_GEMM:
        inputs = [node.inputs[0], node.inputs[1], *bias]
        edit.replaced[target.index] = (helper.make_node("Gemm", inputs, [target.outputs[0]], name=node.name),)
        return
    sizes = {"in": (-1 if -1 in rows else math.prod(rows), weight[0]), "out": (*rows, weight[1])}
    there, back = (edit.constant(f"{node.name}_shape_{end}", np.array(size, np.int64)) for end, size in sizes.items())
    flat, product = edit.names.new(f"{node.inputs[0]}_for_{node.name}"), edit.names.new(f"{node.name}_product")
    edit.replaced[target.index] = (
        helper.make_node("Reshape", [node.inputs[0], there], [flat], name=f"{node.name}_flatten"),
        helper.make_node("Gemm", [flat, node.inputs[1], *bias], [product], name=node.name),
        helper.make_node("Reshape", [product, back], [target.outputs[0]], name=f"{node.name}_unflatten"),
    )


@of_each_node()
def reduce_stacked(edit: Edit, node: Node) -> None:
    """The largest or smallest across tensors that were stacked for it, as PyTorch exports it, becomes Max or Min.

    Stacking copies all of them, and ReduceMax over so few neighbours is slow: decision 0045.
    """
    graph = edit.graph
    stacked = _stacked(graph, node)
    if stacked:
        op_type = node.op_type.removeprefix("Reduce")
        inputs = [each.inputs[0] for each in stacked]
        edit.replaced[node.index] = (helper.make_node(op_type, inputs, list(node.outputs), name=node.name),)
        gone = [graph.producer[node.inputs[0]], *(each for each in stacked if graph.only_reader(each.outputs[0]))]
        edit.replaced.update({each.index: () for each in gone})


def _stacked(graph: Graph, node: Node) -> list[Node]:
    """The Unsqueezes whose Concat along their new axis a node reduces along it; empty where there is anything else."""
    concat = graph.producer.get(node.inputs[0]) if node.op_type in ("ReduceMax", "ReduceMin") else None
    if concat is None or concat.op_type != "Concat" or graph.only_reader(concat.outputs[0]) is None:
        return []
    producers = [graph.producer.get(name) for name in concat.inputs]
    stacked = [each for each in producers if each is not None and each.op_type == "Unsqueeze"]
    rank = graph.rank(concat.outputs[0])
    axes = {axes_of(graph, each, rank) for each in (*stacked, node)} | {(concat.attributes["axis"] % max(rank, 1),)}
    is_float = node.inputs[0] in graph.float_tensors and not node.attributes.get("keepdims", 1)
    return stacked if len(stacked) == len(producers) and len(axes) == 1 and is_float else []


@of_each_node()
def split_gemm(edit: Edit, node: Node) -> None:
    """A Gemm that adds anything but a constant for each output becomes a product and an Add.

    onnxruntime makes such ones of MatMul and Add, and has no integer kernel for them; float ones it makes again.
    """
    graph = edit.graph
    product = _product_of(graph, node, opset_of(graph.model))
    if product is not None:
        inner = edit.names.new(f"{node.name}_product")
        edit.replaced[node.index] = (
            _product(product, node, inner),
            helper.make_node("Add", [inner, node.inputs[2]], list(node.outputs), name=f"{node.name}_add"),
        )


def _product_of(graph: Graph, node: Node, opset: int) -> str | None:
    """The operator of a Gemm's product alone; None for what is none, or is to stay one."""
    if node.op_type != "Gemm" or len(node.inputs) < 3 or not node.inputs[2] or _is_vector(node.inputs[2], graph):
        return None
    if any(node.attributes.get(factor, 1.0) != 1.0 for factor in ("alpha", "beta")):
        return None
    if not _transposed(node):
        return "MatMul"
    return "Gemm" if opset >= GEMM_WITHOUT_BIAS else None


def _is_vector(tensor: TensorName, graph: Graph) -> bool:
    """Whether it is a constant that differs along the last axis alone."""
    shape = graph.shape(tensor) or (1,)
    return graph.is_constant(tensor) and int(np.prod(shape)) == shape[-1]


def _transposed(node: Node) -> list[str]:
    return [name for name in ("transA", "transB") if node.attributes.get(name, 0)]


def _product(op_type: str, gemm: Node, output: TensorName) -> onnx.NodeProto:
    made = helper.make_node(op_type, gemm.inputs[:2], [output], name=gemm.name)
    made.attribute.extend(helper.make_attribute(name, 1) for name in _transposed(gemm))
    return made


def _bias_add(graph: Graph, node: Node, n_outputs: int) -> Node | None:
    add = graph.only_reader(node.outputs[0])
    if add is None or add.op_type != "Add":
        return None
    constants = [name for name in add.inputs if graph.is_constant(name)]
    return add if len(constants) == 1 and graph.shape(constants[0]) in ((n_outputs,), (1, n_outputs)) else None


def _match_hard_swish(graph: Graph, node: Node) -> tuple[TensorName, tuple[int, ...]] | None:
    """The input of a hard swish that ends in this node, and the indices of its other nodes."""
    whole = _sixth(graph, node)
    if whole is not None:
        product = _only_use(graph, whole, "Mul")
        return None if product is None else _match_product(graph, product, {}, (product.index,))
    for divided in node.inputs if node.op_type == "Mul" else ():
        division = graph.producer.get(divided)
        whole = _sixth(graph, division) if division is not None and graph.only_reader(divided) is not None else None
        if division is not None and whole is not None:
            return _match_product(graph, node, {divided: whole}, (division.index,))
    return None


def _sixth(graph: Graph, node: Node) -> TensorName | None:
    """What a node writes a sixth of; None for any other node."""
    if node.op_type == "Div":
        return node.inputs[0] if _is_scalar(graph, node.inputs[1], 6) else None
    return next((value for value, factor in _turns(node) if _is_scalar(graph, factor, 1 / 6)), None)


def _match_product(
    graph: Graph, product: Node, behind: Mapping[TensorName, TensorName], gone: tuple[int, ...]
) -> tuple[TensorName, tuple[int, ...]] | None:
    """``x`` and the nodes to drop where a product is ``x * Clip(x + 3, 0, 6)``, divisions looked through."""
    factors = [behind.get(name, name) for name in product.inputs]
    for x, gate in (factors, factors[::-1]):
        found = _match_gate(graph, gate, x)
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
    if producer is None or producer.op_type != op_type or graph.only_reader(tensor) is None:
        return None
    return producer


def _is_scalar(graph: Graph, tensor: TensorName, value: float) -> bool:
    if not tensor or not graph.is_constant(tensor) or graph.constant(tensor).size != 1:
        return False
    return bool(np.isclose(graph.constant(tensor).reshape(()), value, rtol=1e-6))


@of_each_node()
def divide_by_roots(edit: Edit, node: Node) -> None:
    """``x * Reciprocal(Sqrt(mean + epsilon))`` becomes ``x / Sqrt(mean + epsilon)``, which onnxruntime fuses to a norm.

    PyTorch's exporter by torch.export writes RMS norms so below opset 23, Keras and JAX write layer norms so.
    """
    found = [(value, made) for value, factor in _turns(node) if (made := _reciprocal(edit.graph, factor)) is not None]
    if len(found) == 1:
        ((value, reciprocal),) = found
        read = [value, reciprocal.inputs[0]]
        edit.replaced[node.index] = (helper.make_node("Div", read, list(node.outputs), name=node.name),)
        edit.replaced[reciprocal.index] = ()


def _turns(node: Node) -> Sequence[Sequence[TensorName]]:
    """The inputs of a Mul in both orders; none of any other node."""
    return (node.inputs, node.inputs[::-1]) if node.op_type == "Mul" else ()


def _reciprocal(graph: Graph, factor: TensorName) -> Node | None:
    """Of the root of a mean and an epsilon, where one node reads it alone."""
    chain = _makers(graph, factor, ("Reciprocal", "Sqrt", "Add"))
    summands = chain[-1].inputs if chain else ()
    is_norm = any(_makers(graph, name, ("ReduceMean",)) for name in summands)
    return chain[0] if is_norm and graph.only_reader(factor) is not None else None


def _makers(graph: Graph, tensor: TensorName, op_types: Sequence[str]) -> list[Node]:
    """The nodes of these types of which each reads what the next one writes first; empty where there are others."""
    found: list[Node] = []
    for op_type in op_types:
        node = graph.producer.get(tensor)
        if node is None or node.op_type != op_type:
            return []
        found.append(node)
        tensor = node.inputs[0]
    return found


def scale_norms(model: onnx.ModelProto) -> onnx.ModelProto:
    """Norms that are written as nodes square by Pow and have a Mul by ones behind them unless they have a scale.

    onnxruntime fuses them then. As RMS norms without a scale by PyTorch, and squares by Keras and JAX.
    """
    graph = graph_of(model)
    edit = Edit(graph)
    for norm in graph.norms:
        square, division = graph.nodes[norm.square], graph.nodes[norm.division]
        size = (graph.sizes(division.outputs[0]) or (None,))[-1]
        is_fusible = norm.source in graph.float_tensors and (norm.scale is not None or (size or 0) > 1)
        if is_fusible and square.op_type == "Mul":
            parts = Parts(edit, square)
            parts.add("Pow", [square.inputs[0], parts.constant("exponent", np.float32(2))], output=square.outputs[0])
            edit.replaced[square.index] = parts.nodes
        if is_fusible and norm.scale is None:
            parts = Parts(edit, division)
            divided = parts.add("Div", division.inputs)
            ones = parts.constant("ones", np.ones(size or 1, np.float32))
            parts.add("Mul", [divided, ones], part="scale", output=division.outputs[0])
            edit.replaced[division.index] = parts.nodes
    return edit.model()
