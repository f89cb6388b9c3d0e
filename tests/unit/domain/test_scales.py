import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoquant.domain.scales import next_power_of_two, scale_of
from autoquant.domain.scheme import DType, TensorFormat

formats = st.builds(TensorFormat, dtype=st.sampled_from(DType), symmetric=st.booleans(), power_of_two=st.just(True))
ends = st.floats(0, 2.0**80, width=32)


def fits(low: float, high: float, scale: float, tensor_format: TensorFormat) -> bool:
    """Whether both ends, rounded to the grid, are stored integers."""
    lowest, highest = tensor_format.integer_range()
    zero_point = round((lowest + highest) / 2) if tensor_format.symmetric else round(lowest - low / scale)
    stored = (round(end / scale) + zero_point for end in (low, high))
    return all(tensor_format.dtype.lowest <= integer <= tensor_format.dtype.highest for integer in stored)


@given(ends, ends, formats)
def test_a_power_of_two_is_the_smallest_one_that_clips_nothing(
    below: float, above: float, tensor_format: TensorFormat
) -> None:
    low, high = (-max(below, above), max(below, above)) if tensor_format.symmetric else (-below, above)
    assume(high - low > 2.0**-80)
    scale = float(scale_of(np.array(low), np.array(high), tensor_format))
    lowest, highest = tensor_format.integer_range()
    assert np.frexp(scale)[0] == 0.5
    assert fits(low, high, scale, tensor_format)
    assert not fits(low, high, scale / 2, tensor_format) or (high - low) / (scale / 2) > highest - lowest


@pytest.mark.parametrize(
    ("low", "high", "text", "scale"),
    [
        (0, 255, "u8:tensor:asym:pow2", 1),
        (0, 255.5, "u8:tensor:asym:pow2", 2),
        (0, 6, "u8:tensor:asym:pow2", 2**-5),
        (-0.4, 254.6, "u8:tensor:asym:pow2", 1),
        (-0.5, 254.5, "u8:tensor:asym:pow2", 1),
        (-1.5, 253.5, "u8:tensor:asym:pow2", 2),
        (-127, 127, "s8:tensor:sym:pow2", 1),
        (-127.5, 127.5, "u8:tensor:sym:pow2", 2),
        (-1, 3, "u16:tensor:asym:pow2", 2**-13),
        (0, 0, "u8:tensor:asym:pow2", 0),
        (0, 6, "u8:tensor:asym", 6 / 255),
    ],
)
def test_a_range_has_this_scale(low: float, high: float, text: str, scale: float) -> None:
    assert scale_of(np.array(low), np.array(high), TensorFormat.parse(text)) == scale


def test_ranges_are_taken_one_by_one() -> None:
    found = scale_of(np.array([[0.0], [-1.0]]), np.array([1.0, 2.0]), TensorFormat.parse("u8:tensor:asym:pow2"))
    np.testing.assert_array_equal(found, [[2.0**-7, 2.0**-6], [2.0**-6, 2.0**-6]])


@given(st.floats(2.0**-120, 2.0**120, width=32))
def test_the_next_power_of_two_is_less_than_twice_the_value(value: float) -> None:
    found = next_power_of_two(np.array([value], np.float32))
    assert found.dtype == np.float32
    assert value <= found[0] < 2 * value
    assert np.frexp(found[0])[0] == 0.5
