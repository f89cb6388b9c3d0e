"""The network as an ONNX model, unfused as exporters leave it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from experiments.digits.architecture import (
    BLOCKS,
    BN_EPSILON,
    N_CLASSES,
    UPSAMPLING,
    Block,
    ConvBn,
    State,
    list_convs,
    make_shortcut,
    make_stem,
)

__all__ = ["make_model"]

_PRODUCER = "train_digits"
_DOC_STRING = "Small ResNet on scikit-learn's handwritten digits; made by experiments/train_digits.py"
"""The name that this package had when the shipped file was written; another one would change its bytes."""


@dataclass(slots=True)
class Graph:
    """An ONNX graph in the making; tensors are named after the node that makes them."""

    state: State
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)

    def add_node(self, scope: str, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node named ``/scope/op_type`` and return its output."""
        name = f"/{scope}/{op_type}"
        output = f"{name}_output_0"
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], name=name, **attributes))
        return output

    def add_constant(self, name: str, value: NDArray[np.generic]) -> str:
        """Add an initializer."""
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add_parameter(self, key: str) -> str:
        """Add a trained parameter under its dotted name."""
        return self.add_constant(key.replace("/", "."), self.state[key])

    def add_conv(self, spec: ConvBn, x: str) -> str:
        """Add Conv, BatchNormalization and perhaps Relu, unfused as an exporter leaves them."""
        x = self.add_node(
            f"{spec.name}/conv",
            "Conv",
            [x, self.add_parameter(f"{spec.name}/conv/weight")],
            kernel_shape=[spec.kernel] * 2,
            strides=[spec.stride] * 2,
            pads=[spec.kernel // 2] * 4,
            dilations=[1, 1],
            group=spec.groups,
        )
        statistics = [
            self.add_parameter(f"{spec.name}/bn/{key}") for key in ("weight", "bias", "running_mean", "running_var")
        ]
        x = self.add_node(f"{spec.name}/bn", "BatchNormalization", [x, *statistics], epsilon=BN_EPSILON)
        return self.add_node(spec.name, "Relu", [x]) if spec.relu else x

    def add_gate(self, scope: str, x: str) -> str:
        """Add a squeeze-and-excitation gate."""
        y = self.add_node(scope, "GlobalAveragePool", [x])
        for layer, activation in (("reduce", "Relu"), ("excite", "Sigmoid")):
            parameters = [self.add_parameter(f"{scope}/{layer}/{key}") for key in ("weight", "bias")]
            y = self.add_node(f"{scope}/{layer}", "Conv", [y, *parameters], kernel_shape=[1, 1])
            y = self.add_node(scope, activation, [y])
        return self.add_node(scope, "Mul", [x, y])

    def add_block(self, block: Block, x: str) -> str:
        """Add a residual block."""
        *body, last = list_convs(block)
        y = x
        for spec in body:
            y = self.add_conv(spec, y)
        if block.squeeze:
            y = self.add_gate(f"{block.name}/se", y)
        y = self.add_conv(last, y)
        skip = self.add_conv(make_shortcut(block), x) if block.has_shortcut else x
        return self.add_node(block.name, "Relu", [self.add_node(block.name, "Add", [y, skip])])


def make_model(state: State) -> onnx.ModelProto:
    """The ONNX model of trained parameters: ``image`` (batch, 1, 8, 8) to ``logits`` (batch, 10), opset 21."""
    graph = Graph(state)
    scales = graph.add_constant("upsample.scales", np.array([1, 1, UPSAMPLING, UPSAMPLING], np.float32))
    x = graph.add_node(
        "upsample", "Resize", ["image", "", scales], mode="linear", coordinate_transformation_mode="half_pixel"
    )
    x = graph.add_conv(make_stem(), x)
    for block in BLOCKS:
        x = graph.add_block(block, x)
    x = graph.add_node("head", "GlobalAveragePool", [x])
    x = graph.add_node("head", "Flatten", [x], axis=1)
    head = [graph.add_parameter(f"head/{key}") for key in ("weight", "bias")]
    graph.nodes.append(helper.make_node("Gemm", [x, *head], ["logits"], name="/head/Gemm", transB=1))
    onnx_graph = helper.make_graph(
        graph.nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", N_CLASSES])],
        graph.initializers,
    )
    model = helper.make_model(
        onnx_graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, producer_name=_PRODUCER
    )
    model.doc_string = _DOC_STRING
    onnx.checker.check_model(model, full_check=True)
    return model
