"""Signal-to-noise ratio."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.measurement import Quality

__all__ = ["QualityMeter"]

Outputs = Sequence[npt.NDArray[np.generic]]


@dataclass(slots=True)
class QualityMeter:
    """Pools signal and noise over samples.

    SNR is ``10 log10(sum ref^2 / sum (ref - q)^2)`` per float output, over all elements of all samples.

    Attributes:
        names: Output names, in the order of the outputs.

    References:
        Bennett, "Spectra of Quantized Signals", BSTJ 27(3), 1948: 6.02 dB a bit.
    """

    names: Sequence[str]
    n_samples: int = 0
    _signal: dict[str, float] = field(default_factory=dict)
    _noise: dict[str, float] = field(default_factory=dict)
    _equal: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, reference: Outputs, candidate: Outputs) -> None:
        """Count one sample; an output whose shape differs counts as all noise."""
        self.n_samples += 1
        for name, ref, out in zip(self.names, reference, candidate, strict=True):
            if ref.dtype.kind == "f":
                signal, noise = _powers(ref, out)
                self._signal[name] = self._signal.get(name, 0.0) + signal
                self._noise[name] = self._noise.get(name, 0.0) + noise
            elif ref.dtype.kind in "iub":
                same = int((ref == out).sum()) if ref.shape == out.shape else 0
                equal, total = self._equal.get(name, (0, 0))
                self._equal[name] = (equal + same, total + ref.size)

    def quality(self) -> Quality:
        """The pooled result."""
        return Quality(
            per_output={name: _decibels(self._signal[name], noise) for name, noise in self._noise.items()},
            agreement={name: equal / max(total, 1) for name, (equal, total) in self._equal.items()},
            n_samples=self.n_samples,
        )


def _powers(reference: npt.NDArray[np.generic], candidate: npt.NDArray[np.generic]) -> tuple[float, float]:
    ref = reference.astype(np.float64)
    signal = float(np.vdot(ref, ref))
    if reference.shape != candidate.shape:
        return signal, math.inf
    difference = ref - candidate.astype(np.float64)
    noise = float(np.vdot(difference, difference))
    return signal, noise if math.isfinite(noise) else math.inf


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    if signal == 0 or math.isinf(noise):
        return -math.inf
    return 10 * math.log10(signal / noise)
