"""Which evaluation samples hold most of the noise."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
import numpy.typing as npt
from scipy.special import polygamma

__all__ = ["TellingSamples"]

Floats = npt.NDArray[np.float64]
_N_LEARNED = 4
_UNLIKE = 1.25
"""Ratio of sizes from which on they count as unlike."""
_LEAST_SAMPLES = 2
_GAMMA_SHAPES = np.geomspace(1e4, 0.05, 400)
"""Of gamma distributions: from hardly any variance to much more than the square of one normal number has (0.5)."""
_LOG_VARIANCES = polygamma(1, _GAMMA_SHAPES)
_TO_DB = 10 / math.log(10)


@dataclass(slots=True)
class TellingSamples:
    """Learns from the first candidates how their noise is spread over the samples.

    Where few samples hold most of it (a classifier's probabilities, say), a handful chosen at random misses it, and a
    handful of the right ones is nearly all of it.

    The first samples of the order are those that candidates are timed on, too. Where samples differ in size, and with
    it in how much faster integers are, it takes middle, small and large ones in turn.

    Attributes:
        n_samples: Of the evaluation data.
        n_outputs: Of the model.
        sizes: Elements of each sample; none where all are alike.
    """

    n_samples: int
    n_outputs: int
    sizes: Sequence[int] = ()
    _learned: list[Floats] = field(default_factory=list)
    _order: list[int] = field(default_factory=list)
    _shapes: list[float] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        """Whether enough candidates were seen."""
        return len(self._learned) >= _N_LEARNED

    @property
    def order(self) -> list[int]:
        """Samples, the most telling first once that is known."""
        return list(self._order) if self._order else self._in_turn(range(self.n_samples))

    def learn(self, noise: Floats) -> None:
        """See the noise of one candidate on all samples, shape (n_samples, n_outputs), in the present order.

        Outputs without any tell nothing.
        """
        total = noise.sum(axis=0)
        if self.is_known or len(noise) < self.n_samples or not np.isfinite(total).all() or not (total > 0).any():
            return
        shares = np.full_like(noise, 1 / self.n_samples)
        np.divide(noise, total, out=shares, where=total > 0)
        self._learned.append(shares[np.argsort(self.order)])
        if self.is_known:
            self._order = self._in_turn(np.argsort(-self._mean().max(axis=1), kind="stable").tolist())
            self._shapes = [_shape(np.stack(self._learned)[:, :, output]) for output in range(self.n_outputs)]

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
        departs from that is their own. It is seen in this candidate's noise, and in how much that of single samples
        differs from candidate to candidate; the larger one counts. The first says nothing where one sample holds all
        of the noise, and too little of a candidate that has little in all of them, by luck; 0 until enough candidates
        were seen.

        Args:
            noise: Of a candidate in the first samples of the order, shape (n,).
            output: Number of the output.

        References:
            Bartlett, Kendall, "The Statistical Analysis of Variance-Heterogeneity and the Logarithmic Transformation",
            1946: the variance of the logarithm of a power; Satterthwaite, "An Approximate Distribution of Estimates of
            Variance Components", 1946: of a sum of unequal ones.
        """
        n, total = len(noise), noise.sum()
        if not self.is_known or n < 2 or not 0 < total < math.inf:
            return 0.0
        expected = np.maximum(self._mean()[self._order[:n], output], 1e-9)
        expected /= expected.sum()
        own = math.sqrt(n / (n - 1) * np.square(noise / total - expected).sum())
        usual = math.sqrt(polygamma(1, self._shapes[output] / np.square(expected).sum()))
        return _TO_DB * max(own, usual)

    def _in_turn(self, samples: Sequence[int]) -> list[int]:
        """The same samples, those of each third by size in the order that they have; equal sizes are in one third."""
        sizes = sorted(self.sizes[: self.n_samples])
        if not sizes or sizes[-1] < _UNLIKE * sizes[0]:
            return list(samples)
        third_of = [bisect_left(sizes, size) * 3 // len(sizes) for size in self.sizes[: self.n_samples]]
        thirds = [[i for i in samples if third_of[i] == third] for third in (1, 0, 2)]
        return [i for each in zip_longest(*thirds) for i in each if i is not None]

    def _mean(self) -> Floats:
        return np.asarray(np.mean(self._learned, axis=0))


def _shape(shares: Floats) -> float:
    """Of the gamma distribution of one sample's noise over candidates: half its degrees of freedom.

    From the logarithms, without what a candidate's samples have in common and what candidates have in common in a
    sample; infinite where nothing is left of them.

    Args:
        shares: Of each candidate's noise in each sample; shape (candidates, n).
    """
    logs = np.log(shares[:, (shares > 0).all(axis=0)])
    if logs.shape[1] < _LEAST_SAMPLES:
        return math.inf
    logs = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    variance = np.square(logs).sum() / ((len(logs) - 1) * (logs.shape[1] - 1))
    return float(np.interp(variance, _LOG_VARIANCES, _GAMMA_SHAPES)) if variance > _LOG_VARIANCES[0] else math.inf
