"""Signal-to-noise ratio."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.measurement import Quality, SnrInterval

__all__ = ["QualityMeter", "snr_db"]

_COUNTED = "iubOUS"
"""Kinds of outputs of which equal elements are counted: integers, booleans, strings."""
_CHUNK = 1 << 14
_N_RESAMPLES = 2000
_BLOCK = 1 << 20
"""Resampled counts held at a time."""
Outputs = Sequence[npt.NDArray[np.generic]]
Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class QualityMeter:
    """Pools signal and noise over samples.

    SNR is ``10 log10(sum ref^2 / sum (ref - q)^2)`` per float output, over all elements of all samples.

    Attributes:
        names: Output names, in the order of the outputs.
        noise: For each sample so far, the noise power of each output; 0 for outputs that are not float.
        signal: The same of the reference.

    References:
        Bennett, "Spectra of Quantized Signals", BSTJ 27(3), 1948: 6.02 dB a bit.
    """

    names: Sequence[str]
    noise: list[Floats] = field(default_factory=list)
    signal: list[Floats] = field(default_factory=list)
    _equal: list[Floats] = field(default_factory=list)
    _size: list[Floats] = field(default_factory=list)
    _kinds: str = ""

    def add(self, reference: Outputs, candidate: Outputs) -> None:
        """Count one sample; an output whose shape differs counts as all noise."""
        signal, noise, equal, size = np.zeros((4, len(self.names)))
        for i, (_, ref, out) in enumerate(zip(self.names, reference, candidate, strict=True)):
            if ref.dtype.kind == "f":
                signal[i], noise[i] = _powers(ref, out)
            elif ref.dtype.kind in _COUNTED:
                equal[i] = (ref == out).sum() if ref.shape == out.shape else 0
                size[i] = max(ref.size, out.size)
        self._kinds = "".join(ref.dtype.kind for ref in reference)
        self.signal.append(signal)
        self.noise.append(noise)
        self._equal.append(equal)
        self._size.append(size)

    def merge(self, other: "QualityMeter") -> None:
        """Count the samples of another meter of the same outputs."""
        self._kinds = self._kinds or other._kinds
        self.signal.extend(other.signal)
        self.noise.extend(other.noise)
        self._equal.extend(other._equal)
        self._size.extend(other._size)

    def part(self, samples: range) -> "QualityMeter":
        """A meter of some of the samples; those that were not counted yet are left out."""
        chosen = slice(samples.start, samples.stop)
        return QualityMeter(
            self.names, self.noise[chosen], self.signal[chosen], self._equal[chosen], self._size[chosen], self._kinds
        )

    def quality(self, shares: Floats | None = None, signal: Floats | None = None) -> Quality:
        """The pooled result.

        Args:
            shares: For each output, the share of the noise over all samples that the samples so far are expected to
                hold; 1 by default. With it the result is an estimate for all samples.
            signal: For each output, the signal power over all samples, where ``shares`` is given.
        """
        if not self.noise:
            return Quality(per_output={}, agreement={}, n_samples=0)
        noise = np.sum(self.noise, axis=0) / (1.0 if shares is None else np.maximum(shares, 1e-9))
        powers = np.sum(self.signal, axis=0) if signal is None else signal
        agreement = _shares(np.sum(self._equal, axis=0), np.sum(self._size, axis=0))
        outputs = list(zip(self.names, self._kinds, range(len(self.names)), strict=True))
        return Quality(
            per_output={name: snr_db(float(powers[i]), float(noise[i])) for name, kind, i in outputs if kind == "f"},
            agreement={name: float(agreement[i]) for name, kind, i in outputs if kind in _COUNTED},
            n_samples=len(self.noise),
        )

    def interval(self, seed: int) -> SnrInterval:
        """SNR of the worst output with percentiles of the bootstrap: samples are drawn, then pooled.

        Args:
            seed: Of the resampling.

        References:
            Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 5.3.
        """
        n, worst = len(self.noise), self.quality().worst_db
        if n < 2:
            return SnrInterval(worst_db=worst, n_samples=n)
        rng = np.random.default_rng(seed)
        step = max(1, _BLOCK // n)
        sizes = [min(step, _N_RESAMPLES - start) for start in range(0, _N_RESAMPLES, step)]
        drawn = np.sort(np.concatenate([self._resampled(rng.multinomial(n, np.full(n, 1 / n), k)) for k in sizes]))
        low, high = float(drawn[_N_RESAMPLES // 40]), float(drawn[-_N_RESAMPLES // 40 - 1])
        return SnrInterval(worst_db=worst, n_samples=n, low_db=min(low, worst), high_db=max(high, worst))

    def _resampled(self, counts: npt.NDArray[np.int64]) -> Floats:
        """Decibels of the worst output where each sample counts so many times; shape (resamples,)."""
        is_float = np.array([kind == "f" for kind in self._kinds])
        with np.errstate(divide="ignore", invalid="ignore"):
            if is_float.any():
                noise, signal = (np.array(powers)[:, is_float] for powers in (self.noise, self.signal))
                pooled = counts @ np.where(np.isfinite(noise), noise, 0.0)
                pooled[counts @ ~np.isfinite(noise) > 0] = np.inf
                decibels = 10 * np.log10(counts @ signal) - 10 * np.log10(pooled)
                decibels[pooled == 0] = np.inf
            else:
                is_counted = np.array([kind in _COUNTED for kind in self._kinds])
                equal, size = (np.array(values)[:, is_counted] for values in (self._equal, self._size))
                decibels = -10 * np.log10(1 - _shares(counts @ equal, counts @ size))
        return np.asarray(decibels.min(axis=1, initial=np.inf))


def snr_db(signal: float, noise: float) -> float:
    """Decibels from two powers; infinite where there is no noise.

    >>> snr_db(100.0, 1.0)
    20.0
    """
    if noise == 0:
        return math.inf
    if signal == 0 or not math.isfinite(noise):
        return -math.inf
    return 10 * math.log10(signal / noise)


def _shares(equal: Floats, size: Floats) -> Floats:
    """Of elements that are equal; all of none are."""
    return np.divide(equal, size, out=np.ones_like(equal), where=size > 0)


def _powers(reference: npt.NDArray[np.generic], candidate: npt.NDArray[np.generic]) -> tuple[float, float]:
    """Power of the reference and of the difference, in double precision, chunk by chunk so that all stays in cache."""
    ref, out = reference.reshape(-1), candidate.reshape(-1)
    is_equal_shape = reference.shape == candidate.shape
    signal = noise = 0.0
    buffer = np.empty(min(_CHUNK, max(ref.size, 1)))
    for start in range(0, ref.size, _CHUNK):
        part = ref[start : start + _CHUNK]
        held = buffer[: part.size]
        with np.errstate(over="ignore"):  # of doubles
            np.multiply(part, part, out=held, dtype=np.float64)
        signal += float(held.sum())
        if is_equal_shape:
            with np.errstate(invalid="ignore", over="ignore"):  # of infinities
                np.subtract(part, out[start : start + _CHUNK], out=held, dtype=np.float64)
                noise += float(np.square(held, out=held).sum())
    if is_equal_shape and not math.isfinite(signal) and not np.isfinite(ref).all():
        return _finite_powers(ref, out)
    return signal, noise if is_equal_shape and math.isfinite(noise) else math.inf


def _finite_powers(reference: npt.NDArray[np.generic], candidate: npt.NDArray[np.generic]) -> tuple[float, float]:
    """The same where the reference is finite; where it is not, any difference is infinite noise."""
    is_finite = np.isfinite(reference)
    if not np.array_equal(reference[~is_finite], candidate[~is_finite], equal_nan=True):
        return 0.0, math.inf
    return _powers(reference[is_finite], candidate[is_finite])
