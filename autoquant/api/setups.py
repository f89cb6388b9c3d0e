"""What the processes that measure are made from."""

import math

from autoquant.api.configuration import Configuration
from autoquant.api.data import SearchData
from autoquant.api.evaluator_setup import EvaluatorSetup
from autoquant.api.scoring import FileScorerSetup
from autoquant.domain.division import Division
from autoquant.domain.objective import Bounds
from autoquant.measurement.files import FileBenchSetup

__all__ = ["evaluator_setup", "file_bench_setup"]

_FLOAT_SHARE = 0.15
"""Of the budget, for running the float model on the evaluation samples, held-out ones of the last measurement too."""


def evaluator_setup(
    asked: Configuration,
    data: SearchData,
    *,
    numbers: frozenset[str] = frozenset(),
    is_thorough: bool = False,
    n_samples: int | None = None,
) -> EvaluatorSetup:
    """For trials.

    Args:
        asked: Of the search.
        data: Its samples.
        numbers: Outputs of integers that are numbers and no labels.
        is_thorough: Whether the first trials run every sample, however many there are.
        n_samples: Evaluation samples that an earlier run had time for; None to take as many as there is time for.
    """
    n_search, n_held_out = len(data.search), 0 if data.held_out is None else len(data.held_out)
    budget_s = math.inf if asked.budget.seconds is None else asked.budget.seconds
    found = EvaluatorSetup(
        model=asked.model,
        samples=data.search,
        targets=asked.targets,
        seed=asked.seed,
        held_out=data.held_out,
        seconds=_FLOAT_SHARE * budget_s * n_search / (n_search + n_held_out),
        metrics=asked.metrics,
        has_drops=bool(asked.max_drops or asked.objectives.metrics),
        objectives=asked.objectives,
        is_thorough=is_thorough,
        bounds=_bounds_beside(asked),
        numbers=numbers,
    )
    return found if n_samples is None else found.pinned(n_samples)


def _bounds_beside(asked: Configuration) -> Bounds:
    """What is demanded of anything but the objectives that every search has; of the SNR, where it is no objective."""
    return Bounds(
        min_snr_db=None if asked.objectives.has_snr else asked.bounds.min_snr_db,
        max_size_bytes=asked.bounds.max_size_bytes,
        max_drops=asked.bounds.max_drops,
    )


def file_bench_setup(
    asked: Configuration, data: SearchData, division: Division, numbers: frozenset[str]
) -> FileBenchSetup:
    """For the last measurement."""
    feeds = data.feeds(division)
    scorer = FileScorerSetup(
        metrics=asked.metrics, feeds=feeds, labels=data.labels(division), division=division, seed=asked.seed
    )
    return FileBenchSetup(
        baseline=asked.model,
        feeds=feeds,
        targets=asked.targets,
        seed=asked.seed,
        make_scorer=scorer if asked.metrics else None,
        sample_names=data.names(division),
        numbers=numbers,
    )
