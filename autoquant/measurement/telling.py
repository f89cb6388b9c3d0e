"""Which evaluation samples hold most of the noise."""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["TellingSamples"]

Floats = npt.NDArray[np.float64]
_N_LEARNED = 4


@dataclass(slots=True)
class TellingSamples:
    """Learns from the first candidates how their noise is spread over the samples.

    Where few samples hold most of it (a classifier's probabilities, say), a handful chosen at random misses it, and a
    handful of the right ones is nearly all of it.

    Attributes:
        n_samples: Of the evaluation data.
        n_outputs: Of the model.
    """

    n_samples: int
    n_outputs: int
    _learned: list[Floats] = field(default_factory=list)
    _order: list[int] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        """Whether enough candidates were seen."""
        return len(self._learned) >= _N_LEARNED

    @property
    def order(self) -> list[int]:
        """Samples, the most telling first once that is known."""
        return list(self._order) if self._order else list(range(self.n_samples))

    def learn(self, noise: Floats) -> None:
        """See the noise of one candidate on all samples, shape (n_samples, n_outputs), in the present order.

        Outputs without any tell nothing.
        """
        total = noise.sum(axis=0)
        if self.is_known or len(noise) < self.n_samples or not np.isfinite(total).all() or not (total > 0).any():
            return
        shares = np.full_like(noise, 1 / self.n_samples)
        np.divide(noise, total, out=shares, where=total > 0)
        self._learned.append(shares)
        if self.is_known:
            self._order = [int(i) for i in np.argsort(-self._mean().max(axis=1), kind="stable")]

    def shares(self, n: int) -> Floats:
        """Expected share of each output's noise in the first ``n`` samples of the order, shape (n_outputs,)."""
        if not self.is_known:
            return np.full(self.n_outputs, n / self.n_samples)
        return np.asarray(self._mean()[self._order[:n]].sum(axis=0))

    def error_db(self, n: int, output: int) -> float:
        """How far the first ``n`` samples of the order may lead astray, a standard deviation in dB.

        That is how each candidate's share of an output's noise in them differs from the mean of the others'; infinite
        until enough candidates were seen.
        """
        if not self.is_known:
            return math.inf
        held = np.maximum([shares[self._order[:n], output].sum() for shares in self._learned], 1e-9)
        others = (held.sum() - held) / (len(held) - 1)
        return float(np.sqrt(np.mean(np.square(10 * np.log10(held / others)))))

    def scatter_db(self, noise: Floats, output: int) -> float:
        """How far other samples may lead elsewhere for this candidate alone, a standard deviation in dB.

        Candidates whose noise lies in the samples where that of all others does are lucky and unlucky together; what
        departs from that is their own; 0 until enough candidates were seen.

        Args:
            noise: Of a candidate in the first samples of the order, shape (n,).
            output: Number of the output.
        """
        n, total = len(noise), noise.sum()
        if not self.is_known or n < 2 or not 0 < total < math.inf:
            return 0.0
        expected = np.maximum(self._mean()[self._order[:n], output], 1e-9)
        departures = noise / total - expected / expected.sum()
        return float(10 / math.log(10) * np.sqrt(n / (n - 1) * np.square(departures).sum()))

    def _mean(self) -> Floats:
        return np.asarray(np.mean(self._learned, axis=0))
