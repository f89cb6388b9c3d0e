"""Which operators run on integers on the CPU provider of the onnxruntime that is installed: seen, not assumed."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from autoquant import inspect_model
from autoquant.inspection.kernels import Runs
from autoquant.inspection.types import X86
from tests.inspected import FROM_1_32, inspected, node_of
from tests.models import floats, model_of, saved, weight_only_operator
from tests.qdq import Constant, Wrapped, pair, parameters, stored

IS_X86 = platform.machine() in X86
IMAGE = {"x": (1, 4, 6, 6)}
TWO_IMAGES = {"x": (1, 4, 6, 6), "z": (1, 4, 6, 6)}
MATRIX = {"x": (4, 8)}


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        model: With u8 activations and s8 weights.
        kernel: Of 8 bits, without its domain; None for float.
        is_wide: Whether 16 bits run on integers too.
        is_weight_only: Whether the weight-only kernel takes it where activations have 16 bits.
    """

    model: Wrapped
    kernel: str | None
    is_wide: bool = False
    is_weight_only: bool = False

    def runs(self, activation: str) -> tuple[Runs, str | None]:
        """What is expected, with the kernel where it is one of integers."""
        if self.kernel is not None and (self.is_wide or activation.endswith("8")):
            return Runs.INTEGER, self.kernel
        return (Runs.WEIGHT_ONLY, "MatMulNBits") if self.is_weight_only else (Runs.FLOAT, None)


def image(call: str, kernel: str | None, **options: object) -> Row:
    return Row(Wrapped(call, IMAGE, **options), kernel)  # type: ignore[arg-type]


def moving(
    call: str, plain: Mapping[str, object] | None = None, *, inputs: Mapping[str, tuple[int, ...]] = IMAGE
) -> Row:
    name = call.partition("(")[0].partition("<")[0]
    return Row(Wrapped(call, inputs, plain=plain or {}, moves=True), name, is_wide=True)  # type: ignore[arg-type]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


WEIGHT = {"w": Constant((4, 4, 3, 3))}
BIAS = {"b": Constant((4,), "s32", scale=0.03 * 0.02)}
ROW = Constant((1, 8), "s32", scale=0.03 * 0.02)
MATRIX_WEIGHT = {"w": Constant((8, 8))}
LSTM_WEIGHTS = {"w": Constant((1, 16, 8)), "r": Constant((1, 16, 4)), "b": Constant((1, 32))}

LINEAR = {
    "Conv 1D": Row(Wrapped("Conv(x, w)", {"x": (1, 4, 9)}, {"w": Constant((4, 4, 3))}), "QLinearConv"),
    "Conv 2D": image("Conv(x, w)", "QLinearConv", constants=WEIGHT),
    "Conv with bias": image("Conv(x, w, b)", "QLinearConv", constants=WEIGHT | BIAS),
    "Conv depthwise": image("Conv<group=4>(x, w)", "QLinearConv", constants={"w": Constant((4, 1, 3, 3))}),
    "ConvTranspose": image("ConvTranspose(x, w)", None, constants=WEIGHT),
    "Gemm": Row(Wrapped("Gemm(x, w)", MATRIX, MATRIX_WEIGHT), "QGemm", is_weight_only=FROM_1_32),
    "Gemm, transB": Row(Wrapped("Gemm<transB=1>(x, w)", MATRIX, MATRIX_WEIGHT), "QGemm"),
    "Gemm, transA": Row(Wrapped("Gemm<transA=1>(x, w)", {"x": (8, 4)}, MATRIX_WEIGHT), "QGemm"),
    "Gemm, bias [1,N]": Row(Wrapped("Gemm(x, w, b)", MATRIX, MATRIX_WEIGHT | {"b": ROW}), "QGemm"),
    "Gemm, alpha": Row(Wrapped("Gemm<alpha=0.5>(x, w)", MATRIX, MATRIX_WEIGHT), "QGemm"),
    "Gemm, alpha and bias": Row(Wrapped("Gemm<alpha=0.5>(x, w, b)", MATRIX, MATRIX_WEIGHT | {"b": ROW}), None),
    "Gemm, beta": Row(Wrapped("Gemm<beta=0.5>(x, w, b)", MATRIX, MATRIX_WEIGHT | {"b": ROW}), None),
    "MatMul": Row(Wrapped("MatMul(x, w)", MATRIX, MATRIX_WEIGHT), "QLinearMatMul", is_weight_only=FROM_1_32),
}
"""Operators with a weight: run with several types of it."""

