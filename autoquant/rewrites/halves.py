"""Float16 made float32."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autoquant.model.copies import Model, copy_of
from autoquant.model.graph import Graph
from autoquant.model.kept import graph_of
from autoquant.model.rewrite import infer_shapes
from autoquant.model.subgraphs import bodies_of, graphs_of, read_by

__all__ = ["has_halves", "narrow_ends", "widen_halves"]

_HALF, _SINGLE = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
_TYPE_ATTRIBUTES = frozenset({"dtype", "output_datatype", "output_dtype", "softmax_precision", "stash_type", "to"})
"""What operators call an element type."""
_SQRT_2 = 2**0.5
"""By which exact GELU divides; onnxruntime knows it in the precision of float32 alone."""
_Saying = onnx.AttributeProto | onnx.TensorProto | onnx.TypeProto.Tensor


def has_halves(model: Model) -> bool:
    """Whether an operator other than a Cast reads or writes float16, in bodies too, or may do so."""
    if next(_halves(model.graph), None) is None:
        return False
    types = dict[str, int]()
    for graph in graphs_of(infer_shapes(model).graph):
        values = (*graph.input, *graph.value_info, *graph.output)
        types |= {value.name: value.type.tensor_type.elem_type for value in values}
        types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
        others = [node for node in graph.node if node.op_type != "Cast"]
        if any(types.get(name, _HALF) in (0, _HALF) for node in others for name in (*node.input, *node.output) if name):
            return True
    return False


def widen_halves(model: Model) -> Model:
    """Float32 in place of float16 everywhere, in bodies too; the model itself where there is none.

    What the model casts between the two types is an Identity then, which onnxruntime takes away.
    """
    if not has_halves(model):
        return model
    typed = infer_shapes(model)
    copy = copy_of(model)
    for saying in list(_halves(copy.graph)):
        _widen(saying)
    for graph, before in zip(graphs_of(copy.graph), graphs_of(typed.graph), strict=True):
        _make_identities(graph, before)
    return copy


def narrow_ends(model: Model, original: Model) -> Model:
    """Inputs and outputs that were float16 before ``widen_halves`` are so again, with a Cast behind or before them.

    Not at once: fusions of onnxruntime's that take a Cast in give operators inputs of two types.

    Args:
        model: Stays as it is, and is given back where there are none.
        original: What was widened.
    """
    if not has_halves(original):
        return model
    before = infer_shapes(original).graph
    given, made = (_names_of_halves(values) for values in (before.input, before.output))
    read = {name for node in model.graph.node for name in read_by(node)}
    entering, leaving = [name for name in given if name in read], [name for name in made if name not in given]
    names = _names_inside(graph_of(model), [*entering, *leaving])
    copy = copy_of(model)
    _rename(copy.graph, names)
    ends = {value.name: value.type for value in (*model.graph.input, *model.graph.output)}
    for name, inner in names.items():
        copy.graph.value_info.add(name=inner, type=ends[name])
    for value in (*copy.graph.input, *copy.graph.output):
        if value.name in {*given, *made}:
            value.type.tensor_type.elem_type = _HALF
    nodes = [
        *(helper.make_node("Cast", [name], [names[name]], to=_SINGLE) for name in entering),
        *copy.graph.node,
        *(helper.make_node("Cast", [names[name]], [name], to=_HALF) for name in leaving),
    ]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def _halves(graph: onnx.GraphProto) -> Iterator[_Saying]:
    """Whatever in a graph and its bodies says float16."""
    for part in graphs_of(graph):
        tensors = [*part.initializer]
        for attribute in (attribute for node in part.node for attribute in node.attribute):
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i == _HALF:
                yield attribute
            tensors += [attribute.t, attribute.sparse_tensor.values, *attribute.tensors]
        yield from (tensor for tensor in tensors if tensor.data_type == _HALF)
        for value in (*part.input, *part.value_info, *part.output):
            yield from (tensor for tensor in _tensor_types(value.type) if tensor.elem_type == _HALF)


def _tensor_types(type_: onnx.TypeProto) -> Iterator[onnx.TypeProto.Tensor]:
    """That of a tensor, or of those in a sequence."""
    if type_.HasField("tensor_type"):
        yield type_.tensor_type
    elif type_.HasField("sequence_type"):
        yield from _tensor_types(type_.sequence_type.elem_type)


def _widen(saying: _Saying) -> None:
    if isinstance(saying, onnx.TensorProto):
        values = numpy_helper.to_array(saying).astype(np.float32)
        if values.size == 1 and values.item() == np.float16(_SQRT_2):
            values = np.full_like(values, _SQRT_2)
        saying.CopyFrom(numpy_helper.from_array(values, saying.name))
    elif isinstance(saying, onnx.AttributeProto):
        saying.i = _SINGLE
    else:
        saying.elem_type = _SINGLE


def _make_identities(graph: onnx.GraphProto, before: onnx.GraphProto) -> None:
    """Of Casts to float32 whose input is float32, or was float16 before."""
    values = (*before.input, *before.value_info, *before.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    types |= {tensor.name: tensor.data_type for tensor in before.initializer}
    for node in graph.node:
        if (
            node.op_type == "Cast"
            and types.get(node.input[0]) in (_HALF, _SINGLE)
            and helper.get_node_attr_value(node, "to") == _SINGLE
        ):
            node.op_type = "Identity"
            del node.attribute[:]


def _names_of_halves(values: Iterable[onnx.ValueInfoProto]) -> list[str]:
    return [value.name for value in values if value.type.tensor_type.elem_type == _HALF]


def _names_inside(graph: Graph, ends: Iterable[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for end in ends:
        names[end] = graph.free_name(f"{end}_float32", names.values())
    return names


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Tensors of a graph, wherever they are but as its inputs and outputs."""
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for value in graph.value_info:
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
        for body in bodies_of(node):
            own = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
            own |= {name for inner in body.node for name in inner.output}
            _rename(body, {name: new for name, new in names.items() if name not in own})
