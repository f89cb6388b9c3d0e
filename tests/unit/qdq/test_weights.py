import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType, Rounding, TensorFormat
from autoquant.model.graph import Graph
from autoquant.qdq.ports import Rounder
from autoquant.qdq.weights import Weights, quantize_bias
from tests.models import floats, model_of

Floats = npt.NDArray[np.float32]
W = TensorName("w")
PER_TENSOR, PER_CHANNEL, UNSIGNED = (
    TensorFormat.parse(text) for text in ("s8:tensor:sym", "s8:channel:sym", "u8:tensor:asym")
)
INT32 = np.iinfo(np.int32)


def weights_of(weight: Floats, rounder: Rounder | None = None) -> Weights:
    return Weights(Graph(model_of("(float[2,4] x) => (float[2,N] y)", "y = MatMul(x, w)", {"w": weight})), rounder)


class ARounder:
    """Gives the same integers for every weight, on scales so many times the given ones; notes what it is asked."""

    def __init__(self, integers: npt.NDArray[np.generic] | None, factor: npt.ArrayLike = 1.0) -> None:
        self.integers, self.factor = integers, np.asarray(factor, np.float32)
        self.asked: list[tuple[TensorName, tuple[int, ...], DType, Rounding]] = []

    def __call__(
        self,
        weight: TensorName,
        scale: Floats,
        zero_point: npt.NDArray[np.generic],
        dtype: DType,
        rounding: Rounding,
    ) -> tuple[npt.NDArray[np.generic], Floats] | None:
        assert zero_point.shape == scale.shape
        self.asked.append((weight, scale.shape, dtype, rounding))
        return None if self.integers is None else (self.integers, np.asarray(scale * self.factor))


def test_a_weight_is_quantized_once_in_each_format() -> None:
    weights = weights_of(floats(4, 4))
    assert weights.weight(W, PER_TENSOR, 1) is weights.weight(W, PER_TENSOR, 0)
    assert weights.weight(W, PER_CHANNEL, 1) is weights.weight(W, PER_CHANNEL, 1)
    labels = [weights.weight(W, f, axis).label for f, axis in [(PER_TENSOR, 1), (PER_CHANNEL, 1), (PER_CHANNEL, 0)]]
    assert labels == ["s8:tensor:sym", "s8:channel:sym:axis-1", "s8:channel:sym:axis-0"]


def test_without_a_channel_axis_a_weight_has_one_scale() -> None:
    found = weights_of(floats(4, 3)).weight(W, PER_CHANNEL, None)
    assert found.params.scale.shape == ()
    assert found.axis is None


def test_an_unknown_weight_is_an_error() -> None:
    with pytest.raises(KeyError, match="none"):
        weights_of(floats(4, 3)).weight(TensorName("none"), PER_TENSOR, None)


@pytest.mark.parametrize("tensor_format", [PER_TENSOR, PER_CHANNEL, UNSIGNED], ids=str)
def test_a_bias_too_large_for_int32_gets_a_larger_weight_scale(tensor_format: TensorFormat) -> None:
    bias, input_scale = np.array([5, -4.5], np.float32), np.float32(0.5)
    weight = np.full((4, 2), 7.843e-10 * 127, np.float32)
    found = weights_of(weight).weight(W, tensor_format, 1, bias=bias, input_scale=input_scale)
    quantized = quantize_bias(bias, input_scale, found.params.scale)
    np.testing.assert_allclose(quantized.values * quantized.scale.astype(np.float64), bias, rtol=1e-6)
    assert np.abs(quantized.values.astype(np.int64)).max() < INT32.max / 2  # products have the other half


@pytest.mark.parametrize("dead", [0.0, 1e-40])
def test_the_bias_of_a_channel_of_zeros_is_as_fine_as_those_of_the_others(dead: float) -> None:
    weight, bias = floats(4, 3), np.array([0.4, -0.3, 0.2], np.float32)
    weight[:, 1] = dead
    found = weights_of(weight).weight(W, PER_CHANNEL, 1, bias=bias, input_scale=np.float32(1.0))
    quantized = quantize_bias(bias, np.float32(1.0), found.params.scale)
    np.testing.assert_allclose(quantized.values * quantized.scale, bias, atol=0.01)
    assert not found.values[:, 1].any()


@pytest.mark.parametrize("dead", [0.0, 1e-40])
@pytest.mark.parametrize("text", ["s8:tensor:sym", "s8:channel:sym", "u8:tensor:asym", "s8:tensor:sym:pow2"])
def test_the_bias_of_weights_that_are_all_zeros_is_as_fine_as_it_can_be(text: str, dead: float) -> None:
    tensor_format, input_scale = TensorFormat.parse(text), np.float32(20 / 255)
    bias = np.array([0.03, -0.3, 1e-3], np.float32)
    weights = weights_of(np.full((4, 3), dead, np.float32))
    found, plain = (
        weights.weight(W, tensor_format, 1, bias=bias, input_scale=input_scale),
        weights.weight(W, tensor_format, 1),
    )
    quantized = quantize_bias(bias, input_scale, found.params.scale)
    np.testing.assert_allclose(quantized.values * quantized.scale, bias, rtol=1e-5)
    assert np.abs(quantized.values.astype(np.int64)).max() < INT32.max / 2
    np.testing.assert_array_equal(found.values, plain.values)
    np.testing.assert_array_equal(found.params.zero_point, plain.params.zero_point)
    assert not tensor_format.power_of_two or (np.frexp(found.params.scale)[0] == 0.5).all()


