"""Which pairs in a row onnxruntime makes one, beside what it does."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from autoquant.inspection.pairs import merged_pairs
from tests.inspected import graph_of
from tests.models import Array, model_of, op_types, saved
from tests.qdq import Constant, pair, parameters, stored

SIGNATURE = "(float[1,4,6,6] x) => (float y)"
IN_A_ROW = f"{pair('x', 'x_d')} {pair('x_d', 'x_e')} y = Sigmoid(x_e)"
UNLIKE = parameters("x", "u8") | parameters("x_d", "u8", 0.07)

OWN = {"s": np.float32, "z": np.uint8}

MERGED = {
    **{dtype: parameters("x", dtype) | parameters("x_d", dtype, 0.07) for dtype in ("u8", "s8", "u16", "s16")},
    "zero points alone": parameters("x", "u8") | parameters("x_d", "u8", zero_point=100),
    "lists of one": {name: np.atleast_1d(np.asarray(value, OWN[name[-1]])) for name, value in UNLIKE.items()},
}
"""Parameters of two pairs in a row."""

KEPT: Mapping[str, tuple[str, str, Mapping[str, Array | float]]] = {
    "two types": (SIGNATURE, IN_A_ROW, parameters("x", "u8") | parameters("x_d", "u16", 0.07)),
    "an integer input": (
        "(uint8[1,4,6,6] x) => (float y)",
        f"x_d = DequantizeLinear(x, x_s, x_z) {pair('x_d', 'x_e')} y = Sigmoid(x_e)",
        UNLIKE,
    ),
    "an integer operator": (
        SIGNATURE,
        "x_q = QuantizeLinear(x, x_s, x_z) c = QLinearConv(x_q, x_s, x_z, w_q, w_s, w_z, x_s, x_z)"
        f" x_d = DequantizeLinear(c, x_s, x_z) {pair('x_d', 'x_e')} y = Sigmoid(x_e)",
        UNLIKE | stored("w", Constant((4, 4, 3, 3))),
    ),
    "the first DQ has another reader": (
        f"{SIGNATURE[:-1]}, float z)",
        f"{IN_A_ROW} z = Sin(x_d)",
        UNLIKE,
    ),
    "the first Q has another reader": (
        f"{SIGNATURE[:-1]}, float z)",
        f"{IN_A_ROW} z_d = DequantizeLinear(x_q, x_s, x_z) z = Sin(z_d)",
        UNLIKE,
    ),
    "the first DQ is an output": (f"{SIGNATURE[:-1]}, float x_d)", IN_A_ROW, UNLIKE),
    "the second Q is an output": (f"{SIGNATURE[:-1]}, uint8 x_d_q)", IN_A_ROW, UNLIKE),
    "the second Q is read by no DQ": (
        SIGNATURE,
        f"{pair('x', 'x_d')} x_d_q = QuantizeLinear(x_d, x_d_s, x_d_z) r = Reshape(x_d_q, shape)"
        " x_e = DequantizeLinear(r, x_d_s, x_d_z) y = Sigmoid(x_e)",
        UNLIKE | {"shape": np.array([1, 144])},
    ),
    "the second Q has another DQ": (
        f"{SIGNATURE[:-1]}, float z)",
        f"{IN_A_ROW} z_d = DequantizeLinear(x_d_q, x_s, x_d_z) z = Sin(z_d)",
        UNLIKE,
    ),
    "a scale that is an input": (
        "(float[1,4,6,6] x, float x_d_s) => (float y)",
        IN_A_ROW,
        {name: value for name, value in UNLIKE.items() if name != "x_d_s"},
    ),
    "scales of channels": (
        SIGNATURE,
        IN_A_ROW,
        UNLIKE | {"x_d_s": np.full(4, 0.07, np.float32), "x_d_z": np.full(4, 128, np.uint8)},
    ),
    "no zero points": (
        SIGNATURE,
        "x_q = QuantizeLinear(x, x_s) x_d = DequantizeLinear(x_q, x_s)"
        " x_d_q = QuantizeLinear(x_d, x_d_s) x_e = DequantizeLinear(x_d_q, x_d_s) y = Sigmoid(x_e)",
        {"x_s": 0.03, "x_d_s": 0.07},
    ),
    "a pair that is none": (
        SIGNATURE,
        f"x_q = QuantizeLinear(x, x_s, x_z) x_d = DequantizeLinear(x_q, s, x_z) {pair('x_d', 'x_e')} y = Sigmoid(x_e)",
        UNLIKE | {"s": 0.05},
    ),
}
"""Signature, nodes and constants."""


def found_in(model: onnx.ModelProto) -> list[str]:
    return [node.name for node in merged_pairs(graph_of(model))]


def n_quantizers(model: onnx.ModelProto, folder: Path) -> tuple[int, int]:
    """As written, and as onnxruntime runs it."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    ort.InferenceSession(str(saved(model, folder / "model.onnx")), options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(folder / "optimized.onnx")
    return op_types(model).count("QuantizeLinear"), op_types(optimized).count("QuantizeLinear")


@pytest.mark.parametrize("constants", MERGED.values(), ids=MERGED)
def test_two_pairs_in_a_row_are_merged(constants: Mapping[str, Array | float], tmp_path: Path) -> None:
    model = model_of(SIGNATURE, IN_A_ROW, constants)
    assert found_in(model) == ["x_d_q"]
    assert n_quantizers(model, tmp_path) == (2, 1)


def test_identities_between_them_and_several_readers_behind_them_do_not_matter(tmp_path: Path) -> None:
    body = f"{pair('x', 'h')} x_d = Identity(h) {pair('x_d', 'x_e')} y = Sigmoid(x_e)"
    model = model_of(
        f"{SIGNATURE[:-1]}, float z)", f"{body} z_d = DequantizeLinear(x_d_q, x_d_s, x_d_z) z = Sin(z_d)", UNLIKE
    )
    assert found_in(model) == ["x_d_q"]
    assert n_quantizers(model, tmp_path) == (2, 1)


@pytest.mark.parametrize(("signature", "body", "constants"), KEPT.values(), ids=KEPT)
def test_what_has_other_readers_or_parameters_is_kept(
    signature: str, body: str, constants: Mapping[str, Array | float], tmp_path: Path
) -> None:
    model = model_of(signature, body, constants)
    assert found_in(model) == []
    assert n_quantizers(model, tmp_path) == (op_types(model).count("QuantizeLinear"),) * 2
