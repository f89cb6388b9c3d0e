import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoquant.rewrites.resizes import CubicInterpolation, LinearInterpolation, multiply_linear, multiply_resizes
from tests.models import Array, model_of, op_types
from tests.rewriting import rewritten

POSITIONS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


def resized(
    attributes: str = "", size: tuple[int, int] = (5, 7), behind: tuple[int, int] = (10, 21), *, scales: bool = False
) -> onnx.ModelProto:
    """A cubic Resize of images with two channels."""
    (height, width), (high, wide) = size, behind
    constants: dict[str, Array | float] = {"sizes": np.array([1, 2, high, wide])}
    if scales:
        constants = {"scales": np.array([1, 1, high / height, wide / width], np.float32)}
    read = "scales" if scales else ", sizes"
    given = f'mode="cubic"{", " if attributes else ""}{attributes}'
    body = f"y = Resize<{given}>(x, , {read})"
    return model_of(f"(float[1,2,{height},{width}] x) => (float[1,2,{high},{wide}] y)", body, constants)


@settings(max_examples=60, deadline=None)
@given(
    position=st.sampled_from(POSITIONS),
    is_inside=st.integers(0, 1),
    coefficient=st.sampled_from([-0.75, -0.5]),
    size=st.tuples(st.integers(2, 9), st.integers(2, 9)),
    factors=st.tuples(st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 3, 4])),
    is_smaller=st.booleans(),
    scales=st.booleans(),
)
@example(
    position="asymmetric",
    is_inside=1,
    coefficient=-0.75,
    size=(2, 6),
    factors=(3, 3),
    is_smaller=False,
    scales=False,
)
def test_products_are_what_the_kernel_makes(
    position: str,
    is_inside: int,
    coefficient: float,
    size: tuple[int, int],
    factors: tuple[int, int],
    is_smaller: bool,
    scales: bool,
) -> None:
    attributes = (
        f'coordinate_transformation_mode="{position}", exclude_outside={is_inside}, cubic_coeff_a={coefficient}'
    )
    larger = size[0] * factors[0], size[1] * factors[1]
    model = resized(attributes, *((larger, size) if is_smaller else (size, larger)), scales=scales)
    # The kernel takes positions in float32, which is off by up to 1.2e-5 where shares that are left out enlarge others.
    found = rewritten(multiply_resizes, model, atol=2e-5)
    n_resized = sum(factor > 1 for factor in factors)
    assert op_types(found) == (n_resized * ["MatMul"] or ["Resize"])


@settings(max_examples=60, deadline=None)
@given(
    position=st.sampled_from(POSITIONS),
    size=st.lists(st.integers(2, 6), min_size=2, max_size=3),
    factors=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=3, max_size=3),
    is_smaller=st.booleans(),
    scales=st.booleans(),
)
def test_products_are_what_the_linear_kernel_makes_of_images_and_volumes(
    position: str, size: list[int], factors: list[int], is_smaller: bool, scales: bool
) -> None:
    most = 2 if is_smaller else 4  # products for each value are few then
    larger = [n * min(factor, most) for n, factor in zip(size, factors, strict=False)]
    before, behind = (larger, size) if is_smaller else (size, larger)
    shares = [n / m for n, m in zip(behind, before, strict=True)]
    constants: dict[str, Array | float] = {"n": np.array([1, 3, *behind])}
    if scales:
        constants = {"n": np.array([1, 1, *shares], np.float32)}
    read = "n" if scales else ", n"
    body = f'y = Resize<mode="linear", coordinate_transformation_mode="{position}">(x, , {read})'
    model = model_of(f"(float[1,3,{','.join(map(str, before))}] x) => (float[] y)", body, constants)
    found = rewritten(multiply_linear, model, rtol=1e-4, atol=2e-5)
    assert op_types(found).count("MatMul") == sum(share != 1 for share in shares)


