"""Models that aren't ready to use: graphs written here around published weights, and declarations put right."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from experiments.zoo.weights import Weights, read_safetensors, read_torch_legacy

__all__ = ["REBUILDS", "Rebuild"]

Rebuild = Callable[[Path, Path], None]
"""Reads the package's member, writes the model."""


class _Graph:
    """Nodes and initializers while a graph is written."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: object, dtype: type = np.float32) -> str:
        """Add an initializer and return its name."""
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype, order="C"), name))
        return name

    def node(self, op_type: str, inputs: Sequence[str], output: str = "", *, name: str = "", **attributes: Any) -> str:
        """Add a node and return its output."""
        output = output or f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=name or output, **attributes))
        return output

    def save(
        self, name: str, inputs: Sequence[onnx.ValueInfoProto], output: onnx.ValueInfoProto, opset: int, path: Path
    ) -> None:
        """Check the graph and write it as a model."""
        graph = helper.make_graph(self.nodes, name, inputs, [output], self.initializers)
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="autoquant experiments.zoo")
        onnx.checker.check_model(model)
        onnx.save(model, path)


def declare_centerface_shapes(source: Path, target: Path) -> None:
    """The file declares 10x3x32x32 though the net is fully convolutional: declare 1x3x320x320."""
    model = onnx.load(source)
    graph = model.graph
    outputs = [(value, (1, channels, 80, 80)) for value, channels in zip(graph.output, (1, 2, 2, 10), strict=True)]
    for value, shape in [(graph.input[0], (1, 3, 320, 320)), *outputs]:
        for dimension, size in zip(value.type.tensor_type.shape.dim, shape, strict=True):
            dimension.dim_value = size
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]  # some are counters of the training
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name in used - constants]
    del graph.initializer[:], graph.input[:], graph.value_info[:]
    graph.initializer.extend(kept)
    graph.input.extend(inputs)
    onnx.save(model, target)


class _EfficientNetLite(_Graph):
    """EfficientNet-Lite: no squeeze-and-excite, ReLU6, TensorFlow's 'same' padding."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights
        self.constant("lo", 0)
        self.constant("hi", 6)

    def conv(
        self, x: str, key: str, norm: str, size: int, *, stride: int = 1, group: int = 1, activation: bool = True
    ) -> tuple[str, int]:
        """Convolution, normalization and activation of a square picture; returns the output and its size."""
        weight = self.weights[f"{key}.weight"]
        kernel, out_size = weight.shape[2], -(-size // stride)
        padding = max((out_size - 1) * stride + kernel - size, 0)
        before, after = padding // 2, padding - padding // 2
        x = self.node(
            "Conv",
            [x, self.constant(f"{key}.weight", weight)],
            kernel_shape=[kernel, kernel],
            strides=[stride] * 2,
            group=group,
            pads=[before, before, after, after],
        )
        statistics = [f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
        constants = [self.constant(name, self.weights[name]) for name in statistics]
        x = self.node("BatchNormalization", [x, *constants], epsilon=1e-3)
        return (self.node("Clip", [x, "lo", "hi"]) if activation else x), out_size

    def block(self, x: str, name: str, size: int, *, stride: int) -> tuple[str, int]:
        """An inverted residual block without its sum."""
        if f"{name}._expand_conv.weight" in self.weights:
            x, size = self.conv(x, f"{name}._expand_conv", f"{name}._bn0", size)
        depthwise = f"{name}._depthwise_conv"
        n_groups = self.weights[f"{depthwise}.weight"].shape[0]
        x, size = self.conv(x, depthwise, f"{name}._bn1", size, stride=stride, group=n_groups)
        return self.conv(x, f"{name}._project_conv", f"{name}._bn2", size, activation=False)


def build_efficientnet_lite0(source: Path, target: Path) -> None:
    """EfficientNet-Lite0 from its torch weights."""
    graph = _EfficientNetLite(read_torch_legacy(source))
    x, size = graph.conv("input", "_conv_stem", "_bn0", 224, stride=2)
    n_blocks = 0
    for n_repeats, stride in [(1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1)]:
        for repeat in range(n_repeats):
            skip = x
            x, size = graph.block(x, f"_blocks.{n_blocks}", size, stride=1 if repeat else stride)
            if repeat:
                x = graph.node("Add", [x, skip])
            n_blocks += 1
    x, size = graph.conv(x, "_conv_head", "_bn1", size)
    x = graph.node("Flatten", [graph.node("GlobalAveragePool", [x])])
    head = [graph.constant(name, graph.weights[name]) for name in ("_fc.weight", "_fc.bias")]
    graph.node("Gemm", [x, *head], "logits", name="fc", transB=1)
    picture = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, 224, 224])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1000])
    graph.save("efficientnet_lite0", [picture], logits, 13, target)


