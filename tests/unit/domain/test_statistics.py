import numpy as np

from autoquant.domain.region import TensorName
from autoquant.domain.statistics import N_BINS, Statistics, TensorStatistics


def observed(*counts: int, n_zeros: int = 0, n_masked: int = 0) -> TensorStatistics:
    bins = np.zeros(N_BINS, np.int64)
    bins[: len(counts)] = counts
    return TensorStatistics(minimum=-1, maximum=1, limit=1, counts=bins, n_zeros=n_zeros, n_masked=n_masked)


def test_values_are_those_in_the_bins_and_zeros_without_masked_ones() -> None:
    assert observed(3, 0, 4, n_zeros=5, n_masked=100).n_values == 12
    assert observed(2**40, 2**40).n_values == 2**41
    assert observed().n_values == 0


def test_no_range_covers_what_held_masked_values_or_none_at_all() -> None:
    tensors = {
        "plain": observed(1),
        "zeros": observed(n_zeros=3),
        "masked": observed(1, n_masked=1),
        "only_masked": observed(n_masked=1),
        "never_held": observed(),
    }
    found = Statistics(
        tensors={TensorName(name): each for name, each in tensors.items()}, digest="", n_samples=4
    ).unbounded
    assert found == {"masked", "only_masked", "never_held"}
    assert Statistics(tensors={}, digest="", n_samples=0).unbounded == frozenset()
