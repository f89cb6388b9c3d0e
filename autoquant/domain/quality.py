"""Signal-to-noise ratio."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.measurement import Quality

__all__ = ["QualityMeter", "snr_db"]

_CHUNK = 1 << 14
Outputs = Sequence[npt.NDArray[np.generic]]
Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class QualityMeter:
    """Pools signal and noise over samples.

    SNR is ``10 log10(sum ref^2 / sum (ref - q)^2)`` per float output, over all elements of all samples.

    Attributes:
        names: Output names, in the order of the outputs.
        noise: For each sample so far, the noise power of each output; 0 for outputs that are not float.

    References:
        Bennett, "Spectra of Quantized Signals", BSTJ 27(3), 1948: 6.02 dB a bit.
    """

    names: Sequence[str]
    noise: list[Floats] = field(default_factory=list)
    _signal: dict[str, float] = field(default_factory=dict)
    _equal: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, reference: Outputs, candidate: Outputs) -> None:
        """Count one sample; an output whose shape differs counts as all noise."""
        noises = np.zeros(len(self.names))
        for i, (name, ref, out) in enumerate(zip(self.names, reference, candidate, strict=True)):
            if ref.dtype.kind == "f":
                signal, noises[i] = _powers(ref, out)
                self._signal[name] = self._signal.get(name, 0.0) + signal
            elif ref.dtype.kind in "iub":
                same = int((ref == out).sum()) if ref.shape == out.shape else 0
                equal, total = self._equal.get(name, (0, 0))
                self._equal[name] = (equal + same, total + ref.size)
        self.noise.append(noises)

    def merge(self, other: "QualityMeter") -> None:
        """Count the samples of another meter of the same outputs."""
        self.noise.extend(other.noise)
        for name, signal in other._signal.items():
            self._signal[name] = self._signal.get(name, 0.0) + signal
        for name, (same, size) in other._equal.items():
            equal, total = self._equal.get(name, (0, 0))
            self._equal[name] = (equal + same, total + size)

    def quality(self, shares: Floats | None = None, signal: Floats | None = None) -> Quality:
        """The pooled result.

        Args:
            shares: For each output, the share of the noise over all samples that the samples so far are expected to
                hold; 1 by default. With it the result is an estimate for all samples.
            signal: For each output, the signal power over all samples, where ``shares`` is given.
        """
        total = np.sum(self.noise, axis=0) if self.noise else np.zeros(len(self.names))
        found: dict[str, float] = {}
        for i, name in enumerate(self.names):
            if name in self._signal:
                noise = float(total[i]) / (1.0 if shares is None else max(float(shares[i]), 1e-9))
                found[name] = snr_db(self._signal[name] if signal is None else float(signal[i]), noise)
        return Quality(
            per_output=found,
            agreement={name: equal / max(total_, 1) for name, (equal, total_) in self._equal.items()},
            n_samples=len(self.noise),
        )


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


def _powers(reference: npt.NDArray[np.generic], candidate: npt.NDArray[np.generic]) -> tuple[float, float]:
    """Power of the reference and of the difference, in double precision, chunk by chunk so that all stays in cache."""
    ref, out = reference.reshape(-1), candidate.reshape(-1)
    is_equal_shape = reference.shape == candidate.shape
    signal = noise = 0.0
    buffer = np.empty(min(_CHUNK, max(ref.size, 1)))
    for start in range(0, ref.size, _CHUNK):
        part = ref[start : start + _CHUNK]
        held = buffer[: part.size]
        np.multiply(part, part, out=held, dtype=np.float64)
        signal += float(held.sum())
        if is_equal_shape:
            np.subtract(part, out[start : start + _CHUNK], out=held, dtype=np.float64)
            noise += float(np.square(held, out=held).sum())
    return signal, noise if is_equal_shape and math.isfinite(noise) else math.inf
