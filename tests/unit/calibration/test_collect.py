import threading
import weakref
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoquant.calibration.collect import collect
from autoquant.calibration.methods import choose_range
from autoquant.domain.feed import Feed
from autoquant.domain.region import TensorName
from autoquant.domain.scheme import RangeMethod, TensorFormat
from autoquant.domain.statistics import N_BINS, TensorStatistics
from autoquant.errors import DataError

X = TensorName("x")
DOUBLED = TensorName("doubled")
HALF = N_BINS // 2
LARGEST = float(np.finfo(np.float32).max)

Floats = npt.NDArray[np.float32]

# Tiny magnitudes underflow beside large ones, see test_the_smallest_and_the_largest_floats_are_counted.
magnitudes = st.floats(2.0**-60, 2.0**20, width=32)
floats = hnp.arrays(
    np.float32,
    st.integers(1, 60),
    elements=st.just(0.0) | magnitudes | magnitudes.map(lambda magnitude: -magnitude),
)


def floats_of(*values: float) -> Floats:
    return np.array(values, np.float32)


def feed_of(values: npt.NDArray[np.generic]) -> Feed:
    return {X: values}


class Doubling:
    """A session whose only output is twice its input ``x``."""

    def __init__(self) -> None:
        self.n_runs = 0

    def run(self, output_names: Sequence[str] | None, input_feed: Feed) -> list[npt.NDArray[np.generic]]:
        assert output_names == [DOUBLED]
        self.n_runs += 1
        return [input_feed[X].astype(np.float32) * np.float32(2)]


def observe(*arrays: Floats) -> TensorStatistics:
    return collect(Doubling(), [X], [feed_of(array) for array in arrays], digest="").tensors[X]


def assert_equal(a: TensorStatistics, b: TensorStatistics) -> None:
    assert (a.minimum, a.maximum, a.limit, a.n_zeros) == (b.minimum, b.maximum, b.limit, b.n_zeros)
    np.testing.assert_array_equal(a.counts, b.counts)


def naive_counts(values: Floats, limit: float) -> npt.NDArray[np.int64]:
    bins = np.floor(values[values != 0].astype(np.float64) * (HALF / limit)).astype(np.int64) + HALF
    return np.bincount(bins, minlength=N_BINS)


def test_statistics_hold_every_requested_tensor_the_digest_and_the_number_of_samples() -> None:
    feeds = [feed_of(floats_of(1, -3)), feed_of(floats_of(2, 0))]
    statistics = collect(Doubling(), [X, DOUBLED], feeds, digest="abc")
    assert statistics.digest == "abc"
    assert statistics.n_samples == 2
    assert (statistics.tensors[X].minimum, statistics.tensors[X].maximum) == (-3, 2)
    assert (statistics.tensors[DOUBLED].minimum, statistics.tensors[DOUBLED].maximum) == (-6, 4)
    assert statistics.tensors[DOUBLED].n_zeros == 1


def test_channels_are_observed_of_the_tensors_that_have_an_axis() -> None:
    feeds = [feed_of(np.array([[1, -2]], np.float16)), feed_of(np.array([[3, 2]], np.float16))]
    statistics = collect(Doubling(), [X, DOUBLED], feeds, digest="", channel_axes={DOUBLED: -1})
    assert statistics.channels.keys() == {DOUBLED}
    found = statistics.channels[DOUBLED]
    assert (found.minimum.tolist(), found.maximum.tolist(), found.mean.tolist()) == ([2, -4], [6, 4], [4, 0])
    assert found.minimum.dtype == found.maximum.dtype == np.float32


def test_channels_are_observed_of_tensors_that_have_no_histogram_too() -> None:
    feeds = [feed_of(np.array([[1, -2]], np.float32))]
    statistics = collect(Doubling(), [X], feeds, digest="", channel_axes={DOUBLED: 1})
    assert statistics.tensors.keys() == {X}
    assert statistics.channels[DOUBLED].mean.tolist() == [2, -4]


def test_a_session_is_not_run_when_only_graph_inputs_are_observed() -> None:
    session = Doubling()
    collect(session, [X], [feed_of(np.ones(1, np.float32))], digest="")
    assert session.n_runs == 0


@given(floats)
def test_the_histogram_is_that_of_a_naive_count(values: Floats) -> None:
    statistics = observe(values)
    assert (statistics.minimum, statistics.maximum) == (float(values.min()), float(values.max()))
    assert statistics.n_zeros == (values == 0).sum()
    assert statistics.n_values == values.size
    largest = float(np.abs(values).max())
    if largest == 0:
        assert statistics.limit == 0
    else:
        assert largest < statistics.limit <= 2 * largest
        np.testing.assert_array_equal(statistics.counts, naive_counts(values, statistics.limit))


