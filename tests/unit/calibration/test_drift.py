import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.calibration.drift import channel_means, residual_shifts, shrunk
from autoquant.domain.feed import Feed
from autoquant.domain.region import NodeName, TensorName
from autoquant.model.copies import Model
from tests.models import floats, model_of

A, B = NodeName("a"), NodeName("b")
AXES = {A: 1, B: 1}
FEEDS: list[Feed] = [{"x": floats(1, 3, 4, 4, seed=seed)} for seed in range(8)]


def two_convolutions(first: float = 0.0, second: float = 0.0) -> Model:
    """With biases that are wrong by so much."""
    return model_of(
        "(float[1,3,4,4] x) => (float[1,5,4,4] y)",
        "a = Conv(x, wa, ba) r = Relu(a) b = Conv(r, wb, bb) y = Add(b, b)",
        {
            "wa": floats(4, 3, 1, 1),
            "ba": floats(4) + np.float32(first),
            "wb": floats(5, 4, 1, 1),
            "bb": floats(5) + np.float32(second),
        },
    )


def reference() -> dict[NodeName, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    found = channel_means(two_convolutions(), {TensorName(name): 1 for name in AXES}, FEEDS)
    return {NodeName(name): means for name, means in found.items()}


def test_means_are_those_of_each_sample_and_channel() -> None:
    model = model_of("(float[1,3,4,4] x) => (float[1,3,4,4] y)", "d = Add(x, x) y = Neg(d)")
    found = channel_means(model, {TensorName("d"): 1, TensorName("y"): -1}, FEEDS)
    np.testing.assert_allclose(found[TensorName("d")][2], 2 * FEEDS[2]["x"][0].mean(axis=(1, 2)), rtol=1e-5, atol=1e-6)
    assert found[TensorName("y")].shape == (8, 4)


def test_an_operator_is_observed_with_all_before_it_corrected() -> None:
    found = residual_shifts(two_convolutions(0.5, -2.0), reference(), AXES, FEEDS, seconds=math.inf)
    np.testing.assert_allclose(found[A], np.full(4, 0.5), rtol=1e-5)
    np.testing.assert_allclose(found[B], np.full(5, -2.0), rtol=1e-5)


def test_nothing_is_found_where_nothing_drifts() -> None:
    found = residual_shifts(two_convolutions(), reference(), AXES, FEEDS, seconds=math.inf)
    assert found.keys() == {A, B}
    np.testing.assert_allclose(np.concatenate([*found.values()]), 0, atol=1e-6)


def test_operators_that_there_is_no_time_for_are_left_out() -> None:
    assert residual_shifts(two_convolutions(1.0), reference(), AXES, FEEDS, seconds=0) == {}


def test_samples_that_there_is_no_room_for_are_given_up() -> None:
    seen: dict[NodeName, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = reference()
    seen[B][2:] = 1e9
    found = residual_shifts(two_convolutions(0.5, -2.0), seen, AXES, FEEDS, seconds=math.inf, held_bytes=1)
    np.testing.assert_allclose(found[B], np.full(5, -2.0), rtol=1e-5)


def test_samples_in_which_an_operator_writes_no_value_are_left_out() -> None:
    def product(error: float) -> Model:
        constants = {"w": floats(3, 4), "b": floats(4) + np.float32(error)}
        return model_of("(float[N,3] x) => (float[N,4] y)", "a = Gemm(x, w, b) y = Relu(a)", constants)

    feeds: list[Feed] = [{"x": floats(n, 3, seed=seed)} for seed, n in enumerate((2, 0, 3, 2))]
    means = channel_means(product(0.0), {TensorName("a"): 1}, feeds)[TensorName("a")]
    assert np.isnan(means).all(axis=1).tolist() == [False, True, False, False]
    found = residual_shifts(product(0.5), {A: means}, {A: 1}, feeds, seconds=math.inf)
    np.testing.assert_allclose(found[A], np.full(4, 0.5), rtol=1e-5)


@given(st.integers(2, 40), st.integers(0, 1000), st.floats(0.5, 10))
def test_what_is_certain_stays_and_chance_goes(n: int, seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    chance, shifts = rng.normal(size=(n, 200)), size * rng.normal(size=200)
    certain = shrunk(1e-4 * chance + shifts)
    np.testing.assert_allclose(certain, shifts, atol=1e-3 * size)
    means = chance.mean(axis=0)
    assert np.square(shrunk(chance)).mean() < 0.5 * np.square(means).mean()


@pytest.mark.parametrize("differences", [np.ones((1, 3)), np.zeros((4, 3)), np.full((4, 3), np.nan)])
def test_one_sample_no_difference_and_no_values_give_zeros(
    differences: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> None:
    np.testing.assert_array_equal(shrunk(differences), np.zeros(3))
