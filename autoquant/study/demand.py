"""The fastest assignment that is predicted to keep an SNR."""

import time
from dataclasses import dataclass, replace

import numpy as np

from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import RegionId
from autoquant.domain.scheme import FLOAT
from autoquant.study.integer_program import fastest_within
from autoquant.study.layout import Layout
from autoquant.study.observed import effective, is_measured, observe
from autoquant.study.study import Study
from autoquant.study.surrogate import Observations, Surrogate
from autoquant.study.trust import Trust

__all__ = ["Predicted", "believe", "fastest_predicted"]

_N_FIRST = 10
_GROWTH = 1.1
_FIRST_STEP_DB, _STEP_GROWTH = 0.05, 1.5
_LEAST_PROGRAM_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What is believed of an assignment.

    Attributes:
        assignment: Scheme of each region that is not float.
        snr_db: Of the worst output.
        snr_error_db: Its standard deviation, stretched as earlier predictions were wrong.
        ratios: By target.
        ratio_errors: Their standard deviations, stretched alike.
        n_trials: That it was learned from.
        is_proven: Whether there was time to show that no assignment is predicted to be faster.
    """

    assignment: dict[RegionId, str]
    snr_db: float
    snr_error_db: float
    ratios: tuple[float, ...]
    ratio_errors: tuple[float, ...]
    n_trials: int
    is_proven: bool


def fastest_predicted(
    study: Study, layout: Layout, *, min_snr_db: float, prior: LatencyPrior | None, seconds: float
) -> Predicted:
    """Solve for the lowest mean ratio whose predicted SNR is above the demand by one standard deviation.

    The program knows no standard deviations. So it is solved for the demand, and again with ever less noise as long as
    what it finds is too uncertain: a slower assignment that is noisier but more certain is passed over.

    Args:
        study: With at least one measured trial.
        layout: Regions, schemes and borders.
        min_snr_db: The demand.
        prior: What was expected of latencies.
        seconds: For solving.
    """
    trials = [trial for trial in study.told if is_measured(trial)]
    found = observe(layout, trials)
    surrogate, trust = believe(layout, found, prior)
    asked = np.array([layout.encode(trial.params) for trial in trials])
    narrowed = replace(layout, allowed=effective(layout, asked, found.codes))
    landscape = replace(surrogate.landscape(np.random.default_rng(0), 0.0), layout=narrowed)
    weights = np.full(surrogate.n_targets, 1 / surrogate.n_targets)
    snr_stretch, ratio_stretch = trust.stretch
    end, limit_db, step_db = time.perf_counter() + seconds, min_snr_db, _FIRST_STEP_DB
    while True:
        left = max(end - time.perf_counter(), _LEAST_PROGRAM_S)
        solved = fastest_within(landscape, weights, 10 ** (-limit_db / 10), seconds=left)
        predicted = surrogate.predict(solved.codes[None])
        snr_db, error_db = float(predicted.snr_db[0]), snr_stretch * float(predicted.snr_error_db[0])
        if snr_db >= min_snr_db + error_db or not solved.codes.any():
            break
        limit_db, step_db = max(limit_db, snr_db) + step_db, step_db * _STEP_GROWTH
    schemes = layout.decode(solved.codes)
    return Predicted(
        assignment={RegionId(region): name for region, name in schemes.items() if name != FLOAT},
        snr_db=snr_db,
        snr_error_db=error_db,
        ratios=tuple(predicted.ratios[0].tolist()),
        ratio_errors=tuple((ratio_stretch * predicted.ratio_errors[0]).tolist()),
        n_trials=len(trials),
        is_proven=solved.is_proven,
    )


def believe(layout: Layout, found: Observations, prior: LatencyPrior | None) -> tuple[Surrogate, Trust]:
    """Models of all evaluations, and how well those of the earlier ones predicted the later ones.

    They are fitted to growing parts: how wide an interval must be is learned step by step.
    """
    surrogate, trust = Surrogate(layout, found.ratios.shape[1], prior), Trust()
    n, n_before = min(_N_FIRST, len(found)), 0
    while n > n_before:
        if n_before:
            new = found.of(slice(n_before, n))
            trust.compare(surrogate.predict(new.codes), new)
        surrogate.fit(found.of(slice(n)))
        n_before, n = n, min(len(found), int(n * _GROWTH) + 1)
    return surrogate, trust