@pytest.mark.parametrize(
    ("sizes", "is_multiplied"),
    [
        ("1,16,4,4", False),
        ("1,16,4,4,4", True),
        ("1,19,4,4", True),
        ("1,19,60,4", True),
        ("1,19,64,4", False),
        ("1,19,96,4,4", False),
    ],
)
def test_a_linear_resize_of_blocks_of_channels_or_of_long_lines_stays(sizes: str, is_multiplied: bool) -> None:
    behind = [1, int(sizes.split(",")[1]), *(8 * int(size) for size in sizes.split(",")[2:])]
    model = model_of(
        f"(float[{sizes}] x) => (float[] y)", 'y = Resize<mode="linear">(x, , , n)', {"n": np.array(behind)}
    )
    assert ("MatMul" in op_types(multiply_linear(model))) is is_multiplied


@pytest.mark.parametrize(
    ("behind", "size", "expected"),
    [
        ("s = Sigmoid(r) y = Neg(s)", "4,4", ["MatMul", "MatMul", "Sigmoid", "Neg"]),
        ("s = Sigmoid(r) y = Conv(s, w)", "4,4", ["Resize", "Sigmoid", "Conv"]),
        ("s = Sigmoid(r) y = Conv(s, v)", "4,4,4", [*3 * ["MatMul"], "Sigmoid", "Conv"]),
    ],
)
def test_a_linear_resize_of_images_that_a_product_is_behind_stays(behind: str, size: str, expected: list[str]) -> None:
    n_axes = size.count(",") + 1
    constants: dict[str, Array | float] = {"n": np.array([1, 3, *n_axes * [8]])}
    constants |= {"w": np.ones((2, 3, 1, 1), np.float32)} if " w)" in behind else {}
    constants |= {"v": np.ones((2, 3, 1, 1, 1), np.float32)} if " v)" in behind else {}
    body = f'r = Resize<mode="linear">(x, , , n) {behind}'
    found = rewritten(multiply_linear, model_of(f"(float[1,3,{size}] x) => (float[] y)", body, constants), atol=1e-5)
    assert [op_type for op_type in op_types(found) if op_type != "Reshape"] == expected


def test_linear_shares_are_those_of_two_values() -> None:
    matrix = LinearInterpolation("align_corners").matrix(3, 5, 5 / 3)
    expected = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(matrix, expected)


def test_scales_may_be_empty_beside_sizes() -> None:
    constants = {"roi": np.zeros(0, np.float32), "none": np.zeros(0, np.float32), "sizes": np.array([1, 2, 8, 8])}
    body = 'y = Resize<mode="cubic">(x, roi, none, sizes)'
    model = model_of("(float[1,2,4,4] x) => (float[1,2,8,8] y)", body, constants, opset=11)
    assert op_types(multiply_resizes(model)) == ["MatMul", "MatMul"]


@pytest.mark.parametrize("position", POSITIONS)
def test_shares_add_up_to_one(position: str) -> None:
    for is_inside in (True, False):
        matrix = CubicInterpolation(position, is_inside=is_inside).matrix(6, 15, 2.5)
        assert matrix.shape == (15, 6)
        np.testing.assert_allclose(matrix.sum(axis=1), 1)


def test_an_image_of_its_own_size_stays_what_it_is() -> None:
    np.testing.assert_array_equal(CubicInterpolation().matrix(5, 5, 1.0), np.eye(5))


@pytest.mark.parametrize(
    "model",
    [
        resized("antialias=1", (8, 8), (4, 4)),
        resized('coordinate_transformation_mode="half_pixel_symmetric"'),
        resized('keep_aspect_ratio_policy="not_larger"'),
        resized(size=(1100, 4), behind=(2200, 8)),
        resized("axes=[0,1,2,3]", scales=True),
        model_of(
            "(float[1,2,5,7] x) => (float[1,2,10,14] y)",
            'y = Resize<mode="nearest">(x, , scales)',
            {"scales": np.array([1, 1, 2, 2], np.float32)},
        ),
        model_of(
            "(float[1,2,h,w] x) => (float[1,2,8,8] y)",
            'y = Resize<mode="cubic">(x, , , s)',
            {"s": np.array([1, 2, 8, 8])},
        ),
        model_of(
            "(float[1,2,5,7] x, float[4] scales) => (float[1,2,10,14] y)", 'y = Resize<mode="cubic">(x, , scales)'
        ),
    ],
    ids=["antialias", "position", "policy", "large", "axes", "nearest", "size unknown", "computed"],
)
def test_others_stay(model: onnx.ModelProto) -> None:
    assert multiply_resizes(model) is model
