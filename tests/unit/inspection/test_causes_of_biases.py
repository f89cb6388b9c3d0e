"""Causes that lie in a bias."""

from pathlib import Path

import pytest

from tests.inspected import causes_in, inspected, node_of
from tests.models import floats, model_of
from tests.qdq import SQUARE, SUMS, pair, parameters, stored


@pytest.mark.parametrize(
    ("bias", "cause"),
    [
        ("e", "input 2 ('e') does not come from a DequantizeLinear"),
        ("wide", "the bias 'wide' is a float constant of more than one dimension"),
    ],
)
def test_a_bias_that_is_not_quantized_is_named(bias: str, cause: str, tmp_path: Path) -> None:
    values = parameters("x", "u8") | parameters("t", "u8") | stored("w", SQUARE["w"]) | {"wide": floats(4, 8)}
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear(w_q, w_s, w_z) e = Exp(b) z = Exp(e)
               t = Gemm(x_d, w_d, {bias}) {pair("t", "y")}"""
    model = model_of("(float[4,8] x, float[8] b) => (float[4,8] y, float[8] z)", body, values)
    assert causes_in(inspected(model, tmp_path)) == {"t": cause}


@pytest.mark.parametrize("activation", ["", "r = Relu(t)"])
def test_a_float_bias_that_becomes_that_of_a_gemm_is_named(activation: str, tmp_path: Path) -> None:
    values = parameters("x", "u8") | stored("w", SQUARE["w"]) | {"b": floats(8)}
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear(w_q, w_s, w_z) m = MatMul(x_d, w_d) t = Add(m, b)
               {activation} y = Exp({"r" if activation else "t"})"""
    found = inspected(model_of("(float[4,8] x) => (float y)", body, values), tmp_path)
    assert causes_in(found) == {
        "m": "onnxruntime makes a Gemm of it and the Add behind it, whose bias is float: quantize the bias to s32 or"
        " the output of the Add"
    }


@pytest.mark.parametrize("bias", ["b", "c_d"])
def test_a_bias_that_is_quantized_by_either_is_none(bias: str, tmp_path: Path) -> None:
    values = parameters("x", "u8") | parameters("t", "u8") | stored("w", SQUARE["w"]) | stored("c", SUMS)
    end = pair("t", "y") if bias == "b" else "y = Exp(t)"
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear(w_q, w_s, w_z) c_d = DequantizeLinear(c_q, c_s, c_z)
               m = MatMul(x_d, w_d) t = Add(m, {bias}) {end}"""
    found = inspected(model_of("(float[4,8] x) => (float y)", body, values | {"b": floats(8)}), tmp_path)
    assert causes_in(found) == {}
    assert node_of(found, "m").kernel == "com.microsoft:QGemm"