OTHERS = {
    "MatMul of two": Row(Wrapped("MatMul(x, z)", {"x": (4, 8), "z": (8, 4)}), "QLinearMatMul"),
    "Add": Row(Wrapped("Add(x, z)", TWO_IMAGES), "QLinearAdd"),
    "Mul": Row(Wrapped("Mul(x, z)", TWO_IMAGES), "QLinearMul"),
    "Concat": Row(Wrapped("Concat<axis=1>(x, z)", TWO_IMAGES), "QLinearConcat"),
    "Softmax": image("Softmax<axis=-1>(x)", "QLinearSoftmax"),
    "Sigmoid": image("Sigmoid(x)", "QLinearSigmoid"),
    "LeakyRelu": image("LeakyRelu<alpha=0.1>(x)", "QLinearLeakyRelu"),
    "AveragePool": image("AveragePool<kernel_shape=[2,2]>(x)", "QLinearAveragePool"),
    "GlobalAveragePool": image("GlobalAveragePool(x)", "QLinearGlobalAveragePool"),
    "Sub": Row(Wrapped("Sub(x, z)", TWO_IMAGES), None),
    "Div": Row(Wrapped("Div(x, z)", TWO_IMAGES), None),
    **{
        op: image(f"{op}(x)", None) for op in ("Tanh", "HardSwish", "HardSigmoid", "Gelu", "Erf", "Exp", "Sqrt", "Mish")
    },
    "PRelu": image("PRelu(x, slope)", None, plain={"slope": np.full((4, 1, 1), 0.1, np.float32)}),
    "ReduceMean": image("ReduceMean<keepdims=1>(x, axes)", None, plain={"axes": ints(1)}),
    "Einsum": Row(Wrapped('Einsum<equation="ij,jk->ik">(x, z)', {"x": (4, 8), "z": (8, 4)}), None),
    "Pad": image("Pad(x, pads)", None, plain={"pads": ints(0, 0, 1, 1, 0, 0, 1, 1)}),
    "LayerNormalization": image("LayerNormalization(x, g)", None, plain={"g": floats(6)}),
    "InstanceNormalization": image("InstanceNormalization(x, g, b)", None, plain={"g": floats(4), "b": floats(4)}),
    "BatchNormalization": image(
        "BatchNormalization(x, g, b, m, v)",
        None,
        plain={k: np.abs(floats(4)) + 0.5 for k in "gbmv"},
    ),
    "Resize, linear": image('Resize<mode="linear">(x, , scales)', None, plain={"scales": np.array([1, 1, 2, 2], "f4")}),
    "SpaceToDepth": Row(Wrapped("SpaceToDepth<blocksize=2>(x)", IMAGE, moves=True), None),
    "LSTM": Row(Wrapped("LSTM<hidden_size=4>(x, w, r, b)", {"x": (3, 1, 8)}, LSTM_WEIGHTS), None),
    "Reshape": moving("Reshape(x, shape)", {"shape": ints(4, 36)}),
    "Transpose": moving("Transpose<perm=[0,2,3,1]>(x)"),
    "Slice": moving("Slice(x, starts, ends)", {"starts": ints(0, 1), "ends": ints(1, 3)}),
    "Gather": moving("Gather<axis=1>(x, indices)", {"indices": ints(2, 0)}),
    "Flatten": moving("Flatten(x)"),
    "Expand": moving("Expand(x, shape)", {"shape": ints(2, 4, 6, 6)}),
    "Tile": moving("Tile(x, repeats)", {"repeats": ints(1, 1, 2, 2)}),
    "Squeeze": moving("Squeeze(x, axes)", {"axes": ints(0)}),
    "Unsqueeze": moving("Unsqueeze(x, axes)", {"axes": ints(0)}),
    "MaxPool": replace(moving("MaxPool<kernel_shape=[2,2]>(x)"), is_wide=False),
    "DepthToSpace": replace(moving("DepthToSpace<blocksize=2>(x)"), is_wide=False),
    "ReduceMax": replace(moving("ReduceMax<keepdims=1>(x, axes)", {"axes": ints(1)}), is_wide=False),
    "ReduceMin": replace(moving("ReduceMin<keepdims=1>(x, axes)", {"axes": ints(1)}), is_wide=False),
    "GatherElements": moving("GatherElements<axis=1>(x, i)", {"i": np.zeros((1, 2, 6, 6), np.int64)}),
    "Resize, nearest": replace(
        moving('Resize<mode="nearest">(x, , scales)', {"scales": np.array([1, 1, 2, 2], "f4")}), is_wide=False
    ),
}


