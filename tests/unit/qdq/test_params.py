import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnxruntime.quantization import QuantType
from onnxruntime.quantization.quant_utils import compute_scale_zp, get_qmin_qmax_for_qType, quantize_nparray

from autoquant.domain.scheme import DType, TensorFormat
from autoquant.domain.statistics import CalibrationRange
from autoquant.qdq.params import activation_params, block_params, dequantize, quantize, weight_params
from tests.graphs import run
from tests.inspected import FROM_1_31
from tests.models import model_of

TYPES = {
    DType.U8: QuantType.QUInt8,
    DType.S8: QuantType.QInt8,
    DType.U16: QuantType.QUInt16,
    DType.S16: QuantType.QInt16,
}
Floats = npt.NDArray[np.float32]

dtypes = st.sampled_from(list(TYPES))
formats = st.builds(TensorFormat, dtype=dtypes, symmetric=st.booleans())
powers_of_two = st.builds(TensorFormat, dtype=dtypes, symmetric=st.booleans(), power_of_two=st.just(True))
finite = st.floats(-(2.0**80), 2.0**80, width=32)
ranges = st.tuples(finite, finite).map(lambda ends: CalibrationRange(min(ends), max(ends)))
weights = hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5), elements=finite)


@pytest.mark.skipif(not FROM_1_31, reason="its scales differ in the last bit until 1.30")
@given(ranges, formats)
def test_scale_and_zero_point_are_those_of_onnxruntimes_quantizer(
    given_range: CalibrationRange, tensor_format: TensorFormat
) -> None:
    found = activation_params(given_range, tensor_format)
    lowest, highest = get_qmin_qmax_for_qType(TYPES[found.dtype].tensor_type, symmetric=tensor_format.symmetric)
    low, high = (np.array(end, np.float32) for end in (given_range.low, given_range.high))
    zero_point, scale = compute_scale_zp(low, high, lowest, highest, symmetric=tensor_format.symmetric)
    assert found.zero_point == zero_point
    assert found.scale == scale
    assert found.scale.dtype == np.float32
    assert found.zero_point.dtype == tensor_format.dtype.numpy
    assert found.scale.shape == found.zero_point.shape == ()


@pytest.mark.parametrize(
    ("text", "zero_point", "scale"),
    [
        ("u8:tensor:asym", 64, 0.015686275),
        ("s8:tensor:sym", 0, 0.023622047),
        ("u8:tensor:sym", 128, 0.023529412),
        ("u16:tensor:asym", 16384, 6.1036088e-05),
        ("s16:tensor:sym", 0, 9.155553e-05),
        ("s8:tensor:asym", -64, 0.015686275),
    ],
)
def test_a_range_from_minus_one_to_three_has_these_numbers(text: str, zero_point: int, scale: float) -> None:
    found = activation_params(CalibrationRange(-1, 3), TensorFormat.parse(text))
    assert found.zero_point == zero_point
    assert found.scale == np.float32(scale)


@given(ranges, formats)
def test_zero_is_exactly_representable(given_range: CalibrationRange, tensor_format: TensorFormat) -> None:
    found = activation_params(given_range, tensor_format)
    zero = quantize(np.zeros(1, np.float32), found, None)
    assert (zero == found.zero_point).all()
    assert tensor_format.dtype.lowest <= int(found.zero_point) <= tensor_format.dtype.highest


@given(formats)
def test_a_range_of_zeros_has_scale_one(tensor_format: TensorFormat) -> None:
    found = activation_params(CalibrationRange(0, 0), tensor_format)
    assert found.scale == 1
    assert found.zero_point == 0


@given(weights, formats)
def test_the_integers_of_a_weight_are_those_of_onnxruntimes_quantizer(
    weight: Floats, tensor_format: TensorFormat
) -> None:
    params = weight_params(weight, tensor_format, None)
    expected = quantize_nparray(TYPES[params.dtype].tensor_type, weight, params.scale, params.zero_point)
    found = quantize(weight, params, None)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


@given(weights, formats, st.data())
def test_a_channel_is_quantized_as_if_it_were_alone(
    weight: Floats, tensor_format: TensorFormat, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(0, weight.ndim - 1))
    params = weight_params(weight, tensor_format, axis)
    found = quantize(weight, params, axis)
    assert params.scale.shape == params.zero_point.shape == (weight.shape[axis],)
    for i in range(weight.shape[axis]):
        alone = np.take(weight, i, axis)
        expected = weight_params(alone, tensor_format, None)
        assert (params.scale[i], params.zero_point[i]) == (expected.scale, expected.zero_point)
        np.testing.assert_array_equal(np.take(found, i, axis), quantize(alone, expected, None))


