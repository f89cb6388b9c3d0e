"""GRUs of a single step."""

import numpy as np
import onnx
import pytest

from autoquant.rewrites.gru_step import multiply_step
from tests.models import Array, floats, model_of, op_types
from tests.rewriting import rewritten

N_READ, N_KEPT = 300, 320
CONSTANTS: dict[str, Array] = {
    "w": floats(1, 3 * N_KEPT, N_READ) / 16,
    "r": floats(1, 3 * N_KEPT, N_KEPT, seed=1) / 16,
    "b": floats(1, 6 * N_KEPT, seed=2) / 4,
    "zeros": np.zeros((1, 1, N_KEPT), np.float32),
    "lengths": np.ones(1, np.int32),
}


def a_model(
    *,
    inputs: str = "x, w, r, b, , h",
    outputs: str = "y, last",
    attributes: str = "",
    steps: int = 1,
    rows: int = 1,
    opset: int = 17,
) -> onnx.ModelProto:
    given = f"float[{steps},{rows},{N_READ}] x, float[1,{rows},{N_KEPT}] h"
    shapes = {"y": f"{steps},1,{rows},{N_KEPT}", "last": f"1,{rows},{N_KEPT}"}
    written = ", ".join(f"float[{shape}] {name}" for name, shape in shapes.items() if name in outputs)
    body = f"{outputs} = GRU<hidden_size={N_KEPT} {attributes}>({inputs})"
    constants = {name: value for name, value in CONSTANTS.items() if name in inputs.replace(" ", "").split(",")}
    return model_of(f"({given}) => ({written})", body, constants, opset=opset)


def found_in(model: onnx.ModelProto) -> onnx.ModelProto:
    return rewritten(multiply_step, model, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("reset", "n_products"), [("", 3), (", linear_before_reset=1", 2)])
@pytest.mark.parametrize("inputs", ["x, w, r, b, , h", "x, w, r, , , h"])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_gru_of_one_step_becomes_products(reset: str, n_products: int, inputs: str, rows: int) -> None:
    found = found_in(a_model(inputs=inputs, attributes=reset, rows=rows))
    assert "GRU" not in op_types(found)
    assert op_types(found).count("Gemm") == n_products


@pytest.mark.parametrize("outputs", ["y", ", last"])
def test_of_what_is_written_either_may_be_missing(outputs: str) -> None:
    assert "GRU" not in op_types(found_in(a_model(outputs=outputs)))


@pytest.mark.parametrize(
    "others",
    [
        {"steps": 2},
        {"inputs": "x, w, r, b"},
        {"inputs": "x, w, r, b, , zeros"},
        {"inputs": "x, w, r, b, lengths, h"},
        {"attributes": ', direction="reverse"'},
        {"attributes": ", clip=2.0"},
        {"attributes": ', activations=["HardSigmoid", "Tanh"]'},
        {"opset": 12},
    ],
)
def test_others_stay(others: dict[str, str | int]) -> None:
    model = a_model(**others)  # type: ignore[arg-type]
    assert multiply_step(model) is model


def test_small_ones_stay() -> None:
    signature = "(float[1,1,8] x, float[1,1,8] h) => (float[1,1,8] y)"
    model = model_of(signature, ", y = GRU<hidden_size=8>(x, w, w, , , h)", {"w": floats(1, 24, 8)})
    assert multiply_step(model) is model
