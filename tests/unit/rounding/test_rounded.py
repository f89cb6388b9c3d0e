import numpy as np
import pytest

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType, Rounding
from autoquant.rounding.problem import Floats
from autoquant.rounding.rounded import RoundedWeights, grid_digest

W = TensorName("w")
GPTQ = Rounding.GPTQ
SCALE, ZERO_POINT = np.array([0.1, 0.2], np.float32), np.zeros(2, np.int8)


def test_integers_are_found_by_weight_and_grid() -> None:
    found = np.ones((2, 3), np.int8), SCALE * np.float32(1.1)
    rounded = RoundedWeights({(W, grid_digest(SCALE, ZERO_POINT, DType.S8, GPTQ)): found})
    assert rounded(W, SCALE.copy(), ZERO_POINT.copy(), DType.S8, GPTQ) is found
    assert rounded(TensorName("v"), SCALE, ZERO_POINT, DType.S8, GPTQ) is None


@pytest.mark.parametrize(
    ("scale", "zero_point", "dtype", "rounding"),
    [
        (SCALE * 2, ZERO_POINT, DType.S8, GPTQ),
        (SCALE, ZERO_POINT + np.int8(1), DType.S8, GPTQ),
        (SCALE, ZERO_POINT, DType.U8, GPTQ),
        (SCALE, ZERO_POINT, DType.S8, Rounding.ADAROUND),
    ],
)
def test_integers_of_another_grid_or_algorithm_are_not_taken(
    scale: Floats, zero_point: np.ndarray, dtype: DType, rounding: Rounding
) -> None:
    found = np.ones((2, 3), np.int8), SCALE
    rounded = RoundedWeights({(W, grid_digest(SCALE, ZERO_POINT, DType.S8, GPTQ)): found})
    assert rounded(W, scale, zero_point, dtype, rounding) is None


def test_one_scale_for_a_tensor_is_another_grid_than_one_for_its_only_channel() -> None:
    channel, tensor = (np.full(shape, 0.1, np.float32) for shape in ((1,), ()))
    zero_points = [np.zeros(scale.shape, np.int8) for scale in (channel, tensor)]
    rounded = RoundedWeights({(W, grid_digest(channel, zero_points[0], DType.S8, GPTQ)): (np.ones((1, 3)), channel)})
    assert rounded(W, tensor, zero_points[1], DType.S8, GPTQ) is None


def test_weights_that_cannot_be_rounded_so_are_named() -> None:
    assert RoundedWeights({}).note is None
    note = RoundedWeights({}, unfit=frozenset({TensorName("v"), TensorName("w")})).note
    assert note is not None
    assert note.startswith("rounding leaves 2 weights at the nearest integers, such as v: no plain matrices")