@given(weights, st.data())
def test_channels_are_dequantized_as_onnxruntime_does_it(weight: Floats, data: st.DataObject) -> None:
    axis = data.draw(st.none() | st.integers(0, weight.ndim - 1))
    params = weight_params(weight, TensorFormat.parse("s8:tensor:sym" if axis is None else "s8:channel:sym"), axis)
    integers = quantize(weight, params, axis)
    dims = ",".join(map(str, weight.shape))
    attribute = "" if axis is None else f"<axis={axis}>"
    model = model_of(
        f"(int8[{dims}] x) => (float[{dims}] y)",
        f"y = DequantizeLinear{attribute}(x, s, z)",
        {"s": params.scale, "z": params.zero_point},
    )
    np.testing.assert_array_equal(dequantize(integers, params, axis), run(model, {"x": integers})[0])


@given(weights, formats)
def test_dequantizing_gives_back_every_weight_within_half_a_scale(weight: Floats, tensor_format: TensorFormat) -> None:
    params = weight_params(weight, tensor_format, None)
    integers = quantize(weight, params, None).astype(np.float64)
    back = (integers - float(params.zero_point)) * np.float64(params.scale)
    # A zero point is rounded, so that the ends of an asymmetric range may lie half a step outside.
    steps = (0.5 if tensor_format.symmetric else 1.0) * (1 + 1e-2)
    assert np.abs(back - weight).max() <= steps * float(params.scale)


def test_halves_are_rounded_to_even() -> None:
    params = activation_params(CalibrationRange(0, 255), TensorFormat.parse("u8:tensor:asym"))
    assert quantize(np.array([0.5, 1.5, 2.5], np.float32), params, None).tolist() == [0, 2, 2]


def test_an_empty_weight_has_scale_one() -> None:
    params = weight_params(np.zeros((0, 3), np.float32), TensorFormat.parse("s8:tensor:sym"), None)
    assert params.scale == 1
    assert params.zero_point == 0


@given(ranges, powers_of_two, st.data())
def test_with_powers_of_two_nothing_inside_the_range_is_clipped(
    given_range: CalibrationRange, tensor_format: TensorFormat, data: st.DataObject
) -> None:
    low, high = min(given_range.low, 0.0), max(given_range.high, 0.0)
    params = activation_params(given_range, tensor_format)
    assert np.frexp(params.scale)[0] == 0.5
    assert tensor_format.dtype.lowest <= int(params.zero_point) <= tensor_format.dtype.highest
    values = np.array([low, high, data.draw(st.floats(low, high, width=32))], np.float32)
    error = np.abs(dequantize(quantize(values, params, None), params, None).astype(np.float64) - values)
    assert error.max() <= float(params.scale) / 2


@given(weights, st.data())
def test_every_channel_has_a_power_of_two_of_its_own(weight: Floats, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, weight.ndim - 1))
    params = weight_params(weight, TensorFormat.parse("s8:channel:sym:pow2"), axis)
    assert params.scale.shape == (weight.shape[axis],)
    assert (np.frexp(params.scale)[0] == 0.5).all()
    error = np.abs(dequantize(quantize(weight, params, axis), params, axis).astype(np.float64) - weight)
    assert (np.moveaxis(error, axis, -1) <= params.scale / 2).all()


@given(
    hnp.arrays(np.float32, (3, 16), elements=finite),
    st.sampled_from(["s8:block-16:sym", "s4:block-16:sym"]),
)
def test_of_each_block_the_value_furthest_from_zero_is_the_lowest_integer(blocks: Floats, text: str) -> None:
    params = block_params(blocks, TensorFormat.parse(text))
    integers = quantize(blocks, params, 0)
    furthest = np.abs(blocks).max(axis=1)
    is_used = furthest / 128 >= np.finfo(np.float32).tiny
    assert (integers.min(axis=1)[is_used] == params.dtype.lowest).all()
    errors = np.abs(dequantize(integers, params, 0) - blocks).max(axis=1)
    assert (errors <= np.where(is_used, 1.0001 * np.abs(params.scale), furthest)).all()


def test_a_block_of_zeros_has_a_scale_and_a_positive_one_a_negative_scale() -> None:
    found = block_params(
        np.array([[0, 0], [-1, 4], [-4, 1], [1e-39, 0]], np.float32), TensorFormat.parse("s4:block-16:sym")
    )
    np.testing.assert_array_equal(found.scale, [1, -0.5, 0.5, 1])
    assert not found.zero_point.any()
