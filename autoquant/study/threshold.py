"""The SNR from which on demands on metrics are kept."""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, logsumexp

from autoquant.study.layout import Floats

__all__ = ["Threshold"]

_AT_DB = np.arange(-10.0, 91.0)
_WIDTHS_DB = np.array([0.5, 1.5, 4.0])
_LAPSES = np.array([0.02, 0.15, 0.4])
_LAPSES_PRIOR = np.array([0.9, 0.08, 0.02])
"""Shares of trials on the wrong side of it, however far, and how likely they are."""
_UNLIKELY = 0.2


@dataclass(slots=True)
class Threshold:
    """Bayesian: the chance that demands are kept rises with the SNR, at an unknown place, over an unknown width.

    With how many exceptions is unknown too, so that a metric that has nothing to do with the SNR says little of it.

    References:
        Wichmann and Hill, "The psychometric function: I. Fitting, sampling, and goodness of fit", 2001.
    """

    _log_share: Floats = field(
        default_factory=lambda: np.tile(np.log(_LAPSES_PRIOR)[:, None, None], (len(_WIDTHS_DB), len(_AT_DB)))
    )

    def learn(self, snr_db: float, *, is_kept: bool) -> None:
        """Count a trial."""
        sign = 1 if is_kept else -1
        likely = expit(sign * (snr_db - _AT_DB) / _WIDTHS_DB[:, None])
        self._log_share += np.log(_LAPSES[:, None, None] + (1 - 2 * _LAPSES[:, None, None]) * likely)

    def chances(self, snr_db: Floats) -> Floats:
        """That demands are kept at these SNRs; shape (n,)."""
        share = np.exp(self._log_share - logsumexp(self._log_share))
        lapsed = _LAPSES @ share.sum(axis=(1, 2))
        likely = expit((snr_db[:, None, None] - _AT_DB) / _WIDTHS_DB[:, None])
        return np.asarray(lapsed + np.tensordot(likely, np.tensordot(1 - 2 * _LAPSES, share, 1), 2))

    def lowest_db(self) -> float:
        """SNR below which it is unlikely that demands are kept."""
        chances = self.chances(_AT_DB)
        return float(_AT_DB[min(int(np.searchsorted(chances, _UNLIKELY)), len(_AT_DB) - 1)])
