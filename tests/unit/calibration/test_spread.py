from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.calibration.batches import read_samples
from autoquant.calibration.spread import spread, spread_order
from autoquant.domain.feed import InputSignature

X = InputSignature("x", "float32", (1,))


@given(st.integers(0, 500))
def test_every_number_is_in_the_order_once(n: int) -> None:
    assert sorted(spread_order(n)) == list(range(n))


@given(n=st.integers(1, 1000), share=st.floats(0.01, 1))
def test_every_beginning_leaves_no_large_gap(n: int, share: float) -> None:
    n_taken = max(1, int(share * n))
    taken = [-1, *sorted(spread_order(n)[:n_taken]), n]
    assert np.diff(taken).max() <= 4 * n / n_taken


@pytest.mark.parametrize("n_classes", range(2, 11))
@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("n", [233, 256, 1000])
def test_a_beginning_holds_all_classes_whether_they_are_sorted_or_in_turn(
    n_classes: int, is_sorted: bool, n: int
) -> None:
    classes = [number * n_classes // n if is_sorted else number % n_classes for number in range(n)]
    counts = Counter(classes[number] for number in spread_order(n)[:64])
    assert len(counts) == n_classes
    assert max(counts.values()) <= 3 * min(counts.values())


def test_samples_that_are_spread_keep_their_order_and_labels() -> None:
    numbers = np.arange(100, dtype=np.float32)
    samples = read_samples({"x": numbers, "label": numbers}, [X], role="calibration")
    found = spread(samples, 10, "calibration")
    values = [feed["x"].item() for feed in found.feeds]
    assert values == sorted(spread_order(100)[:10]) == found.labels["label"].tolist()
    assert spread(samples, 200, "calibration").feed_digests == samples.feed_digests
