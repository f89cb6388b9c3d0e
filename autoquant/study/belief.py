"""What evaluations are believed to be: luck of measurements is taken back as far as the models know better."""

from dataclasses import replace

import numpy as np

from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.surrogate import Observations, Surrogate
from autoquant.study.trust import Trust

__all__ = ["believed", "luck_of"]

_LEAST_MISFIT = 0.003
"""Standard deviation of a ratio around the model that is none of the measurement, at least."""
_N_PRIOR = 4.0
"""Ratios of equal kernels that differ as their standard errors say, added to those that were measured."""
_LUCKIEST = 3.0
"""What is farther off than so many standard deviations of luck is the model's misfit."""
_NORMAL = 0.6745
"""Median distance of a normal number from its mean, in standard deviations."""


def believed(found: Observations, snr_errors_db: Floats, surrogate: Surrogate, trust: Trust) -> Observations:
    """Evaluations with the worst output's SNR alone, and both it and the ratios moved towards what the models predict.

    Each number is the mean of what was measured and what is predicted, weighed by their variances. An SNR that was
    measured errs by what its samples leave open, as the trial says it; a ratio by the luck of its session too, which is
    seen in ratios of candidates that run the same kernels. A prediction errs by what evaluations scatter around the
    model beyond that.

    Args:
        found: At least one evaluation.
        snr_errors_db: What the samples of each leave open of its SNR; shape (n,).
        surrogate: Fitted to them.
        trust: What they said of its predictions.
    """
    landscape = surrogate.landscape()
    predicted_db = -10 * np.log10(landscape.noise_of(found.codes).max(axis=1))
    share = _share(np.square(trust.stretch[0] * surrogate.scatter_db), np.square(snr_errors_db))
    snr_db = predicted_db + share * (found.snr_db.min(axis=1) - predicted_db)
    predicted = landscape.ratios_of(found.codes)
    distances, luck = found.ratios - predicted, luck_of(surrogate.layout, found)
    misfit = np.maximum(_usual_square(distances) - luck, _LEAST_MISFIT**2)
    misfit = np.maximum(misfit, np.square(distances) - _LUCKIEST**2 * luck)
    return replace(found, snr_db=snr_db[:, None], ratios=predicted + _share(misfit, luck) * distances)


def _share(prior: Floats, noise: Floats) -> Floats:
    """Of what was measured in the mean with what is predicted, from the variances of both."""
    return np.asarray(prior / (prior + noise))


def luck_of(layout: Layout, found: Observations) -> Floats:
    """Variance of one ratio around the mean of those with the same kernels in every region, by target; shape (T,)."""
    timed = found.of(np.flatnonzero(found.is_timed & ~found.is_quick))
    numbers: dict[bytes, int] = {}
    groups = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in _kernels(layout, timed.codes)], int)
    counts = np.bincount(groups)
    means = [np.bincount(groups, ratios) / counts for ratios in timed.ratios.T]
    squares = np.square(timed.ratios.T - [mean[groups] for mean in means]).sum(axis=1)
    said = np.square(timed.errors).mean(axis=0) if len(timed) else 0.0
    return np.asarray((_N_PRIOR * said + squares) / (_N_PRIOR + len(timed) - len(counts)))


def _kernels(layout: Layout, codes: Codes) -> Codes:
    """Numbers that are equal where regions run the same kernels; shape (n, R)."""
    return np.asarray(layout.kinds[codes] * (1 + layout.formats.max()) + layout.formats[codes])


def _usual_square(distances: Floats) -> Floats:
    """Variance of normal numbers of this median distance, by target, shape (T,); 0 where there are none."""
    known = distances[np.isfinite(distances).all(axis=1)]
    return np.square(np.median(np.abs(known), axis=0) / _NORMAL) if len(known) else np.zeros(distances.shape[1])
