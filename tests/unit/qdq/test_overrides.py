import json
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

from autoquant.domain.scheme import Scheme
from autoquant.qdq.overrides import op_types_with_float_outputs, tensor_quant_overrides
from tests.graphs import U8S8_CHANNEL, U8S8_TENSOR, U16S8, Case, case_of, models, scheme
from tests.models import floats, model_of

SQUARE = "float[4,4]"


def overrides(case: Case, **mix: Scheme | None) -> dict[str, list[dict[str, Any]]]:
    ours = case.quantized(U8S8_CHANNEL, mix)
    return dict(tensor_quant_overrides(ours.plan, ours.builder.planner))


def test_activations_have_numbers_and_weights_have_formats() -> None:
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", "a = MatMul(x, w) y = Sigmoid(a)", {"w": floats(4, 4)}))
    found = overrides(case)
    assert set(found) == {"x", "a", "y", "w"}
    assert found["w"] == [{"quant_type": "QInt8", "symmetric": True, "axis": 1}]
    (y,) = found["y"]
    assert y["quant_type"] == "QUInt8"
    assert isinstance(y["scale"], float)
    assert isinstance(y["zero_point"], int)


def test_a_weight_with_one_scale_names_no_axis() -> None:
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", "y = MatMul(x, w)", {"w": floats(4, 4)}))
    assert overrides(case, y=U8S8_TENSOR)["w"] == [{"quant_type": "QInt8", "symmetric": True}]


def test_powers_of_two_are_numbers_for_each_channel() -> None:
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", "y = MatMul(x, w)", {"w": floats(4, 4)}))
    found = overrides(case, y=scheme("u8:tensor:asym:pow2", "s8:channel:sym:pow2"))
    assert len(found["w"]) == 4
    for channel in found["w"]:
        assert channel.items() >= {"quant_type": "QInt8", "axis": 1, "zero_point": 0}.items()
        assert np.frexp(channel["scale"])[0] == 0.5


def test_a_constant_operand_has_the_format_of_activations() -> None:
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", "y = Add(x, c)", {"c": floats(4)}))
    assert overrides(case)["c"] == [{"quant_type": "QUInt8", "symmetric": False}]


def test_a_conversion_names_its_receivers() -> None:
    body = "a = Sigmoid(x) y = Sigmoid(a) z = Sigmoid(a)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y, {SQUARE} z)", body))
    (a,) = overrides(case, z=U16S8)["a"]
    assert a["quant_type"] == "QUInt8"
    assert a["convert"]["quant_type"] == "QUInt16"
    assert a["convert"]["recv_nodes"] == ["z"]


def test_a_pad_that_writes_a_converted_tensor_as_its_value_is_no_receiver() -> None:
    body = "v = Sigmoid(s) y = Pad(x, pads, v) z = Sigmoid(v)"
    signature = f"({SQUARE} x, float s) => (float[6,6] y, float z)"
    model = model_of(signature, body, {"pads": np.array([1, 1, 1, 1])})
    case = case_of(model, {"x": floats(4, 4), "s": np.array(0.5, np.float32)})
    case = replace(case, op_types=case.op_types | {"Pad"})
    (v,) = overrides(case, y=U16S8, z=scheme("s8:tensor:sym", "s8:tensor:sym"))["v"]
    assert v["convert"]["recv_nodes"] == ["z"]
    (v,) = overrides(case, y=U16S8, z=U16S8)["v"]
    assert v["convert"]["recv_nodes"] == ["z"]


def test_both_sides_of_a_relu_that_stays_have_the_same_numbers() -> None:
    body = "a = MatMul(x, w) b = Relu(a) y = Sigmoid(b) z = Sigmoid(b)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y, {SQUARE} z)", body, {"w": floats(4, 4)}))
    found = overrides(case, z=U16S8)
    assert found["a"] == [{key: value for key, value in found["b"][0].items() if key != "convert"}]
    assert "a" not in overrides(case)


def test_a_third_type_is_left_out() -> None:
    body = "a = Sigmoid(x) p = Sigmoid(a) q = Sigmoid(a) r = Sigmoid(a)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} p, {SQUARE} q, {SQUARE} r)", body))
    (a,) = overrides(case, q=U16S8, r=scheme("s8:tensor:sym", "s8:tensor:sym"))["a"]
    assert a["convert"]["recv_nodes"] == ["q"]


@settings(max_examples=20)
@given(models())
def test_overrides_are_json_and_name_tensors_of_the_float_model(model: onnx.ModelProto) -> None:
    case = case_of(model)
    found = overrides(case)
    assert json.loads(json.dumps(found)) == found
    assert all(name in case.extremes or case.graph.is_constant(name) for name in found)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Gemm(x, w)", {"Gemm"}),
        ("a = MatMul(x, w) y = MatMul(a, a)", None),
        ("a = Conv(x, w) y = MatMul(a, a)", {"MatMul"}),
        ("y = MatMul(x, w)", set()),
        ("a = Gemm(x, w) b = Relu(a) y = Sigmoid(b)", set()),
        ("a = Gemm(x, w) y = Gemm(a, w)", None),
    ],
)
def test_operator_types_that_write_floats_are_named_unless_some_write_integers(
    body: str, expected: set[str] | None
) -> None:
    square = "float[1,4,4,4]" if "Conv" in body else SQUARE
    weight = floats(4, 4, 1, 1) if "Conv" in body else floats(4, 4)
    case = case_of(model_of(f"({square} x) => ({square} y)", body, {"w": weight}))
    assert op_types_with_float_outputs(case.quantized(U8S8_CHANNEL).plan, case.graph) == expected


def test_a_float_model_has_no_overrides() -> None:
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", "y = Sigmoid(x)"))
    assert overrides(case, y=None) == {}
