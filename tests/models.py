"""Tiny models as ONNX text; a node bears the name of its first output."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper, parser

__all__ = [
    "a_classifier",
    "a_convnet",
    "a_mlp",
    "a_quantized_chain",
    "a_residual_net",
    "beyond_onnx",
    "constants_of",
    "feed_of",
    "floats",
    "in_a_function",
    "model_of",
    "op_types",
    "outputs_of",
    "saved",
    "used_in",
    "weight_only_operator",
]

_QUANTIZE = "{t}_q = QuantizeLinear({t}, s, z) {t}_d = DequantizeLinear({t}_q, s, z)"
Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float32]


def model_of(
    signature: str, body: str, constants: Mapping[str, Array | float] | None = None, *, opset: int = 21
) -> onnx.ModelProto:
    """A model with inferred shapes.

    Args:
        signature: E.g. ``"(float[1,3,8,8] x) => (float[1,4,8,8] y)"``.
        body: The nodes.
        constants: Initializers by name; numbers become float32 scalars.
        opset: Version of ONNX's own operators; ``com.microsoft`` is imported too.
    """
    head = f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    model: onnx.ModelProto = parser.parse_model(f"{head}\ntiny {signature} {{ {body} }}")
    for name, value in (constants or {}).items():
        array = value if isinstance(value, np.ndarray) else np.array(value, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    for node in model.graph.node:
        node.name = node.name or node.output[0]
    return onnx.shape_inference.infer_shapes(model)


def used_in(body: str, constants: Mapping[str, Array | float]) -> dict[str, Array | float]:
    """Those that it names."""
    words = set(re.findall(r"\w+", body))
    return {name: value for name, value in constants.items() if name in words}


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> Floats:
    """Normal numbers."""
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * scale).astype(np.float32)


def a_convnet(opset: int = 21) -> onnx.ModelProto:
    """Three convolutions with Relu, pooling and a linear layer."""
    return model_of(
        "(float[1,3,8,8] x) => (float[1,5] y)",
        """a = Conv<pads=[1,1,1,1]>(x, wa, ba) a_relu = Relu(a)
           b = Conv<pads=[1,1,1,1]>(a_relu, wb, bb) b_relu = Relu(b)
           c = Conv(b_relu, wc) pooled = GlobalAveragePool(c) flat = Flatten(pooled) y = Gemm(flat, wy, by)""",
        {
            "wa": floats(8, 3, 3, 3, scale=0.3),
            "ba": floats(8),
            "wb": floats(8, 8, 3, 3, scale=0.2),
            "bb": floats(8),
            "wc": floats(8, 8, 1, 1, scale=0.3),
            "wy": floats(8, 5),
            "by": floats(5),
        },
        opset=opset,
    )


def a_residual_net(n_blocks: int = 4, n_channels: int = 4) -> onnx.ModelProto:
    """A stem and residual blocks ``x + Conv(Relu(Conv(x)))``, each with a Relu behind; nodes are scoped by block."""
    body, constants = ["s0 = Conv<pads=[1,1,1,1]>(x, ws)"], {"ws": floats(n_channels, 3, 3, 3)}
    for i in range(n_blocks):
        body.append(
            f"a{i} = Conv<pads=[1,1,1,1]>(s{i}, wa{i}) r{i} = Relu(a{i}) b{i} = Conv<pads=[1,1,1,1]>(r{i}, wb{i}) "
            f"t{i} = Add(b{i}, s{i}) s{i + 1} = Relu(t{i})"
        )
        constants |= {f"w{k}{i}": floats(n_channels, n_channels, 3, 3, seed=i) for k in "ab"}
    signature = f"(float[1,3,6,6] x) => (float[1,{n_channels},6,6] s{n_blocks})"
    return model_of(signature, "\n".join(body), constants)


def a_quantized_chain(*, scale: float = 0.05, middle_is_float: bool = False, breaker: str = "") -> onnx.ModelProto:
    """Three u8 convolutions; the second one has a float weight where the middle is float."""
    weight = "w2_f" if middle_is_float else "w2_d"
    dequantized = "" if middle_is_float else "w2_d = DequantizeLinear(w2, ws, wz)"
    entering = f"e = {breaker}(a_d)" if breaker else "e = Identity(a_d)"
    body = f"""{_QUANTIZE.format(t="x")}
               w1_d = DequantizeLinear(w1, ws, wz) a = Conv(x_d, w1_d) {_QUANTIZE.format(t="a")}
               {dequantized} {entering} b = Conv(e, {weight}) {_QUANTIZE.format(t="b")}
               w3_d = DequantizeLinear(w3, ws, wz) c = Conv(b_d, w3_d) {_QUANTIZE.format(t="c")} y = Identity(c_d)"""
    rng = np.random.default_rng(0)
    constants: dict[str, Array | float] = {
        "s": np.array(scale, np.float32),
        "z": np.array(128, np.uint8),
        "ws": np.array(0.01, np.float32),
        "wz": np.array(0, np.int8),
        **{f"w{i}": rng.integers(-99, 99, (4, 4, 1, 1)).astype(np.int8) for i in (1, 2, 3)},
        **({"w2_f": floats(4, 4, 1, 1)} if middle_is_float else {}),
    }
    return model_of("(float[1,4,5,5] x) => (float[1,4,5,5] y)", body, constants)


def in_a_function(model: onnx.ModelProto) -> onnx.ModelProto:
    """As exporters write modules: one node ``call``, of a function that holds all others and reads the constants."""
    read = [value.name for value in model.graph.input] + [tensor.name for tensor in model.graph.initializer]
    written = [value.name for value in model.graph.output]
    calling = onnx.ModelProto()
    calling.CopyFrom(model)
    del calling.graph.node[:]
    del calling.graph.value_info[:]
    calling.graph.node.append(helper.make_node("Module", read, written, "call", domain="my"))
    calling.opset_import.append(helper.make_opsetid("my", 1))
    imported = list(model.opset_import)
    calling.functions.append(helper.make_function("my", "Module", read, written, list(model.graph.node), imported))
    return calling


def a_classifier() -> onnx.ModelProto:
    """As scikit-learn's converters write them: the output ``p`` is a map for each sample."""
    model = model_of("(float[N,8] x) => (float[N,4] y)", "y = Gemm(x, w)", {"w": floats(8, 4)})
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    model.graph.node.append(helper.make_node("ZipMap", ["y"], ["p"], domain="ai.onnx.ml", classlabels_int64s=range(4)))
    values = helper.make_map_type_proto(
        onnx.TensorProto.INT64, helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    )
    model.graph.output[0].CopyFrom(helper.make_value_info("p", helper.make_sequence_type_proto(values)))
    return model


