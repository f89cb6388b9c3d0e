"""Constants of other shapes than what a linear operator reads or writes has, which are not folded."""

import numpy as np
import numpy.typing as npt
import pytest

from autoquant.rewrites.affine import fold_affine
from tests.models import floats, model_of, op_types


@pytest.mark.parametrize(
    ("size", "body", "expected"),
    [
        ("1,1,6,6", "a = Sub(x, wide) y = Conv(a, w)", ["Sub", "Conv"]),
        ("1,1,6,6", "s = Mul(x, half) a = Add(s, wide) y = Conv(a, w)", ["Mul", "Add", "Conv"]),
        ("2,1", "a = Mul(x, row) y = Gemm(a, v)", ["Mul", "Gemm"]),
        ("2,C", "a = Mul(x, row) y = Gemm(a, v)", ["Mul", "Gemm"]),
    ],
)
def test_a_constant_with_more_channels_than_what_it_is_for_stays(size: str, body: str, expected: list[str]) -> None:
    constants: dict[str, npt.NDArray[np.generic] | float] = {
        "wide": floats(1, 3, 1, 1),
        "half": 0.5,
        "w": floats(4, 3, 1, 1),
        "row": floats(1, 3),
        "v": floats(3, 4),
    }
    model = model_of(f"(float[{size}] x) => (float[] y)", body, constants)
    assert op_types(fold_affine(model)) == expected


def test_a_normalisation_of_every_place_stays() -> None:
    body = "a = Conv(x, w) y = BatchNormalization<spatial=0>(a, s, s, s, s)"
    constants = {"w": floats(3, 3, 1, 1), "s": floats(3, 4, 4) ** 2}
    model = model_of("(float[1,3,4,4] x) => (float[1,3,4,4] y)", body, constants, opset=7)
    assert fold_affine(model) is model