@given(st.lists(floats, min_size=1, max_size=5), st.randoms())
def test_any_split_and_order_of_the_values_gives_the_same_statistics(arrays: list[Floats], random: Random) -> None:
    shuffled = list(arrays)
    random.shuffle(shuffled)
    assert_equal(observe(*shuffled), observe(np.concatenate(arrays)))


def test_a_tensor_larger_than_a_chunk_is_counted_completely() -> None:
    values = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    values[::3] = 0
    statistics = observe(values.reshape(1, -1))
    assert statistics.n_values == values.size
    np.testing.assert_array_equal(statistics.counts, naive_counts(values, statistics.limit))


def test_doubling_the_limit_merges_pairs_of_bins_around_zero() -> None:
    values = floats_of(-0.9, -1e-6, 1e-6, 0.9)
    statistics = observe(values, floats_of(3))
    assert statistics.limit == 4
    assert np.flatnonzero(statistics.counts).tolist() == [HALF - 922, HALF - 1, HALF, HALF + 921, HALF + 3072]


def test_a_first_sample_of_zeros_is_counted_and_does_not_set_the_limit() -> None:
    statistics = observe(np.zeros(5, np.float32), floats_of(1e-3))
    assert statistics.n_zeros == 5
    assert statistics.limit == 2.0**-9
    assert statistics.minimum == 0