def weight_only_operator(attributes: str = "") -> onnx.ModelProto:
    """MatMulNBits of 4 bits, of which every weight is ``(6 - 8) * 0.1``."""
    constants: dict[str, Array | float] = {"w": np.full((32, 2, 16), 0x66, np.uint8), "s": np.full(64, 0.1, np.float32)}
    body = f"y = com.microsoft.MatMulNBits<K=64, N=32, bits=4, block_size=32{attributes}>(x, w, s)"
    return model_of("(float[4,64] x) => (float[4,32] y)", body, constants)


def a_mlp() -> onnx.ModelProto:
    """MatMul, Add, Relu, MatMul on three dimensions, the first two dynamic."""
    return model_of(
        "(float[batch,time,4] x) => (float[batch,time,2] y)",
        "h = MatMul(x, w0) hb = Add(h, b0) r = Relu(hb) y = MatMul(r, w1)",
        {"w0": floats(4, 6), "b0": floats(6), "w1": floats(6, 2)},
    )


def feed_of(model: onnx.ModelProto, seed: int = 0) -> dict[str, Floats]:
    """Normal numbers for every input of static shape."""
    constants = {t.name for t in model.graph.initializer}
    return {
        value.name: floats(*(d.dim_value for d in value.type.tensor_type.shape.dim), seed=seed)
        for value in model.graph.input
        if value.name not in constants
    }


def outputs_of(model: onnx.ModelProto | Path, feed: Mapping[str, Array]) -> list[npt.NDArray[np.float32]]:
    """What onnxruntime computes without optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    found: list[npt.NDArray[np.float32]] = session.run(None, dict(feed))
    return found


def op_types(model: onnx.ModelProto) -> list[str]:
    """Operators in the order of the graph."""
    return [node.op_type for node in model.graph.node]


def beyond_onnx(model: onnx.ModelProto) -> dict[str, str]:
    """Operators of other domains than ONNX's own, by the name of their node."""
    return {node.name: node.op_type for node in model.graph.node if node.domain not in {"", "ai.onnx"}}


def constants_of(model: onnx.ModelProto) -> dict[str, npt.NDArray[Any]]:
    """Initializers by name."""
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def saved(model: onnx.ModelProto, path: Path) -> Path:
    """The path, with the model in it."""
    onnx.save(model, path)
    return path