@pytest.mark.parametrize("tensor_format", [PER_TENSOR, PER_CHANNEL], ids=str)
def test_weights_that_are_all_zeros_beside_a_bias_of_zeros_are_as_they_are(tensor_format: TensorFormat) -> None:
    weights = weights_of(np.zeros((4, 3), np.float32))
    found = weights.weight(W, tensor_format, 1, bias=np.zeros(3, np.float32), input_scale=np.float32(1))
    assert found is weights.weight(W, tensor_format, 1)
    np.testing.assert_array_equal(found.params.scale, 1)


def test_a_power_of_two_that_is_widened_for_a_bias_stays_one() -> None:
    bias, input_scale = np.array([5, -4.5], np.float32), np.float32(0.5)
    weight = np.full((4, 2), 7.843e-10 * 127, np.float32)
    powers = TensorFormat.parse("s8:channel:sym:pow2")
    found = weights_of(weight).weight(W, powers, 1, bias=bias, input_scale=input_scale)
    assert (found.params.scale > weights_of(weight).weight(W, powers, 1).params.scale).all()
    assert (np.frexp(found.params.scale)[0] == 0.5).all()


def test_only_the_channels_whose_bias_overflows_are_widened() -> None:
    weight = np.array([[1e-7, 1e-7]] * 4, np.float32)
    weights = weights_of(weight)
    plain = weights.weight(W, PER_CHANNEL, 1)
    found = weights.weight(W, PER_CHANNEL, 1, bias=np.array([5, 0], np.float32), input_scale=np.float32(0.5))
    assert found.params.scale[0] > plain.params.scale[0]
    assert found.params.scale[1] == plain.params.scale[1]


def test_the_label_of_a_widened_weight_does_not_depend_on_what_was_asked_before() -> None:
    weight, bias = np.full((4, 2), 1e-7, np.float32), np.array([5, -4.5], np.float32)
    fresh, used = weights_of(weight), weights_of(weight)
    used.weight(W, UNSIGNED, None)
    used.weight(W, PER_CHANNEL, 1, bias=bias * 2, input_scale=np.float32(0.5))
    labels = {each.weight(W, PER_CHANNEL, 1, bias=bias, input_scale=np.float32(0.5)).label for each in (fresh, used)}
    other = used.weight(W, PER_CHANNEL, 1, bias=bias * 2, input_scale=np.float32(0.5)).label
    assert len(labels) == 1
    assert other not in labels


def test_a_bias_that_fits_leaves_the_weight_as_it_is() -> None:
    weights = weights_of(floats(4, 4))
    found = weights.weight(W, PER_CHANNEL, 1, bias=floats(4), input_scale=np.float32(0.1))
    assert found is weights.weight(W, PER_CHANNEL, 1)


def test_a_rounder_is_asked_once_a_format_and_only_where_the_scheme_says_so() -> None:
    rounder = ARounder(np.ones((4, 4), np.int8))
    weights = weights_of(floats(4, 4), rounder)
    nearest = weights.weight(W, PER_CHANNEL, 1)
    assert rounder.asked == []
    found = weights.weight(W, PER_CHANNEL, 1, rounding=Rounding.GPTQ)
    assert found is weights.weight(W, PER_CHANNEL, 1, rounding=Rounding.GPTQ)
    np.testing.assert_array_equal(found.params.scale, nearest.params.scale)
    np.testing.assert_array_equal(found.values, 1)
    weights.weight(W, UNSIGNED, 1, rounding=Rounding.GPTQ)
    weights.weight(W, UNSIGNED, 1, rounding=Rounding.ADAROUND)
    assert rounder.asked == [
        ("w", (4,), DType.S8, Rounding.GPTQ),
        ("w", (), DType.U8, Rounding.GPTQ),
        ("w", (), DType.U8, Rounding.ADAROUND),
    ]
    assert weights.weight(W, PER_CHANNEL, 1) is nearest


def test_the_label_of_rounded_weights_follows_their_integers() -> None:
    one, two = (weights_of(floats(4, 4), ARounder(np.full((4, 4), n, np.int8))) for n in (1, 2))
    labels = [each.weight(W, PER_TENSOR, None, rounding=Rounding.GPTQ).label for each in (one, one, two)]
    assert labels[0] == labels[1] != labels[2]
    assert labels[0].startswith("s8:tensor:sym:gptq-")


