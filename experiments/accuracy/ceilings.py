"""What is left of the noise of a candidate where its weights, or its activations, are float after all."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from autoquant.domain.feed import Feed
from autoquant.domain.region import Assignment
from autoquant.model.fragments import inline_external
from autoquant.model.graph import Graph
from autoquant.qdq.candidate import Candidate
from experiments.accuracy.algorithms import Material, Setting

__all__ = ["CEILINGS", "FLOAT_WEIGHTS", "WRITTEN", "run_as_written", "with_float_activations", "with_float_weights"]

WRITTEN = "none, as written"
FLOAT_WEIGHTS = "weights float", "equalised, weights float"
Array = npt.NDArray[np.generic]


def with_float_weights(candidate: Candidate, graph: Graph) -> onnx.ModelProto:
    """The candidate with the constants of the float model again; activations keep their integers.

    No choice of integers for weights leaves less noise than exact weights do, unless their errors make up for those of
    activations, as corrected biases do.

    Args:
        candidate: Built from ``graph``.
        graph: The prepared model.
    """
    model = inline_external(candidate.skeleton, candidate.constants, {})
    found = Graph(model)
    originals = {node.name: node for node in graph.nodes}
    here = {tensor.name for tensor in model.graph.initializer}
    for node in found.nodes:
        original = originals.get(node.name)
        slots = [slot for slot, name in enumerate(node.inputs) if _dequantizes(found, name)]
        if original is None or not slots:
            continue
        proto = model.graph.node[node.index]
        del proto.input[len(original.inputs) :]  # a bias that corrections added
        for slot in (slot for slot in slots if slot < len(original.inputs)):
            proto.input[slot] = name = original.inputs[slot]
            if name not in here:
                here.add(name)
                model.graph.initializer.append(numpy_helper.from_array(graph.constant(name), name))
        _take_beta(proto, graph.model.graph.node[original.index])
    return model


def with_float_activations(candidate: Candidate, graph: Graph) -> onnx.ModelProto:
    """The float model with the constants that the candidate's integers stand for; the arguments are those above."""
    found = Graph(inline_external(candidate.skeleton, candidate.constants, {}))
    nodes = {node.name: node for node in found.nodes}
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    for node in graph.nodes:
        quantized = nodes.get(node.name)
        if quantized is None:  # a Relu that the range of its producer makes redundant
            continue
        for slot, name in enumerate(quantized.inputs):
            if _dequantizes(found, name):
                own = f"{node.name}/{slot}/dequantized"
                proto = model.graph.node[node.index]
                proto.input.extend([""] * (slot + 1 - len(proto.input)))
                proto.input[slot] = own
                model.graph.initializer.append(numpy_helper.from_array(_dequantized(found, name), own))
                _take_beta(proto, found.model.graph.node[quantized.index])
    return model


def run_as_written(model: onnx.ModelProto, feeds: Sequence[Feed]) -> list[list[Array]]:
    """Outputs without any optimisation: onnxruntime would quantize float weights between Q and DQ by itself."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in feeds]


def _dequantizes(graph: Graph, name: str) -> bool:
    """Whether a tensor is a constant that is stored as integers."""
    producer = graph.producer.get(name)  # type: ignore[call-overload]
    return producer is not None and producer.op_type == "DequantizeLinear" and graph.is_constant(producer.inputs[0])


def _dequantized(graph: Graph, name: str) -> npt.NDArray[np.float32]:
    node = graph.producer[name]  # type: ignore[index]
    integers, scale, zero_point = (graph.constant(each) for each in node.inputs)
    if scale.ndim:
        axis = int(node.attributes.get("axis", 1)) % integers.ndim
        shape = [-1 if i == axis else 1 for i in range(integers.ndim)]
        scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
    return np.asarray((integers.astype(np.float32) - zero_point.astype(np.float32)) * scale, np.float32)


def _take_beta(proto: onnx.NodeProto, source: onnx.NodeProto) -> None:
    """Of a Gemm, whose quantized bias has it multiplied in."""
    for attribute in [each for each in proto.attribute if each.name == "beta"]:
        proto.attribute.remove(attribute)
    proto.attribute.extend(each for each in source.attribute if each.name == "beta")


def _unchanged(candidate: Candidate, graph: Graph) -> onnx.ModelProto:  # noqa: ARG001 - like the others
    return inline_external(candidate.skeleton, candidate.constants, {})


def _of(make: Callable[[Candidate, Graph], onnx.ModelProto], material: Material, asked: Assignment) -> onnx.ModelProto:
    return make(material.builder.build(asked), material.prepared.graph)


CEILINGS: Mapping[str, Callable[[Setting, Assignment], onnx.ModelProto]] = {
    WRITTEN: lambda setting, asked: _of(_unchanged, setting.plain, asked),
    FLOAT_WEIGHTS[0]: lambda setting, asked: _of(with_float_weights, setting.plain, asked),
    FLOAT_WEIGHTS[1]: lambda setting, asked: _of(with_float_weights, setting.equalised, asked),
    "activations float": lambda setting, asked: _of(with_float_activations, setting.plain, asked),
    "equalised, activations float": lambda setting, asked: _of(with_float_activations, setting.equalised, asked),
}
"""Models that are run as they are written; the first one shows what optimisations change."""