@pytest.mark.parametrize("activation", ["u8", "s8", "u16", "s16"])
@pytest.mark.parametrize("weight", ["u8", "s8", "s8 per channel"])
@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_operator_runs_as_in_the_table(name: str, weight: str, activation: str, tmp_path: Path) -> None:
    row = LINEAR[name]
    op, constant = row.model.call, row.model.constants["w"]
    axis = 0 if op.startswith(("Conv(", "Conv<")) or "transB=1" in op else 1
    changed = replace(constant, dtype=weight[:2], axis=axis if "channel" in weight else None)
    model = replace(row.model, constants={**row.model.constants, "w": changed}, activation=activation)
    found = inspected(model.model, tmp_path)
    runs, kernel = row.runs(activation)
    assert node_of(found).runs == runs
    assert kernel is None or str(node_of(found).kernel).endswith(kernel)
    assert [c.tensor for c in found.dequantized if c.tensor == "w_q"] == (["w_q"] if runs is Runs.FLOAT else [])


@pytest.mark.parametrize("activation", ["u8", "s8", "u16", "s16"])
@pytest.mark.parametrize("name", OTHERS)
def test_an_operator_runs_as_in_the_table(name: str, activation: str, tmp_path: Path) -> None:
    row = OTHERS[name]
    found = node_of(inspected(replace(row.model, activation=activation).model, tmp_path))
    runs, kernel = row.runs(activation)
    assert found.runs == runs, found
    assert kernel is None or str(found.kernel).endswith(kernel)
    assert found.is_as_written == (runs is Runs.INTEGER)


# Signed activations: onnxruntime makes pairs unsigned on x86, and leaves what is no pair

MEETS_A_CONSTANT = {
    "Add": Wrapped("Add(x, c)", IMAGE, {"c": Constant((4, 1, 1))}),
    "Mul": Wrapped("Mul(x, c)", IMAGE, {"c": Constant((4, 1, 1))}),
    "Concat": Wrapped("Concat<axis=1>(x, c)", IMAGE, {"c": Constant((1, 2, 6, 6))}),
    "Where": Wrapped("Where(condition, x, c)", IMAGE, {"c": Constant((1,))}, {"condition": np.array([True])}),
}


@pytest.mark.parametrize("activation", ["u8", "s8", "u16"])
@pytest.mark.parametrize("name", MEETS_A_CONSTANT)
def test_a_signed_constant_beside_a_signed_activation_keeps_it_in_float_on_x86(
    name: str, activation: str, tmp_path: Path
) -> None:
    constant = replace(MEETS_A_CONSTANT[name].constants["c"], dtype=activation)
    model = replace(MEETS_A_CONSTANT[name], constants={"c": constant}, activation=activation)
    found = node_of(inspected(model.model, tmp_path))
    is_integer = activation == "u8" or (activation == "s8" and not IS_X86)
    assert found.runs == (Runs.INTEGER if is_integer else Runs.FLOAT)
    if is_integer:
        assert found.kernel == f"com.microsoft:QLinear{name}"


@pytest.mark.parametrize("activation", ["u8", "s8"])
def test_a_signed_activation_with_two_readers_keeps_them_in_float_on_x86(activation: str, tmp_path: Path) -> None:
    model = Wrapped("Sigmoid(x)", IMAGE, activation=activation).model
    node = onnx.helper.make_node("Sigmoid", ["x_d"], ["second"], name="second")
    model.graph.node.append(node)
    model.graph.output.append(onnx.helper.make_tensor_value_info("second", onnx.TensorProto.FLOAT, None))
    found = node_of(inspected(model, tmp_path))
    assert found.runs == (Runs.FLOAT if activation == "s8" and IS_X86 else Runs.INTEGER)


