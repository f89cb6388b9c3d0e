"""What the float model's outputs hold, and so which of them judge candidates."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.quality import judged, signal_of, with_snr
from autoquant.measurement.latency import Outputs

__all__ = ["Signal"]

_MOST_SHARE, _FEW_SAMPLES = 0.5, 8
"""Of an output's power in one sample, from which on it decides SNRs, where there are so many samples or more."""


@dataclass(slots=True)
class Signal:
    """Of the float model's outputs on the samples that candidates run.

    Attributes:
        names: Of the outputs.
        reference: The outputs, by sample, at least one.
        numbers: Outputs of integers that count as floats.
        total: Of each output, ``signal_of`` it over all samples.
    """

    names: Sequence[str]
    reference: Sequence[Outputs]
    numbers: frozenset[str] = frozenset()
    total: npt.NDArray[np.float64] = field(init=False)
    _largest: npt.NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        powers = np.array([self.powers_of(outputs) for outputs in self.reference])
        self.total, self._largest = powers.sum(axis=0), powers.max(axis=0)

    @property
    def mean(self) -> tuple[float, ...]:
        """Of a sample."""
        return tuple((self.total / len(self.reference)).tolist())

    @property
    def silent(self) -> tuple[str, ...]:
        """Outputs that are 0 on all samples, beside others that are not: no SNR can be said of them."""
        return tuple(np.array(self.names)[self._is_float & ~with_snr(self._is_float, self.total)].tolist())

    @property
    def dominated(self) -> dict[str, float]:
        """Float outputs of whose power one of these samples holds more than half, with its share."""
        if len(self.reference) < _FEW_SAMPLES:
            return {}
        shares = np.divide(self._largest, self.total, out=np.zeros_like(self.total), where=self.total > 0)
        is_large = self._is_float & (shares > _MOST_SHARE)
        return {name: float(share) for name, share, large in zip(self.names, shares, is_large, strict=True) if large}

    @property
    def numberless(self) -> dict[str, float]:
        """Float outputs that hold NaN or infinity somewhere, with the share of their elements that do."""
        found: dict[str, float] = {}
        for i in np.flatnonzero(self._is_float).tolist():
            n_finite = sum(int(np.isfinite(outputs[i]).sum()) for outputs in self.reference)
            size = sum(outputs[i].size for outputs in self.reference)
            if n_finite < size:
                found[self.names[i]] = 1 - n_finite / size
        return found

    @property
    def is_judged(self) -> npt.NDArray[np.bool_]:
        """Outputs by which candidates are judged."""
        found = with_snr(self._is_float, self.total)
        return found if found.any() else ~self._is_float

    def powers_of(self, outputs: Outputs) -> list[float]:
        """``signal_of`` each output of one sample."""
        return [signal_of(out) for out in judged(outputs, self.names, self.numbers)]

    def hear(self, mean: npt.ArrayLike) -> None:
        """Let outputs that are 0 on these samples judge too: by their mean over these and others together."""
        self.total = np.where(self.total > 0, self.total, np.asarray(mean) * len(self.reference))

    @property
    def _is_float(self) -> npt.NDArray[np.bool_]:
        pairs = zip(self.names, self.reference[0], strict=True)
        return np.array([out.dtype.kind == "f" or name in self.numbers for name, out in pairs])
