"""The whole of one look at a model."""

import platform
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from autoquant import inspect_model
from autoquant.domain.counted import counted
from autoquant.inspection.kernels import Runs
from tests.inspected import inspected, inspected_as_on
from tests.models import (
    Array,
    a_convnet,
    a_quantized_chain,
    floats,
    in_a_function,
    model_of,
    saved,
    weight_only_operator,
)
from tests.qdq import Constant, Wrapped, pair, parameters, stored


def test_kernels_are_counted_by_what_they_compute_on(tmp_path: Path) -> None:
    kernels = inspected(a_quantized_chain(), tmp_path).kernels
    assert kernels[Runs.INTEGER] == {"com.microsoft:QLinearConv": 3}
    assert kernels[Runs.CONVERSION] == {"QuantizeLinear": 1, "DequantizeLinear": 1}
    assert Runs.FLOAT not in kernels


def test_layout_reorders_of_float_and_of_integer_convolutions_are_counted(tmp_path: Path) -> None:
    body = "h = Softmax(x) a = Conv<pads=[1,1,1,1]>(h, w) y = Softmax(a)"
    shape = "float[1,16,8,8]"
    model = model_of(f"({shape} x) => ({shape} y)", body, {"w": floats(16, 16, 3, 3)})
    assert set(inspected(model, tmp_path).kernels[Runs.REORDER]) == {
        "com.microsoft.nchwc:ReorderInput",
        "com.microsoft.nchwc:ReorderOutput",
    }
    integer = Wrapped("Conv(x, w)", {"x": (1, 16, 8, 8)}, {"w": Constant((16, 16, 3, 3))}).model
    assert inspected(integer, tmp_path).kernels[Runs.REORDER] == {"Transpose": 2}


def test_a_transpose_of_the_file_is_no_reorder(tmp_path: Path) -> None:
    model = model_of("(float[2,3] x) => (float[3,2] y)", "e = Exp(x) t = Transpose(e) y = Sin(t)")
    assert Runs.REORDER not in inspected(model, tmp_path).kernels


def test_constants_that_are_dequantized_every_time_are_listed_with_bytes_and_readers(tmp_path: Path) -> None:
    model = Wrapped("Conv(x, w)", {"x": (1, 4, 6, 6)}, {"w": Constant((4, 4, 3, 3))}, activation="u16").model
    (constant,) = inspected(model, tmp_path).dequantized
    assert (constant.tensor, constant.size_bytes, constant.readers) == ("w_q", 144, ("t",))


def test_two_pairs_with_different_parameters_are_remarked_upon(tmp_path: Path) -> None:
    values = parameters("x", "u8") | parameters("x_d", "u8", 0.07) | parameters("t", "u8")
    body = f"{pair('x', 'x_d')} {pair('x_d', 'x_e')} t = Sigmoid(x_e) {pair('t', 'y')}"
    (remark,) = inspected(model_of("(float[4] x) => (float[4] y)", body, values), tmp_path).remarks
    assert remark.text.startswith("two Q/DQ pairs with different parameters in a row")


def test_two_equal_pairs_are_not(tmp_path: Path) -> None:
    values = parameters("x", "u8") | parameters("x_d", "u8") | parameters("t", "u8")
    body = f"{pair('x', 'x_d')} {pair('x_d', 'x_e')} t = Sigmoid(x_e) {pair('t', 'y')}"
    assert inspected(model_of("(float[4] x) => (float[4] y)", body, values), tmp_path).remarks == ()


def test_a_function_that_is_not_inlined_is_remarked_upon(tmp_path: Path) -> None:
    model = in_a_function(a_quantized_chain())
    (remark,) = inspected_as_on(platform.machine(), model, tmp_path).remarks
    n_nodes = len(a_quantized_chain().graph.node)
    assert remark.name == "call"
    assert remark.text.startswith(
        f"what is inside it ({counted(n_nodes, 'node')}) is not inspected: function 'Module' cannot be put"
    )


def test_a_dynamic_convolution_is_remarked_upon(tmp_path: Path) -> None:
    source = saved(a_convnet(), tmp_path / "float.onnx")
    quantize_dynamic(source, tmp_path / "model.onnx", weight_type=QuantType.QUInt8)
    found = inspect_model(tmp_path / "model.onnx").inspection
    texts = [remark.text for remark in found.remarks]
    assert len(texts) == 3
    assert all(text.startswith("ConvInteger is not fused") for text in texts)


