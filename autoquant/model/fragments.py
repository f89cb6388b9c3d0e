"""Serialized pieces of a model.

Protobuf merges concatenated messages: a model is the concatenation of its fragments, each of which is serialized once.
Source: https://protobuf.dev/programming-guides/encoding/#last-one-wins
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

__all__ = ["external", "head", "initializer", "inline_external", "node", "rewired"]


def _graph_fragment(graph: onnx.GraphProto) -> bytes:
    return onnx.ModelProto(graph=graph).SerializeToString(deterministic=True)


def head(model: onnx.ModelProto) -> bytes:
    """The model without nodes and initializers."""
    graph = onnx.GraphProto(name=model.graph.name or "graph", input=model.graph.input, output=model.graph.output)
    start = onnx.ModelProto(
        ir_version=max(model.ir_version, 10),
        producer_name="autoquant",
        opset_import=model.opset_import,
        functions=model.functions,
        graph=graph,
    )
    return start.SerializeToString(deterministic=True)


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str, axis: int | None = None) -> bytes:
    """A new node."""
    made = helper.make_node(op_type, inputs, outputs, name=name)
    if axis is not None:
        made.attribute.append(helper.make_attribute("axis", axis))
    return _graph_fragment(onnx.GraphProto(node=[made]))


def rewired(
    proto: onnx.NodeProto,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    op_type: str | None = None,
    **integers: float,
) -> bytes:
    """A node of the model with other tensors at its ends and, where given, another operator or attribute values."""
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    copy.op_type = op_type or proto.op_type
    del copy.input[:], copy.output[:]
    copy.input.extend(inputs)
    copy.output.extend(outputs)
    for attribute in [a for a in copy.attribute if a.name in integers]:
        copy.attribute.remove(attribute)
    copy.attribute.extend(helper.make_attribute(key, value) for key, value in integers.items())
    return _graph_fragment(onnx.GraphProto(node=[copy]))


def initializer(name: str, array: npt.NDArray[np.generic]) -> bytes:
    """A constant that the fragment itself holds."""
    return _graph_fragment(onnx.GraphProto(initializer=[numpy_helper.from_array(array, name)]))


def external(name: str, array: npt.NDArray[np.generic]) -> bytes:
    """A constant whose value the session is given when it opens."""
    tensor = onnx.TensorProto(
        name=name,
        dims=array.shape,
        data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, value in (("location", "in-memory"), ("offset", "0"), ("length", str(array.nbytes))):
        tensor.external_data.add(key=key, value=value)
    return _graph_fragment(onnx.GraphProto(initializer=[tensor]))


def inline_external(
    skeleton: bytes, arrays: Mapping[str, npt.NDArray[np.generic]], metadata: Mapping[str, str]
) -> onnx.ModelProto:
    """The model that a skeleton and its external constants stand for, with metadata."""
    model = onnx.load_from_string(skeleton)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(arrays[tensor.name], tensor.name))
    helper.set_model_props(model, dict(metadata))
    return model