def table(dtype: str, *, is_written: bool) -> Wrapped:
    constants, indices = {"c": Constant((9, 4), dtype)}, {"i": ints(3, 1)}
    return Wrapped("Gather(c, i)", {}, constants, indices, output=dtype if is_written else "", moves=True)


@pytest.mark.parametrize("dtype", ["u8", "s8", "u16", "s16"])
def test_a_quantized_table_is_gathered_before_it_is_dequantized(dtype: str, tmp_path: Path) -> None:
    found = inspected(table(dtype, is_written=True).model, tmp_path)
    is_float = dtype == "s8" and IS_X86
    assert node_of(found).runs == (Runs.FLOAT if is_float else Runs.INTEGER)
    assert len(found.dequantized) == is_float


def test_a_quantized_table_without_a_pair_behind_is_dequantized_as_a_whole(tmp_path: Path) -> None:
    found = inspected(table("u8", is_written=False).model, tmp_path)
    assert (node_of(found, "y").runs, len(found.dequantized)) == (Runs.FLOAT, 1)
    assert node_of(found, "y").causes == ("no output QuantizeLinear",)


# Relu and Clip behind a Conv


@pytest.mark.parametrize(("activation", "zero_point"), [("u8", 0), ("u8", 128), ("s8", -128), ("s8", 0)])
def test_a_relu_is_absorbed_at_the_minimum_of_the_type(activation: str, zero_point: int, tmp_path: Path) -> None:
    model = Wrapped("Conv(x, w)", IMAGE, WEIGHT, behind="Relu(@)", activation=activation, zero_point=zero_point)
    found = inspected(model.model, tmp_path)
    is_absorbed = zero_point in (0, -128) and (activation, zero_point) != ("s8", 0)
    assert node_of(found).runs == (Runs.INTEGER if is_absorbed else Runs.FLOAT)
    assert (node_of(found, "r").fused_into, node_of(found, "r").runs) == ("t", node_of(found).runs)


@pytest.mark.parametrize(("scale", "is_absorbed"), [(6 / 255, True), (7 / 255, False)])
def test_a_clip_is_absorbed_that_the_range_makes_redundant(scale: float, is_absorbed: bool, tmp_path: Path) -> None:
    model = Wrapped(
        "Conv(x, w)",
        IMAGE,
        WEIGHT,
        {"low": 0.0, "high": 6.0},
        behind="Clip(@, low, high)",
        zero_point=0,
        scale=scale,
    )
    assert node_of(inspected(model.model, tmp_path)).runs == (Runs.INTEGER if is_absorbed else Runs.FLOAT)


# What is not quantized on all sides


@pytest.mark.parametrize(
    ("model", "kernel"),
    [
        (Wrapped("Gemm(x, w)", MATRIX, MATRIX_WEIGHT, output=""), "com.microsoft:QGemm"),
        (Wrapped("MatMul(x, z)", {"x": (4, 8), "z": (8, 4)}, output=""), "com.microsoft:MatMulIntegerToFloat"),
        (Wrapped("ArgMax<keepdims=0>(x)", IMAGE, output=""), "ArgMax"),
    ],
)
def test_some_kernels_take_integers_and_give_floats(model: Wrapped, kernel: str, tmp_path: Path) -> None:
    proto = model.model
    if "ArgMax" in model.call:
        proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    found = node_of(inspected(proto, tmp_path), "y")
    assert (found.runs, found.kernel) == (Runs.INTEGER, kernel)


MOVES = {
    "Transpose": ("Transpose(@)", (4, 8)),
    "Reshape": ("Reshape(@, shape)", (4, 8)),
    "Slice": ("Slice(@, first, eight)", (9, 4)),
    "Squeeze": ("Squeeze(@, first)", (1, 8, 4)),
    "Unsqueeze": ("Unsqueeze(@, first)", (8, 4)),
    "MaxPool": ("MaxPool<kernel_shape=[1,1]>(@)", (1, 1, 8, 4)),
    "Gather": ("Gather(@, rows)", (9, 4)),
    "Flatten": ("Flatten(@)", (8, 2, 2)),
}