class _Bert(_Graph):
    """BERT of hidden size 384 and 12 heads."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights
        for name, shape in {"heads": [0, 0, 12, 32], "flat": [0, 0, 384]}.items():
            self.constant(name, shape, np.int64)
        for name, value in {"scale": 32**0.5, "half": 0.5, "one": 1, "r2": 2**0.5, "big": -1e4}.items():
            self.constant(name, value)
        for name, axes in {"ax12": [1, 2], "ax2": [2], "ax1": [1]}.items():
            self.constant(name, axes, np.int64)
        self.constant("tiny", 1e-9)
        self.constant("s0", [0], np.int64)

    def weight(self, name: str) -> str:
        """A published weight as an initializer of the same name."""
        return self.constant(name, self.weights[name])

    def linear(self, x: str, key: str) -> str:
        """MatMul and bias."""
        weight = self.constant(f"{key}.weight", self.weights[f"{key}.weight"].T)
        product = self.node("MatMul", [x, weight])
        return self.node("Add", [product, self.weight(f"{key}.bias")])

    def norm(self, x: str, key: str) -> str:
        """LayerNormalization over the hidden size."""
        return self.node(
            "LayerNormalization", [x, self.weight(f"{key}.weight"), self.weight(f"{key}.bias")], epsilon=1e-12
        )

    def embeddings(self) -> str:
        """Words, the first sentence's type and positions, normalized."""
        length = self.node("Slice", [self.node("Shape", ["input_ids"]), "ax1", "ax2", "s0"])
        positions = self.constant("embeddings.position", self.weights["embeddings.position_embeddings.weight"])
        positions = self.node("Slice", [positions, "s0", length, "s0"])
        words = self.constant("embeddings.word", self.weights["embeddings.word_embeddings.weight"])
        x = self.node("Gather", [words, "input_ids"])
        kind = self.constant("embeddings.type0", self.weights["embeddings.token_type_embeddings.weight"][0])
        x = self.node("Add", [self.node("Add", [x, kind]), positions])
        return self.norm(x, "embeddings.LayerNorm")

    def attention(self, x: str, key: str, penalty: str) -> str:
        """Self-attention, without its output's projection."""
        turns = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}
        query, keys, value = (
            self.node("Transpose", [self.node("Reshape", [self.linear(x, f"{key}.{part}"), "heads"])], perm=turn)
            for part, turn in turns.items()
        )
        scores = self.node("Div", [self.node("MatMul", [query, keys]), "scale"])
        probabilities = self.node("Softmax", [self.node("Add", [scores, penalty])], axis=-1)
        mixed = self.node("Transpose", [self.node("MatMul", [probabilities, value])], perm=[0, 2, 1, 3])
        return self.node("Reshape", [mixed, "flat"])

    def layer(self, x: str, key: str, penalty: str) -> str:
        """Attention and a perceptron with GELU, each with its sum and normalization."""
        mixed = self.attention(x, f"{key}.attention.self", penalty)
        x = self.node("Add", [self.linear(mixed, f"{key}.attention.output.dense"), x])
        x = self.norm(x, f"{key}.attention.output.LayerNorm")
        hidden = self.linear(x, f"{key}.intermediate.dense")
        error = self.node("Erf", [self.node("Div", [hidden, "r2"])])
        hidden = self.node("Mul", [self.node("Mul", [hidden, self.node("Add", [error, "one"])]), "half"])
        return self.norm(self.node("Add", [self.linear(hidden, f"{key}.output.dense"), x]), f"{key}.output.LayerNorm")


def build_minilm_l6(source: Path, target: Path) -> None:
    """all-MiniLM-L6-v2 (BERT of 6 layers, mean over words, unit length) from its safetensors weights."""
    graph = _Bert(read_safetensors(source, "model.safetensors"))
    mask = graph.node("Cast", ["attention_mask"], to=TensorProto.FLOAT)
    hidden_words = graph.node("Sub", ["one", graph.node("Unsqueeze", [mask, "ax12"])])
    penalty = graph.node("Mul", [hidden_words, "big"])
    x = graph.embeddings()
    for i in range(6):
        x = graph.layer(x, f"encoder.layer.{i}", penalty)
    mask = graph.node("Unsqueeze", [mask, "ax2"])
    total = graph.node("ReduceSum", [graph.node("Mul", [x, mask]), "ax1"], keepdims=0)
    mean = graph.node("Div", [total, graph.node("ReduceSum", [mask, "ax1"], keepdims=0)])
    square = graph.node("ReduceSum", [graph.node("Mul", [mean, mean]), "ax1"], keepdims=1)
    length = graph.node("Sqrt", [square])
    graph.node("Div", [mean, graph.node("Max", [length, "tiny"])], "sentence_embedding", name="unit")
    integers = ("input_ids", "attention_mask")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in integers]
    embedding = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", 384])
    graph.save("all_minilm_l6_v2", inputs, embedding, 17, target)


REBUILDS: Mapping[str, Rebuild] = {
    rebuild.__name__: rebuild for rebuild in (declare_centerface_shapes, build_efficientnet_lite0, build_minilm_l6)
}
