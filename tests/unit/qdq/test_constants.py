from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import TensorFormat
from autoquant.model.graph import Graph
from autoquant.qdq.constants import constant_params
from autoquant.qdq.params import quantize, weight_params
from tests.models import floats, model_of

Floats = npt.NDArray[np.float32]
W = TensorName("w")
PER_TENSOR, PER_CHANNEL, POWERS = (
    TensorFormat.parse(f"s8:{text}:unsaturated") for text in ("tensor:sym", "channel:sym", "channel:sym:pow2")
)
FORMATS = pytest.mark.parametrize("tensor_format", [PER_TENSOR, PER_CHANNEL, POWERS], ids=str)


def matmul(weight: Floats) -> Graph:
    return Graph(model_of("(float[2,K] x) => (float[2,N] y)", "y = MatMul(x, w)", {"w": weight}))


def conv(weight: Floats, group: int = 1) -> Graph:
    body = f"y = Conv<group={group}>(x, w)"
    return Graph(model_of("(float[1,C,9,9] x) => (float[1,N,H,W] y)", body, {"w": weight}))


def pairs(columns: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Sums of the integers that a kernel multiplies side by side; columns of shape (outputs, inputs)."""
    even = np.pad(columns.astype(np.int64), [(0, 0), (0, columns.shape[1] % 2)])
    return even[:, 0::2] + even[:, 1::2]


def axis_of(tensor_format: TensorFormat, axis: int) -> int | None:
    return axis if "channel" in str(tensor_format) else None


@FORMATS
@given(
    weight=hnp.arrays(
        np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.floats(-1e3, 1e3, width=32)
    )
)
def test_no_two_products_side_by_side_leave_16_bits(tensor_format: TensorFormat, weight: Floats) -> None:
    axis = axis_of(tensor_format, 1)
    params = constant_params(W, matmul(weight), tensor_format, axis)
    integers = quantize(weight, params, axis)
    assert np.abs(255 * pairs(integers.T)).max(initial=0) <= np.iinfo(np.int16).max
    assert (params.scale >= weight_params(weight, tensor_format, axis).scale).all()


@FORMATS
@pytest.mark.parametrize("shape", [(3, 3, 3, 3), (4, 5, 1, 1), (2, 1, 5, 5), (6, 2, 3, 1)])
def test_a_convolution_goes_through_channels_before_positions(
    tensor_format: TensorFormat, shape: tuple[int, ...]
) -> None:
    weight, axis = np.abs(floats(*shape)), axis_of(tensor_format, 0)
    params = constant_params(W, conv(weight), tensor_format, axis)
    integers = quantize(weight, params, axis)
    assert pairs(integers.transpose(0, 2, 3, 1).reshape(shape[0], -1)).max() <= 128


def test_scales_are_as_narrow_as_that_allows() -> None:
    weight = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.5]], np.float32)
    found = constant_params(W, matmul(weight), PER_CHANNEL, 1)
    np.testing.assert_allclose(found.scale, np.array([2, 1, 1.5]) / 127, rtol=1e-6)
    assert constant_params(W, matmul(weight), PER_TENSOR, None).scale == pytest.approx(2 / 127)


def test_powers_of_two_stay_powers_of_two() -> None:
    found = constant_params(W, matmul(np.ones((2, 1), np.float32)), POWERS, 1)
    assert found.scale.tolist() == [2**-5]


GEMM = {True: "y = Gemm<transB=1>(x, w)", False: "y = Gemm(x, w)"}


@pytest.mark.parametrize("is_transposed", [True, False])
def test_a_gemm_pairs_along_what_it_sums(is_transposed: bool) -> None:
    columns = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]], np.float32)  # (outputs, inputs)
    weight: Mapping[str, Floats] = {"w": columns if is_transposed else np.ascontiguousarray(columns.T)}
    graph = Graph(model_of("(float[2,3] x) => (float[2,2] y)", GEMM[is_transposed], weight))
    found = constant_params(W, graph, PER_CHANNEL, 0 if is_transposed else 1)
    np.testing.assert_allclose(found.scale, np.array([2, 1]) / 127, rtol=1e-6)


def test_a_depthwise_convolution_adds_in_32_bits() -> None:
    weight = np.ones((4, 1, 3, 3), np.float32)
    plain = weight_params(weight, PER_CHANNEL, 0)
    assert (constant_params(W, conv(weight, group=4), PER_CHANNEL, 0).scale == plain.scale).all()
    doubled = np.ones((8, 1, 3, 3), np.float32)
    assert (constant_params(W, conv(doubled, group=4), PER_CHANNEL, 0).scale == 2 * plain.scale[0]).all()


def test_a_weight_of_two_operators_suits_both() -> None:
    body = "a = MatMul(x, w) b = Gemm<transB=1>(x, w) y = Add(a, b)"
    weight = np.array([[1.0, 1.0], [0.0, 0.0]], np.float32)  # pairs of the Gemm alone
    graph = Graph(model_of("(float[2,2] x) => (float[2,2] y)", body, {"w": weight}))
    assert constant_params(W, graph, PER_TENSOR, None).scale == pytest.approx(2 / 127)


def test_a_weight_that_two_axes_share_is_widened_along_the_one_that_is_asked_for() -> None:
    body = "a = MatMul(x, w) r = Relu(a) y = Gemm<transB=1>(r, w)"
    weight = floats(8, 16)
    graph = Graph(model_of("(float[2,8] x) => (float[2,8] y)", body, {"w": weight}))
    for axis, columns in ((1, weight.T), (0, weight)):
        params = constant_params(W, graph, PER_CHANNEL, axis)
        integers = quantize(weight, params, axis)
        assert np.abs(pairs(integers.T if axis else integers)).max() <= 128
        np.testing.assert_array_equal(params.scale, constant_params(W, matmul(columns.T), PER_CHANNEL, 1).scale)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_an_empty_weight_has_scales_as_ever(shape: tuple[int, int]) -> None:
    weight = np.zeros(shape, np.float32)
    found = constant_params(W, matmul(weight), PER_CHANNEL, 1)
    assert found.scale.shape == weight_params(weight, PER_CHANNEL, 1).scale.shape


def test_the_largest_floats_have_finite_scales() -> None:
    weight = np.full((2, 1), np.finfo(np.float32).max)
    assert np.isfinite(constant_params(W, matmul(weight), PER_CHANNEL, 1).scale).all()


def test_without_the_suffix_and_for_what_is_no_weight_the_extremes_decide() -> None:
    weight = np.ones((2, 2), np.float32)
    plain = TensorFormat.parse("s8:channel:sym")
    assert (constant_params(W, matmul(weight), plain, 1).scale == weight_params(weight, plain, 1).scale).all()
    added = Graph(model_of("(float[2,2] x) => (float[2,2] y)", "y = Add(x, w)", {"w": weight}))
    assert constant_params(W, added, PER_TENSOR, None).scale == weight_params(weight, PER_TENSOR, None).scale


@pytest.mark.parametrize(
    ("text", "middle"), [("u8:channel:sym", 128), ("u8:channel:sym:pow2", 128), ("s8:channel:sym:unsaturated", 0)]
)
@pytest.mark.parametrize("zeros", [slice(1, 2), slice(None)])
def test_channels_of_zeros_have_the_zero_point_of_the_others(text: str, middle: int, zeros: slice) -> None:
    weight = floats(3, 2, 1, 1)
    weight[zeros] = 0
    found = constant_params(W, conv(weight), TensorFormat.parse(text), 0)
    assert found.zero_point.tolist() == [middle] * 3