def moved(middle: str, end: str, opset: int) -> onnx.ModelProto:
    """A product with what is moved behind its DequantizeLinear; ``@`` is that."""
    values = {k: v for name in "xzt" for k, v in parameters(name, "u8").items()}
    values |= {"shape": ints(8, 4), "first": ints(0), "eight": ints(8), "rows": ints(*range(8))}
    call, shape = MOVES[middle]
    body = f"{pair('x', 'x_d')} {pair('z', 'z_d')} m = {call.replace('@', 'z_d')} t = MatMul(x_d, m) {end}"
    return model_of(f"(float[4,8] x, float[{','.join(map(str, shape))}] z) => (float y)", body, values, opset=opset)


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize(("end", "kernel"), [("y = Exp(t)", "MatMulIntegerToFloat"), (pair("t", "y"), "QLinearMatMul")])
@pytest.mark.parametrize("middle", MOVES)
def test_the_dequantizer_of_an_activation_is_moved_past_some_operators(
    middle: str, end: str, kernel: str, opset: int, tmp_path: Path
) -> None:
    found = node_of(inspected(moved(middle, end, opset), tmp_path))
    is_moved = middle not in ("Gather", "Flatten")
    assert found.runs is (Runs.INTEGER if is_moved else Runs.FLOAT)
    assert not is_moved or (str(found.kernel).endswith(kernel) and found.causes == ())


BACK = {
    "Transpose": "t = Transpose(m)",
    "Reshape": "t = Reshape(m, flat)",
    "Slice": "t = Slice(m, first, one)",
    "Squeeze": "u = Unsqueeze(m, first) t = Squeeze(u, first)",
    "Unsqueeze": "t = Unsqueeze(m, first)",
    "MaxPool": "t = MaxPool<kernel_shape=[1,1]>(m)",
    "Gather": "t = Gather(m, first)",
    "Flatten": "t = Flatten(m)",
}


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("call", ["Sigmoid(x_d)", "Conv(x_d, w_d)"])
@pytest.mark.parametrize("behind", BACK)
def test_the_quantizer_of_an_activation_is_moved_before_some_operators(
    behind: str, call: str, opset: int, tmp_path: Path
) -> None:
    values = {k: v for name in "xt" for k, v in parameters(name, "u8").items()} | stored("w", Constant((4, 4, 1, 1)))
    values |= {"flat": ints(-1), "first": ints(0), "one": ints(1)}
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear(w_q, w_s, w_z) m = {call} {BACK[behind]} {pair("t", "y")}"""
    found = node_of(inspected(model_of("(float[1,4,6,6] x) => (float y)", body, values, opset=opset), tmp_path), "m")
    is_moved = behind not in ("Gather", "Flatten")
    assert found.runs is (Runs.INTEGER if is_moved else Runs.FLOAT)
    assert not is_moved or found.causes == ()


@pytest.mark.parametrize(
    ("call", "weight", "constant", "kernel"),
    [
        ("MatMul(x_d, w_t)", "Transpose(@)", Constant((8, 8)), "QLinearMatMul"),
        ("Gemm(x_d, w_t)", "Transpose(@)", Constant((8, 8)), "QGemm"),
        ("Gemm(x_d, w_t)", "Transpose(@)", Constant((8, 8), axis=0), "QGemm"),
        ("MatMul(x_d, w_t)", "Reshape(@, square)", Constant((4, 16)), None),
        ("Gemm(x_d, w_t)", "Reshape(@, square)", Constant((4, 16)), None),
        ("Add(x_d, w_t)", "Transpose(@)", Constant((8, 8), "u8"), "QLinearAdd"),
        ("Add(x_d, w_t)", "Reshape(@, square)", Constant((4, 16), "u8"), None),
    ],
)
def test_the_dequantizer_of_a_constant_is_moved_past_a_transpose_alone(
    call: str, weight: str, constant: Constant, kernel: str | None, tmp_path: Path
) -> None:
    axis = "" if constant.axis is None else f"<axis={constant.axis}>"
    values = {k: v for name in "xt" for k, v in parameters(name, "u8").items()} | stored("w", constant)
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear{axis}(w_q, w_s, w_z) w_t = {weight.replace("@", "w_d")}
               t = {call} {pair("t", "y")}"""
    model = model_of("(float[8,8] x) => (float y)", body, values | {"square": ints(8, 8)})
    found = inspected(model, tmp_path)
    assert node_of(found).runs is (Runs.INTEGER if kernel else Runs.FLOAT)
    assert node_of(found).is_as_written is bool(kernel)
    assert not kernel or str(node_of(found).kernel).endswith(kernel)
    assert node_of(found, "w_t").is_as_written


