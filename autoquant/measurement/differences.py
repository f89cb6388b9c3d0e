"""Which models of one measurement are shown to be faster than which."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import numpy.typing as npt

from autoquant.measurement.intervals import (
    LEVEL,
    STOPPED_LEVEL,
    difference_intervals,
    session_intervals,
    widened,
)
from autoquant.measurement.latency import REFERENCE, Timings, bootstrap_interval
from autoquant.measurement.medians import variance_of_medians

__all__ = ["UNSEEN_SPREAD", "shown_faster"]

_FEW_MODELS = 4
"""Of so many and the float model among them it counts as one more that tells how far processes differ: fewer know that
badly. Of more it is left out, so that its luck widens no interval between files."""
UNSEEN_SPREAD = 0.01
"""Standard deviation of the logarithm of a ratio between processes, which a single one does not show: between copies of
a model it was 0.8 to 1.4 % on an idle machine, to the float model 0.8 to 1.2 % (decision 0030)."""
Pair = tuple[str, str]


def shown_faster(timings: Mapping[str, Timings], seed: int, *, is_stopped: bool = False) -> dict[str, frozenset[str]]:
    """For each model those that it is faster than beyond the interval of their ratio.

    Both ran in the same rounds, so that the interval is that of the paired ratio: narrower than what the models' own
    intervals say of each other. From one process it is the bootstrap interval over rounds, widened by
    what processes differ by on an idle machine.

    Args:
        timings: By model, of the same rounds on one target.
        seed: Of the resampling.
        is_stopped: Whether the measurement ended because ratios were known well enough.
    """
    faster: dict[str, set[str]] = {name: set() for name in timings}
    for (a, b), (low, high) in _intervals(timings, seed, STOPPED_LEVEL if is_stopped else LEVEL).items():
        if high < 1:
            faster[a].add(b)
        elif low > 1:
            faster[b].add(a)
    return {name: frozenset(others) for name, others in faster.items()}


def _intervals(timings: Mapping[str, Timings], seed: int, level: float) -> dict[Pair, tuple[float, float]]:
    """Those to the float model are wider: what it does in one process all of them have in common."""
    names = sorted(timings, key=lambda name: name == REFERENCE)  # so that every ratio to the float model is one
    ratios = {
        (a, b): np.array(timings[a].candidate_s) / np.array(timings[b].candidate_s) for a, b in combinations(names, 2)
    }
    sessions = np.array(next(iter(timings.values())).session)
    numbers = np.unique(sessions)
    if len(numbers) == 1:
        return {pair: _of_one_process(values, seed) for pair, values in ratios.items()}
    medians = {
        pair: [float(np.median(values[sessions == number])) for number in numbers] for pair, values in ratios.items()
    }
    rounds = {pair: variance_of_medians(values, sessions) for pair, values in ratios.items()}
    to_float = {pair: values for pair, values in medians.items() if REFERENCE in pair}
    between = {pair: values for pair, values in medians.items() if REFERENCE not in pair}
    alike = between if len(names) > _FEW_MODELS else medians
    found = difference_intervals(alike, rounds=rounds, level=level)
    found |= session_intervals(to_float, rounds=rounds, level=STOPPED_LEVEL)
    return {pair: (interval.low, interval.high) for pair, interval in found.items()}


def _of_one_process(values: npt.NDArray[np.float64], seed: int) -> tuple[float, float]:
    found = bootstrap_interval(values, np.zeros(len(values), np.int64), seed)
    return widened(float(np.median(values)), found, UNSEEN_SPREAD)