@pytest.mark.parametrize(
    ("pool", "is_said"),
    [("p = MaxPool<kernel_shape=[2,2]>(c)", True), ("m = MaxPool<kernel_shape=[2,2]>(c) p = Sum(m)", False)],
)
def test_a_pool_that_runs_on_integers_behind_floats_is_remarked_upon(tmp_path: Path, pool: str, is_said: bool) -> None:
    quantized = "q = QuantizeLinear(p, s, z) d = DequantizeLinear(q, s, z)"
    body = (
        f"c = Conv(x, w) {pool} {quantized} r = LeakyRelu(d) o = QuantizeLinear(r, s, z) y = DequantizeLinear(o, s, z)"
    )
    constants: dict[str, Array | float] = {"w": floats(4, 3, 1, 1), "s": 0.1, "z": np.array(128, np.uint8)}
    model = model_of("(float[1,3,8,8] x) => (float[1,4,7,7] y)", body, constants)
    found = inspect_model(saved(model, tmp_path / "model.onnx")).inspection
    said = [remark.text for remark in found.remarks if remark.text.startswith("runs on integers in a kernel")]
    assert len(said) == is_said


@pytest.mark.parametrize(("pool", "is_said"), [("AveragePool<kernel_shape=[2,2]>", True), ("GlobalAveragePool", False)])
def test_an_average_over_windows_that_runs_on_integers_is_remarked_upon(
    tmp_path: Path, pool: str, is_said: bool
) -> None:
    body = (
        f"q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) p = {pool}(d)"
        " o = QuantizeLinear(p, s, z) y = DequantizeLinear(o, s, z)"
    )
    model = model_of("(float[1,3,8,8] x) => (float[1,3,N,M] y)", body, {"s": 0.1, "z": np.array(128, np.uint8)})
    remarks = inspected(model, tmp_path).remarks
    assert [remark.text.startswith("QLinearAveragePool is slow") for remark in remarks] == [True] * is_said


def test_a_weight_only_kernel_that_rounds_activations_is_remarked_upon(tmp_path: Path) -> None:
    body = "w_d = DequantizeLinear(w_q, w_s, w_z) y = MatMul(x, w_d)"
    model = model_of("(float[4,32] x) => (float[4,32] y)", body, stored("w", Constant((32, 32))))
    (remark,) = inspected(model, tmp_path).remarks
    assert remark.text.startswith("the weight-only kernel rounds activations to 8 bits")


def test_a_bias_in_a_weight_only_kernel_is_not(tmp_path: Path) -> None:
    body = "d = DequantizeLinear<axis=0, block_size=32>(w, s) m = MatMul(x, d) y = Add(m, b)"
    constants: dict[str, Array | float] = {
        "w": np.ones((64, 32), np.int8),
        "s": np.full((2, 32), 0.1, np.float32),
        "b": floats(32),
    }
    found = inspected(model_of("(float[3,64] x) => (float[3,32] y)", body, constants), tmp_path)
    assert [node.fused_into for node in found.nodes] == [None, "m"]
    assert [remark.name for remark in found.remarks] == ["m"]


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        ("", "computes in float (accuracy_level 0), 4 rounds activations to 8 bits and may be faster"),
        (
            ", accuracy_level=1",
            "computes in float (accuracy_level 1), 4 rounds activations to 8 bits and may be faster",
        ),
        (", accuracy_level=4", "rounds activations to 8 bits (accuracy_level 4), 0 computes in float"),
    ],
)
def test_a_weight_only_operator_of_the_file_is_remarked_upon_with_its_level(
    attribute: str, text: str, tmp_path: Path
) -> None:
    (remark,) = inspected(weight_only_operator(attribute), tmp_path).remarks
    assert remark.text == f"the weight-only kernel {text}"


def test_scales_in_constant_nodes_are_read(tmp_path: Path) -> None:
    model = Wrapped("Sigmoid(x)", {"x": (4,)}, activation="u8").model
    for tensor in list(model.graph.initializer):
        model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], f"n_{tensor.name}", value=tensor))
        model.graph.initializer.remove(tensor)
    found = inspected(model, tmp_path)
    assert [(node.op_type, node.runs) for node in found.nodes] == [("Sigmoid", Runs.INTEGER)]


def test_an_integer_image_is_not_taken_for_a_quantized_tensor(tmp_path: Path) -> None:
    model = model_of("(uint8[1,4] x) => (float[4] y)", "s = Squeeze(x, a) y = Cast<to=1>(s)", {"a": np.array([0])})
    assert Runs.INTEGER not in inspected(model, tmp_path).kernels
