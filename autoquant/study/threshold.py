"""The SNR from which on demands on metrics are kept."""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, logsumexp

from autoquant.study.layout import Floats

__all__ = ["Threshold"]

_AT_DB = np.arange(-10.0, 91.0)
_WIDTHS_DB = np.array([0.5, 1.5, 4.0])
_LAPSE = 0.02
"""Share of trials on the wrong side of it, however far."""
_UNLIKELY = 0.2


@dataclass(slots=True)
class Threshold:
    """Bayesian: the chance that demands are kept rises with the SNR, at an unknown place and over an unknown width.

    References:
        Wichmann and Hill, "The psychometric function: I. Fitting, sampling, and goodness of fit", 2001.
    """

    _log_likelihood: Floats = field(default_factory=lambda: np.zeros((len(_WIDTHS_DB), len(_AT_DB))))

    def learn(self, snr_db: float, *, is_kept: bool) -> None:
        """Count a trial."""
        likely = expit((snr_db - _AT_DB) / _WIDTHS_DB[:, None])
        likely = _LAPSE + (1 - 2 * _LAPSE) * (likely if is_kept else 1 - likely)
        self._log_likelihood += np.log(likely)

    def chances(self, snr_db: Floats) -> Floats:
        """That demands are kept at these SNRs; shape (n,)."""
        share = np.exp(self._log_likelihood - logsumexp(self._log_likelihood))
        return np.asarray(np.tensordot(expit((snr_db[:, None, None] - _AT_DB) / _WIDTHS_DB[:, None]), share, 2))

    def lowest_db(self) -> float:
        """SNR below which it is unlikely that demands are kept."""
        chances = self.chances(_AT_DB)
        return float(_AT_DB[min(int(np.searchsorted(chances, _UNLIKELY)), len(_AT_DB) - 1)])
