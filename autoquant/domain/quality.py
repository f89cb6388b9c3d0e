"""Signal-to-noise ratio."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.measurement import Quality, SnrInterval
from autoquant.domain.share import FEWEST_RESAMPLED, tail_of_few, wilson_interval

__all__ = ["QualityMeter", "heard", "judged", "signal_of", "snr_db", "with_snr"]

_COUNTED = "iubOUS"
"""Kinds of outputs of which equal elements are counted: integers, booleans, strings."""
_CHUNK = 1 << 14
_N_RESAMPLES = 2000
_BLOCK = 1 << 20
"""Resampled counts held at a time."""
Outputs = Sequence[npt.NDArray[np.generic]]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class QualityMeter:
    """Pools signal and noise over samples.

    SNR is ``10 log10(sum ref^2 / sum (ref - q)^2)`` per float output, over all elements of all samples at which the
    reference is finite; where it is not, any other value than its own is infinite noise. An output that is 0 on all of
    them beside others that are not has none: it counts only where a candidate's is not finite. Where no float output
    has one beside outputs that are counted, their agreement judges.

    Attributes:
        names: Output names, in the order of the outputs.
        numbers: Outputs of integers that have an SNR as floats have, being numbers and no labels.
        noise: For each sample so far, the noise power of each float output; of an output of integers, booleans or
            strings the number of elements that differ.
        signal: The power of the reference; the number of elements.

    References:
        Bennett, "Spectra of Quantized Signals", BSTJ 27(3), 1948: 6.02 dB a bit.
    """

    names: Sequence[str]
    numbers: frozenset[str] = frozenset()
    noise: list[Floats] = field(default_factory=list)
    signal: list[Floats] = field(default_factory=list)
    _kinds: str = ""

    def add(self, reference: Outputs, candidate: Outputs) -> None:
        """Count one sample; an output whose shape differs counts as all noise."""
        signal, noise = np.zeros((2, len(self.names)))
        reference, candidate = (judged(outputs, self.names, self.numbers) for outputs in (reference, candidate))
        for i, (ref, out) in enumerate(zip(reference, candidate, strict=True)):
            if ref.dtype.kind == "f":
                signal[i], noise[i] = _powers(ref, out)
            elif ref.dtype.kind in _COUNTED:
                signal[i] = max(ref.size, out.size)
                noise[i] = (ref != out).sum() if ref.shape == out.shape else signal[i]
        self._kinds = "".join(ref.dtype.kind for ref in reference)
        self.signal.append(signal)
        self.noise.append(noise)

    def merge(self, other: "QualityMeter") -> None:
        """Count the samples of another meter of the same outputs."""
        self._kinds = self._kinds or other._kinds
        self.signal.extend(other.signal)
        self.noise.extend(other.noise)

    def part(self, samples: range) -> "QualityMeter":
        """A meter of some of the samples; those that were not counted yet are left out.

        Every part judges the same outputs: one that is 0 on all samples of this part, but not on all of the others, has
        its mean power there.
        """
        chosen = slice(samples.start, samples.stop)
        noise, signal = self.noise[chosen], self.signal[chosen]
        if signal:
            is_silent, mean = np.sum(signal, axis=0) == 0, np.mean(self.signal, axis=0)
            signal = [np.where(is_silent, mean, powers) for powers in signal]
        return QualityMeter(self.names, self.numbers, noise, signal, self._kinds)

    def quality(self, shares: Floats | None = None, signal: Floats | None = None) -> Quality:
        """The pooled result.

        Args:
            shares: For each output, the share of the noise over all samples that the samples so far are expected to
                hold; 1 by default. With it the result is an estimate for all samples.
            signal: For each output, ``signal_of`` the reference on all samples, where ``shares`` is given.
        """
        if not self.noise:
            return Quality(per_output={}, agreement={}, n_samples=0)
        noise = np.sum(self.noise, axis=0) / (1.0 if shares is None else np.maximum(shares, 1e-9))
        powers = np.sum(self.signal, axis=0) if signal is None else signal
        counted = [i for i, kind in enumerate(self._kinds) if kind in _COUNTED]
        is_judged = (with_snr(self._is_float, powers) | (self._is_float & ~np.isfinite(noise))).tolist()
        return Quality(
            per_output={
                self.names[i]: snr_db(float(powers[i]), float(noise[i])) for i, judged in enumerate(is_judged) if judged
            },
            agreement={self.names[i]: float(_agreement(noise[i], powers[i])) for i in counted},
            n_samples=len(self.noise),
        )

    @property
    def _is_float(self) -> Bools:
        return np.array([kind == "f" for kind in self._kinds])

    def interval(self, seed: int) -> SnrInterval:
        """SNR of the worst output with a 95 % interval over samples, unknown of fewer than 6.

        Samples are drawn, then pooled. Where counted outputs judge, and each agrees in a sample wholly or not at all,
        it is Wilson's of that share.

        Args:
            seed: Of the resampling.
        """
        n, worst = len(self.noise), self.quality().worst_db
        if n < FEWEST_RESAMPLED:
            return SnrInterval(worst_db=worst, n_samples=n)
        low, high = self._counted_ends() or self._drawn_ends(seed)
        return SnrInterval(worst_db=worst, n_samples=n, low_db=min(low, worst), high_db=max(high, worst))

    @property
    def _has_snr(self) -> Bools:
        return with_snr(self._is_float, np.sum(self.signal, axis=0))

    @property
    def _counts(self) -> tuple[Floats, Floats]:
        """Elements that differ and elements of the outputs that are counted; shape (n, outputs)."""
        is_counted = np.array([kind in _COUNTED for kind in self._kinds])
        return np.array(self.noise)[:, is_counted], np.array(self.signal)[:, is_counted]

    def _counted_ends(self) -> tuple[float, float] | None:
        """Wilson's of the worst output; None where it doesn't hold."""
        shares = _agreement(*self._counts)
        if self._has_snr.any() or not np.isin(shares, (0, 1)).all():
            return None
        ends = np.array([wilson_interval(float(share), len(shares)) for share in shares.mean(axis=0)])
        low, high = _agreement_db(ends.reshape(-1, 2).min(axis=0, initial=1.0))
        return float(low), float(high)

    def _drawn_ends(self, seed: int) -> tuple[float, float]:
        """Percentiles of the bootstrap."""
        n, rng = len(self.noise), np.random.default_rng(seed)
        step = max(1, _BLOCK // n)
        sizes = [min(step, _N_RESAMPLES - start) for start in range(0, _N_RESAMPLES, step)]
        drawn = np.sort(np.concatenate([self._resampled(rng.multinomial(n, np.full(n, 1 / n), k)) for k in sizes]))
        beyond = int(_N_RESAMPLES * tail_of_few(n))
        return float(drawn[beyond]), float(drawn[-beyond - 1])

    def _resampled(self, counts: npt.NDArray[np.int64]) -> Floats:
        """Decibels of the worst output where each sample counts so many times; shape (resamples,).

        As in a part, an output that is 0 in all of them has its mean power.
        """
        is_judged = self._has_snr
        if not is_judged.any():
            unlike, size = self._counts
            return _agreement_db(_agreement(counts @ unlike, counts @ size).min(axis=1, initial=1.0))
        noise, signal = (np.array(powers)[:, is_judged] for powers in (self.noise, self.signal))
        with np.errstate(divide="ignore", invalid="ignore"):
            power, pooled = counts @ signal, counts @ np.where(np.isfinite(noise), noise, 0.0)
            pooled[counts @ ~np.isfinite(noise) > 0] = np.inf
            decibels = 10 * np.log10(np.where(power > 0, power, signal.sum(axis=0))) - 10 * np.log10(pooled)
        decibels[pooled == 0] = np.inf
        return np.asarray(decibels.min(axis=1))


def with_snr(is_float: Bools, signal: Floats) -> Bools:
    """Which outputs have an SNR: float ones that are not 0 throughout; all float ones where every output is 0 or empty.

    Args:
        is_float: Whether each output holds floats.
        signal: Of each, ``signal_of`` the reference on all samples.
    """
    return is_float & (signal > 0) if (signal > 0).any() else is_float


def heard(numbers: frozenset[str], names: Sequence[str], samples: Sequence[Outputs]) -> frozenset[str]:
    """Of outputs that are numbers those that are not 0 on all samples: of the others no SNR can be said."""
    return frozenset(name for i, name in enumerate(names) if name in numbers and any(out[i].any() for out in samples))


def judged(outputs: Outputs, names: Sequence[str], numbers: frozenset[str]) -> Outputs:
    """Outputs of which those that are numbers are floats."""
    if not numbers:
        return outputs
    pairs = zip(names, outputs, strict=True)
    return [out.astype(np.float64) if name in numbers else out for name, out in pairs]


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


def signal_of(reference: npt.NDArray[np.generic]) -> float:
    """Power of a float output where it is finite, number of elements of another one."""
    if reference.dtype.kind == "f":
        values = reference.astype(np.float64)
        power = float(np.square(values).sum())
        return power if math.isfinite(power) else float(np.square(values[np.isfinite(values)]).sum())
    return float(reference.size) if reference.dtype.kind in _COUNTED else 0.0


def _agreement(unlike: Floats, size: Floats) -> Floats:
    """Share of elements that are equal; all of none are."""
    return 1 - np.minimum(np.divide(unlike, size, out=np.zeros_like(unlike), where=size > 0), 1.0)


def _agreement_db(share: Floats) -> Floats:
    """Of the share of elements that are equal, infinite where all are."""
    with np.errstate(divide="ignore"):
        return np.asarray(-10 * np.log10(1 - share))


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