def test_channels_with_a_larger_scale_for_their_bias_keep_the_nearest_integers() -> None:
    weight = np.array([[1e-7, 1e-7]] * 4, np.float32)
    bias, input_scale = np.array([5, 0], np.float32), np.float32(0.5)
    weights = weights_of(weight, ARounder(np.full((4, 2), 3, np.int8)))
    nearest = weights.weight(W, PER_CHANNEL, 1, bias=bias, input_scale=input_scale)
    found = weights.weight(W, PER_CHANNEL, 1, bias=bias, input_scale=input_scale, rounding=Rounding.GPTQ)
    np.testing.assert_array_equal(found.values[:, 0], nearest.values[:, 0])
    np.testing.assert_array_equal(found.values[:, 1], 3)
    per_tensor = weights.weight(W, UNSIGNED, 1, bias=bias, input_scale=input_scale)
    assert weights.weight(W, UNSIGNED, 1, bias=bias, input_scale=input_scale, rounding=Rounding.GPTQ) is per_tensor


@pytest.mark.parametrize("tensor_format", [PER_TENSOR, PER_CHANNEL], ids=str)
def test_learned_scales_are_those_of_the_weight_and_of_its_label(tensor_format: TensorFormat) -> None:
    integers = np.full((4, 4), 3, np.int8)
    found = [
        weights_of(floats(4, 4), ARounder(integers, factor)).weight(W, tensor_format, 1, rounding=Rounding.ADAQUANT)
        for factor in (1.0, 1.25)
    ]
    np.testing.assert_array_equal(found[1].values, integers)
    np.testing.assert_array_equal(found[1].params.scale, found[0].params.scale * np.float32(1.25))
    assert found[0].label != found[1].label
    assert found[1].label.startswith(f"{weights_of(floats(4, 4)).weight(W, tensor_format, 1).label}:adaquant-")


def test_channels_whose_bias_overflows_on_the_learned_scale_keep_the_nearest_integers_and_their_scale() -> None:
    bias, input_scale = np.array([1.5, 0], np.float32), np.float32(0.5)
    weight = np.full((4, 2), 4.8e-7, np.float32)  # the bias needs 2.8e-9 a step; it is 3.8e-9
    nearest = weights_of(weight).weight(W, PER_CHANNEL, 1, bias=bias, input_scale=input_scale)
    np.testing.assert_array_equal(nearest.params.scale, weights_of(weight).weight(W, PER_CHANNEL, 1).params.scale)
    weights = weights_of(weight, ARounder(np.full((4, 2), 100, np.int8), 0.5))
    found = weights.weight(W, PER_CHANNEL, 1, bias=bias, input_scale=input_scale, rounding=Rounding.ADAQUANT)
    np.testing.assert_array_equal(found.params.scale, nearest.params.scale * np.array([1, 0.5], np.float32))
    np.testing.assert_array_equal(found.values[:, 0], nearest.values[:, 0])
    np.testing.assert_array_equal(found.values[:, 1], 100)


def test_integers_that_are_the_nearest_ones_are_no_variant() -> None:
    plain = weights_of(floats(4, 4)).weight(W, PER_TENSOR, None)
    for integers in (None, plain.values):
        weights = weights_of(floats(4, 4), ARounder(integers))
        nearest = weights.weight(W, PER_TENSOR, None)
        assert weights.weight(W, PER_TENSOR, None, rounding=Rounding.GPTQ) is nearest


scales = st.floats(2.0**-100, 2.0**60, width=32)


@given(
    hnp.arrays(np.float32, 3, elements=st.floats(-1e6, 1e6, width=32)),
    scales,
    hnp.arrays(np.float32, 3, elements=scales),
)
def test_a_quantized_bias_is_within_half_a_scale_unless_it_exceeds_int32(
    bias: Floats, input_scale: float, weight_scale: Floats
) -> None:
    with np.errstate(over="ignore", under="ignore"):
        found = quantize_bias(bias, np.float32(input_scale), weight_scale)
        expected = np.float32(input_scale) * weight_scale
    assert found.values.dtype == np.int32
    np.testing.assert_array_equal(found.scale, expected)
    scale = found.scale.astype(np.float64)
    inside = (np.abs(bias) < scale * INT32.max) & np.isfinite(scale)
    back = found.values[inside] * scale[inside]
    assert (np.abs(back - bias[inside]) <= scale[inside] * 0.5000001).all()


def test_a_bias_beyond_int32_is_clipped() -> None:
    found = quantize_bias(np.array([1, -1], np.float32), np.float32(1e-6), np.array(1e-6, np.float32))
    assert found.values.tolist() == [INT32.max, INT32.min]


def test_a_scale_that_underflows_to_zero_makes_a_bias_of_zeros() -> None:
    with np.errstate(under="ignore"):
        found = quantize_bias(np.array([1, 0], np.float32), np.float32(1e-30), np.array(1e-30, np.float32))
    assert found.scale == 0
    assert found.values.tolist() == [0, 0]


def test_scales_that_are_powers_of_two_stay_so_where_integers_are_chosen() -> None:
    power_of_two, rounder = TensorFormat.parse("s8:channel:sym:pow2"), ARounder(np.ones((4, 4), np.int8))
    found = weights_of(floats(4, 4), rounder).weight(W, power_of_two, 1, rounding=Rounding.GPTQ)
    np.testing.assert_array_equal(np.frexp(found.params.scale)[0], np.float32(0.5))
