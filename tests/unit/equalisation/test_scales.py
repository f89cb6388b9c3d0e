from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.region import TensorName
from autoquant.domain.statistics import ChannelStatistics
from autoquant.equalisation.channels import Channels, trace
from autoquant.equalisation.rules import RULES
from autoquant.equalisation.scales import MAX_EXPONENT, choose_exponents
from autoquant.equalisation.ties import Labels
from autoquant.model.graph import Graph
from tests.models import floats, model_of

Floats = npt.NDArray[np.float32]
EVEN = np.ones((8, 8, 1, 1), np.float32)


def a_pair(weight: Floats = EVEN) -> tuple[Graph, Channels]:
    """A tensor ``h`` of eight channels that the given weight reads."""
    body = "a = Conv(x, first) h = Relu(a) y = Conv(h, second)"
    signature = "(float[1,8,4,4] x) => (float[1,8,4,4] y)"
    graph = Graph(model_of(signature, body, {"first": floats(8, 8, 1, 1), "second": weight}))
    return graph, trace(graph, RULES)


def seen(ranges: Sequence[float], *, low: float = 0.0) -> dict[TensorName, ChannelStatistics]:
    high = np.array(ranges, np.float32)
    of_h = ChannelStatistics(axis=1, minimum=np.full_like(high, low), maximum=high, mean=high.astype(np.float64) / 4)
    return {TensorName("h"): of_h}


def chosen(ranges: Sequence[float], weight: Floats = EVEN) -> list[int]:
    graph, channels = a_pair(weight)
    exponents: Labels = choose_exponents(graph, channels, seen(ranges))
    return [int(i) for i in exponents[channels.labels[TensorName("h")].ravel()]]


def test_weights_too_large_to_be_balanced_keep_their_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.equalisation.scales._MOST_WEIGHTS", EVEN.size - 1)
    assert chosen([1, 1, 1, 1, 1, 1, 1, 64]) == [0] * 8


def test_a_wide_channel_is_divided_and_a_narrow_one_multiplied_by_the_root_of_its_range() -> None:
    assert chosen([1, 1, 1, 1, 1, 1, 1, 64]) == [0, 0, 0, 0, 0, 0, 0, 3]
    assert chosen([4, 4, 4, 4, 1 / 4, 4, 4, 4]) == [0, 0, 0, 0, -2, 0, 0, 0]


def test_channels_of_equal_range_are_left_as_they_are() -> None:
    assert chosen([3] * 8) == [0] * 8


def test_weights_count_as_much_as_ranges() -> None:
    weight = EVEN.copy()
    weight[:, 7] = 64
    assert chosen([64, 64, 64, 64, 64, 64, 64, 1], weight) == [0, 0, 0, 0, 0, 0, 0, -6]
    assert chosen([1, 1, 1, 1, 1, 1, 1, 64], weight) == [0] * 8


def test_scales_stay_within_their_bounds() -> None:
    assert chosen([1, 1, 1, 1, 1, 1, 1, 1e12])[7] == MAX_EXPONENT
    assert chosen([1, 1, 1, 1, 1, 1, 1e6, 1e-12])[7] == -MAX_EXPONENT


def test_dead_channels_keep_their_scale() -> None:
    weight = EVEN.copy()
    weight[:, 0] = 0
    assert chosen([1, 0, 1, 1, 1, 1, 1, 64], weight) == [0, 0, 0, 0, 0, 0, 0, 3]
    assert chosen([0] * 8) == [0] * 8
    assert chosen([1, 1, 1, 1, 1, 1, 1, 64], np.zeros_like(EVEN)) == [0] * 8


@pytest.mark.parametrize("ranges", [[np.inf] + [1.0] * 7, [np.nan] + [1.0] * 7, []])
def test_statistics_that_say_nothing_change_nothing(ranges: list[float]) -> None:
    graph, channels = a_pair()
    assert not choose_exponents(graph, channels, seen(ranges)).any()
    assert not choose_exponents(graph, channels, {}).any()


ranges = st.lists(st.floats(0, float(np.float32(3e38)), width=32), min_size=8, max_size=8)


@given(ranges, ranges, st.integers(0, 9))
def test_exponents_are_bounded_whatever_was_seen(high: list[float], low: list[float], seed: int) -> None:
    graph, channels = a_pair(floats(8, 8, 1, 1, seed=seed) ** 5)
    statistics = {
        TensorName("h"): ChannelStatistics(
            axis=1, minimum=-np.array(low, np.float32), maximum=np.array(high, np.float32), mean=np.zeros(8)
        )
    }
    exponents = choose_exponents(graph, channels, statistics)
    assert exponents[0] == 0
    assert (np.abs(exponents) <= MAX_EXPONENT).all()


def rounding_error(values: Floats, weight: Floats) -> float:
    """Squared error of ``weight @ values`` with u8 values, one scale, and s8 weights, one scale a row."""
    step = values.max() / 255
    steps = np.abs(weight).max(axis=1, keepdims=True) / 127
    product = (np.rint(weight / steps) * steps) @ (np.rint(values / step) * step)
    return float(((product - weight @ values) ** 2).sum())


@given(st.integers(0, 99))
def test_rounding_then_really_costs_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.exponential(size=(8, 500)) * 2.0 ** rng.integers(-4, 5, (8, 1))).astype(np.float32)
    weight = floats(8, 8, seed=seed)
    graph, channels = a_pair(weight.reshape(8, 8, 1, 1))
    statistics = ChannelStatistics(
        axis=1, minimum=values.min(axis=1), maximum=values.max(axis=1), mean=values.mean(axis=1, dtype=np.float64)
    )
    exponents = choose_exponents(graph, channels, {TensorName("h"): statistics})
    scales = np.exp2(exponents[channels.labels[TensorName("h")].ravel()]).astype(np.float32)
    after = rounding_error(values / scales[:, None], weight * scales)
    assert after <= rounding_error(values, weight) * 1.05