@pytest.mark.parametrize(
    ("call", "constant", "kernel"),
    [
        ("MatMul(x, w)", Constant((32, 32), "u8"), "com.microsoft:MatMulNBits"),
        ("MatMul(x, w)", Constant((32, 32), "s8", axis=1), "com.microsoft:MatMulNBits"),
        ("MatMul(x, w)", Constant((32, 32), "s8", axis=0), None),
        ("MatMul(x, w)", Constant((32, 32), "s16"), None),
        ("Gemm(x, w)", Constant((32, 32)), "com.microsoft:MatMulNBits"),
        ("Gemm<transB=1>(x, w)", Constant((32, 32)), None),
    ],
)
def test_a_product_with_a_quantized_weight_alone_runs_as_in_the_table(
    call: str, constant: Constant, kernel: str | None, tmp_path: Path
) -> None:
    model = weight_only(call, "float[4,32] x", constant)
    found = inspected(model, tmp_path)
    assert node_of(found, "y").runs == (Runs.WEIGHT_ONLY if kernel else Runs.FLOAT)
    assert len(found.dequantized) == (0 if kernel else 1)


def weight_only(call: str, given: str, constant: Constant) -> onnx.ModelProto:
    axis = "" if constant.axis is None else f"<axis={constant.axis}>"
    body = f"w_d = DequantizeLinear{axis}(w_q, w_s, w_z) y = {call.replace(', w)', ', w_d)')}"
    return model_of(f"({given}) => (float y)", body, stored("w", constant))


def test_a_conv_with_a_quantized_weight_alone_dequantizes_it_at_every_inference(tmp_path: Path) -> None:
    found = inspected(weight_only("Conv(x, w)", "float[1,4,6,6] x", WEIGHT["w"]), tmp_path)
    assert node_of(found, "y").runs is Runs.FLOAT
    assert [(c.tensor, c.size_bytes, c.readers) for c in found.dequantized] == [("w_q", 4 * 4 * 9, ("y",))]


@pytest.mark.parametrize(
    ("given", "call", "constants", "kernel"),
    [
        ("float[4,8] x", "MatMul(x, w)", {"w": floats(8, 8)}, "com.microsoft:DynamicQuantizeMatMul"),
        ("float[1,4,6,6] x", "Conv(x, w)", {"w": floats(4, 4, 3, 3)}, "ConvInteger"),
        (
            "float[3,1,8] x",
            "LSTM<hidden_size=4>(x, w, r)",
            {"w": floats(1, 16, 8), "r": floats(1, 16, 4)},
            "com.microsoft:DynamicQuantizeLSTM",
        ),
    ],
)
def test_a_dynamically_quantized_operator_runs_as_in_the_table(
    given: str, call: str, constants: dict[str, np.ndarray], kernel: str, tmp_path: Path
) -> None:
    model = model_of(f"({given}) => (float y)", f"y = {call}", dict(constants))
    quantize_dynamic(saved(model, tmp_path / "float.onnx"), tmp_path / "model.onnx", weight_type=QuantType.QInt8)
    found = inspect_model(tmp_path / "model.onnx").inspection
    assert {node.kernel for node in found.nodes if node.runs is Runs.DYNAMIC} >= {kernel}
    assert found.unlike_written == ()


@pytest.mark.parametrize(("level", "is_float"), [(0, True), (1, True), (2, True), (3, True), (4, False)])
def test_of_its_levels_4_alone_rounds(level: int, is_float: bool) -> None:
    """Of MatMulNBits; a session option for what onnxruntime makes of Q/DQ leaves it as it is."""
    model = weight_only_operator(f", accuracy_level={level}")
    options = ort.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "4" if is_float else "0")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = floats(4, 64)
    expected = x @ np.full((64, 32), (6 - 8) * 0.1, np.float32)
    (found,) = session.run(None, {"x": x})
    assert np.allclose(found, expected, rtol=1e-3) is is_float
