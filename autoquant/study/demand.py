"""The fastest assignment that is predicted to keep an SNR."""

import math
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
from optuna.trial import TrialState

from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import RegionId
from autoquant.domain.scheme import FLOAT
from autoquant.study.belief import luck_of
from autoquant.study.failing import Suspects
from autoquant.study.integer_program import Fastest, fastest_within
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.observed import effective, is_measured, observe, says_failed, snr_errors_of
from autoquant.study.study import Study
from autoquant.study.surrogate import Observations, Prediction, Surrogate
from autoquant.study.trust import Trust, believe

__all__ = ["Predicted", "fastest_predicted"]

_FIRST_STEP_DB, _STEP_GROWTH = 0.05, 1.5
_LEAST_PROGRAM_S = 0.1
_LEAST_SNR_ERROR_DB, _LEAST_RATIO_ERROR = 0.5, 0.003
"""Of what one trial measures."""
_MOST_DB = 2000.0
"""Powers beyond are no doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What is believed of an assignment.

    Attributes:
        assignment: Scheme of each region that is not float.
        snr_db: Of the worst output.
        snr_error_db: Its standard deviation over other samples, stretched as earlier predictions were wrong.
        ratios: By target.
        ratio_errors: Their standard deviations over other measurements, stretched alike.
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
    study: Study,
    layout: Layout,
    *,
    min_snr_db: float,
    prior: LatencyPrior | None,
    seconds: float,
    process_errors: Sequence[float] = (),
) -> Predicted:
    """The lowest mean ratio of what is predicted to keep the demand with a margin of one standard deviation.

    The margin is of the models alone: what is told of the prediction has what samples leave open and the luck of a
    measurement too. What is found is either the solution of an integer program or, where it is faster by its own
    measurement with a margin of one standard deviation too, an assignment that was evaluated. What was measured to the
    end and misses the demand, or failed, is neither; nor is in the solution what alone can be the cause of failures, or
    never ran as asked.

    Args:
        study: With at least one measured trial.
        layout: Regions, schemes and borders.
        min_snr_db: The demand.
        prior: What was expected of latencies.
        seconds: For solving.
        process_errors: Standard deviations of the ratio's logarithm between processes, by target; all trials are of
            one process, which does not show them.
    """
    trials = [trial for trial in study.told if is_measured(trial)]
    found, asked = observe(layout, trials), np.array([layout.encode(trial.params) for trial in trials])
    snr_errors_db = np.maximum(snr_errors_of(trials), _LEAST_SNR_ERROR_DB)
    beliefs = _Beliefs(*believe(layout, found, prior), found, snr_errors_db, process_errors)
    below = (found.snr_db.min(axis=1) < min_snr_db) & ~found.is_quick
    told = [trial for trial in study.told if trial.state is TrialState.FAIL]
    failed = np.array([layout.encode(trial.params) for trial in told], dtype=np.int64).reshape(-1, len(layout.regions))
    missed = {codes.tobytes() for codes in (*failed, *asked[below], *found.codes[below]) if codes.any()}
    ran = np.concatenate([asked, found.codes])
    fails = Suspects.of(layout, failed, ran, [says_failed(trial) for trial in told]).certain
    narrowed = replace(layout, allowed=effective(layout, asked, found.codes) & ~fails)
    solved = beliefs.solve(narrowed, min_snr_db, missed, seconds)
    codes, predicted, i = solved.codes, beliefs.predict(solved.codes[None]), 0
    known = beliefs.evaluated()
    is_kept = [
        (ran.any() or not a.any()) and missed.isdisjoint((a.tobytes(), ran.tobytes()))
        for a, ran in zip(asked, found.codes, strict=True)
    ]
    may = np.array(is_kept) & ~found.is_quick & (known.snr_db >= min_snr_db + known.snr_error_db)
    fastest = int(np.argmin(np.where(may, _at_most(known), np.inf)))
    if may[fastest] and _at_most(known)[fastest] < _at_most(predicted)[0]:
        codes, predicted, i = asked[fastest], known, fastest
    snr_db, snr_error_db = float(predicted.snr_db[i]), float(predicted.snr_error_db[i])
    of_float = np.flatnonzero(~asked.any(axis=1) & ~found.is_quick)
    if of_float.size and not codes.any():  # of which the surrogate knows a constant alone
        snr_db, snr_error_db = float(found.snr_db[of_float[-1]].min()), float(beliefs.snr_errors_db[of_float[-1]])
    return Predicted(
        assignment={RegionId(region): name for region, name in layout.decode(codes).items() if name != FLOAT},
        snr_db=snr_db,
        snr_error_db=math.hypot(snr_error_db, float(np.median(beliefs.snr_errors_db))),
        ratios=tuple(predicted.ratios[i].tolist()),
        ratio_errors=tuple(
            np.sqrt(np.square(predicted.ratio_errors[i]) + beliefs.luck_at(predicted.ratios[i])).tolist()
        ),
        n_trials=len(trials),
        is_proven=solved.is_proven,
    )


@dataclass(frozen=True, slots=True)
class _Beliefs:
    """Fitted models, and what they were fitted to."""

    surrogate: Surrogate
    trust: Trust
    found: Observations
    snr_errors_db: Floats
    process_errors: Sequence[float]

    def luck_at(self, ratios: Floats) -> Floats:
        """Variance of measured ratios, shape (..., T), for what trials of the same kernels, or processes, differ by.

        Trials are of one process, which may not show what a session has by luck: it is at least what processes show.
        """
        least = np.square(ratios * (np.asarray(self.process_errors) if self.process_errors else 0.0))
        return np.maximum(np.maximum(least, _LEAST_RATIO_ERROR**2), luck_of(self.surrogate.layout, self.found))

    def predict(self, codes: Codes) -> Prediction:
        """With errors as large as those of earlier predictions."""
        predicted = self.surrogate.predict(codes)
        snr_stretch, ratio_stretch = self.trust.stretch
        return replace(
            predicted,
            snr_error_db=snr_stretch * predicted.snr_error_db,
            ratio_errors=ratio_stretch * predicted.ratio_errors,
        )

    def evaluated(self) -> Prediction:
        """Of the evaluated assignments: what is predicted and what was measured, weighted by their variances.

        A ratio is predicted from the other evaluations, an SNR from its own too. The fastest measured one is a lucky
        one, so that its luck is in its variance (decision 0037).
        """
        predicted, found = self.predict(self.found.codes), self.found
        snr_db, snr_error_db = _combined(
            predicted.snr_db, predicted.snr_error_db, found.snr_db.min(axis=1), self.snr_errors_db
        )
        ratios, errors = self.surrogate.left_out(found)
        measured_errors = np.sqrt(np.maximum(np.square(found.errors), self.luck_at(found.ratios)))
        ratios, errors = _combined(ratios, self.trust.stretch[1] * errors, found.ratios, measured_errors)
        return Prediction(snr_db, snr_error_db, ratios, errors)

    def solve(self, layout: Layout, min_snr_db: float, missed: Set[bytes], seconds: float) -> Fastest:
        """Solve for the demand, and again with ever less noise as long as what is found is too uncertain.

        The program knows no standard deviations: a slower assignment that is noisier but more certain is passed over.
        """
        landscape = replace(self.surrogate.landscape(), layout=layout)
        weights = np.full(self.surrogate.n_targets, 1 / self.surrogate.n_targets)
        end, limit_db, step_db = time.perf_counter() + seconds, min_snr_db, _FIRST_STEP_DB
        excluded: list[Codes] = []
        while True:
            left = max(end - time.perf_counter(), _LEAST_PROGRAM_S)
            noise = 10 ** (-float(np.clip(limit_db, -_MOST_DB, _MOST_DB)) / 10)
            solved = fastest_within(landscape, weights, noise, seconds=left, excluded=excluded)
            if solved.codes.tobytes() in missed:
                if time.perf_counter() > end:
                    return Fastest(np.zeros_like(solved.codes), is_proven=False)
                excluded.append(solved.codes)
                continue
            predicted = self.predict(solved.codes[None])
            snr_db, error_db = float(predicted.snr_db[0]), float(predicted.snr_error_db[0])
            if snr_db >= min_snr_db + error_db or not solved.codes.any():
                return solved
            limit_db, step_db = max(limit_db, snr_db) + step_db, step_db * _STEP_GROWTH


def _at_most(predicted: Prediction) -> Floats:
    """Mean ratio with a margin of one standard deviation; shape (n,)."""
    return np.asarray((predicted.ratios + predicted.ratio_errors).mean(axis=1))


def _combined(first: Floats, first_error: Floats, second: Floats, second_error: Floats) -> tuple[Floats, Floats]:
    """Mean of two estimates and its standard error."""
    share = np.square(first_error) / (np.square(first_error) + np.square(second_error))
    return first + share * (second - first), np.sqrt(share) * second_error