def test_a_power_of_two_lies_inside_the_limit() -> None:
    statistics = observe(floats_of(4))
    assert statistics.limit == 8
    assert statistics.counts[HALF + HALF // 2] == 1


def test_the_smallest_and_the_largest_floats_are_counted() -> None:
    values = floats_of(1e-45, -1e-45, 9e36, -9e36)
    assert observe(values).n_values == 4
    assert observe(values[:2]).n_values == 2


def test_negative_zero_is_zero() -> None:
    statistics = observe(floats_of(-1, -0.0))
    assert statistics.n_zeros == 1
    assert str(statistics.maximum) == "0.0"


def test_shapes_may_differ_and_be_empty_or_scalar() -> None:
    statistics = observe(np.ones((2, 3), np.float32), np.ones((0, 4), np.float32), np.ones((), np.float32))
    assert statistics.n_values == 7


def test_a_tensor_that_is_always_empty_has_no_values() -> None:
    statistics = observe(np.ones((0, 4), np.float32))
    assert (statistics.minimum, statistics.maximum, statistics.limit, statistics.n_values) == (0, 0, 0, 0)


def test_float16_activations_are_observed() -> None:
    statistics = collect(Doubling(), [X], [feed_of(np.array([-2, 0.5], np.float16))], digest="").tensors[X]
    assert (statistics.minimum, statistics.maximum) == (-2, 0.5)


@pytest.mark.parametrize("bad", [(np.nan, np.nan), (np.nan, -np.inf), (np.inf, -np.inf)])
@pytest.mark.parametrize("observed", [(), (DOUBLED,)])
def test_an_output_that_is_not_finite_names_itself_and_the_sample(
    bad: tuple[float, ...], observed: tuple[TensorName, ...]
) -> None:
    feeds = [feed_of(np.ones(2, np.float32)), feed_of(floats_of(*bad)), feed_of(np.ones(2, np.float32))]
    with pytest.raises(DataError, match=r"sample 1: the float model's output 'doubled' holds NaN or infinity"):
        collect(Doubling(), observed, feeds, digest="", finite=[DOUBLED])


def test_a_sample_that_has_a_name_is_called_by_it() -> None:
    feeds = [feed_of(floats_of(1)), feed_of(floats_of(np.nan))]
    with pytest.raises(DataError, match=r"^a\.npz, sample 7: the float model's output 'doubled' holds NaN"):
        collect(Doubling(), [X], feeds, digest="", finite=[DOUBLED], names=["a.npz, sample 2", "a.npz, sample 7"])


@pytest.mark.parametrize("mask", [-np.inf, -LARGEST, -LARGEST / 8, -1e38, np.inf, LARGEST, 1e38, np.nan])
def test_the_values_of_a_mask_are_counted_apart(mask: float) -> None:
    found = observe(floats_of(1, mask, -2), floats_of(mask, mask))
    assert_equal(found, observe(floats_of(1, -2)))
    assert (found.n_masked, found.n_values) == (3, 2)


def test_channels_with_minus_infinity_have_no_finite_mean_and_warn_of_nothing() -> None:
    feeds = [feed_of(floats_of(1, -np.inf).reshape(1, 2)), feed_of(floats_of(1, -np.inf).reshape(1, 2))]
    found = collect(Doubling(), [X], feeds, digest="", channel_axes={X: 1})
    assert found.unbounded == {X}
    assert found.channels[X].mean[0] == 1
    assert not np.isfinite(found.channels[X].mean[1])


def test_no_sample_at_all_is_an_error() -> None:
    with pytest.raises(DataError, match="no calibration sample"):
        collect(Doubling(), [X], [], digest="")


def test_on_sample_is_told_each_sample_in_the_calling_thread() -> None:
    told: list[tuple[int, int]] = []
    feeds = [feed_of(np.ones(2, np.float32))] * 3
    collect(Doubling(), [X], feeds, digest="", on_sample=lambda n: told.append((n, threading.get_ident())))
    assert told == [(n, threading.get_ident()) for n in (1, 2, 3)]


def test_an_interruption_leaves_no_thread_behind() -> None:
    def interrupt(n: int) -> None:
        if n == 2:
            raise KeyboardInterrupt

    n_threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        collect(Doubling(), [X], [feed_of(np.ones(2, np.float32))] * 3, digest="", on_sample=interrupt)
    assert threading.active_count() == n_threads


def test_the_outputs_of_two_samples_are_in_memory_and_never_those_of_three() -> None:
    outputs: list[weakref.ref[npt.NDArray[np.generic]]] = []

    class Recording(Doubling):
        def run(self, output_names: Sequence[str] | None, input_feed: Feed) -> list[npt.NDArray[np.generic]]:
            assert [k for k, output in enumerate(outputs[:-1]) if output() is not None] == []
            found = super().run(output_names, input_feed)
            outputs.append(weakref.ref(found[0]))
            return found

    collect(Recording(), [DOUBLED], [feed_of(np.ones(2, np.float32))] * 200, digest="")
    assert len(outputs) == 200


def test_samples_are_taken_one_at_a_time_and_an_error_stops_them() -> None:
    taken = []

    def feeds() -> Iterator[Feed]:
        for index in range(100):
            taken.append(index)
            yield feed_of(floats_of(np.nan))

    with pytest.raises(DataError, match="sample 0"):
        collect(Doubling(), [X], feeds(), digest="", finite=[DOUBLED])
    assert taken == [0]


@pytest.mark.parametrize("shape", [(1, 64, 112, 112), (1, 112, 112, 64), (1, 3, 1024, 1024), (1 << 20,)])
def test_of_very_many_values_some_stand_for_all_and_none_is_left_out_along_an_axis(shape: tuple[int, ...]) -> None:
    channels = np.arange(shape[-1], dtype=np.float32)
    found = observe(np.broadcast_to(channels[1:2], shape), np.broadcast_to(channels, shape))
    size = int(np.prod(shape))
    assert found.n_values == pytest.approx(2 * size, rel=1e-4)
    assert (found.minimum, found.maximum) == (0, channels[-1])
    counts, _ = np.histogram(np.broadcast_to(channels, shape), N_BINS, (-found.limit, found.limit))
    counts[HALF + int(HALF / found.limit)] += size
    shares = (found.counts[HALF + 1 :] - counts[HALF + 1 :]) / size
    assert np.abs(shares).max() < 1e-3


def test_the_one_value_that_is_extreme_among_very_many_is_seen() -> None:
    values = np.ones(1 << 20, np.float32)
    values[777_777], values[555_555] = 100, -50
    found = observe(values)
    assert (found.minimum, found.maximum) == (-50, 100)


@pytest.mark.parametrize("place", [0, 1, 300_001])
def test_the_only_value_among_very_many_masked_ones_is_counted(place: int) -> None:
    values = np.full(400_001, -np.inf, np.float32)
    values[place] = 3
    found = observe(values)
    assert (found.minimum, found.maximum, found.n_masked) == (3, 3, 400_000)
    assert found.n_values > 0


@pytest.mark.parametrize("place", [0, 1, 777_777])
def test_the_only_value_among_very_many_zeros_is_counted(place: int) -> None:
    values = np.zeros(1 << 20, np.float32)
    values[place] = 2
    found = observe(values)
    assert found.maximum == 2
    assert found.counts.any()
    assert choose_range(found, RangeMethod.parse("entropy"), TensorFormat.parse("u8:tensor:asym")).high == 2
