"""What steers proposals beside SNR and latency: sizes, and demands on metrics."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from optuna.trial import FrozenTrial
from scipy.special import ndtr

from autoquant.domain.warning import warn_caller
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.size import SizeModel, SizeTable
from autoquant.study.threshold import Threshold

__all__ = ["SizeTerm", "Steering"]

_PRICES = (0.0, 0.1, 1.0, 10.0)
"""Of float's whole size, in latency ratios: what a limit may be worth."""
_NOT_BY_SNR = frozenset({"latency_ratio", "size_bytes"})
"""Constraints that are kept the rather, the lower the SNR is."""
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SizeTerm:
    """What a solution shall pay for its size.

    Attributes:
        table: Sizes as shares of the largest file.
        prices: Of the whole, in latency ratios; assignments are looked for at each.
    """

    table: SizeTable
    prices: tuple[float, ...]


class Steering:
    """Learns from measured trials which demands beside SNR and latency they keep, and what files take.

    Args:
        layout: Regions, schemes and borders.
        max_size_bytes: Largest file of interest.
        has_size: Whether smaller files count.
        modelled: Names of constraints that say what is known otherwise: a demand on the SNR, say.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        max_size_bytes: int | None = None,
        has_size: bool = False,
        modelled: Set[str] = frozenset(),
    ) -> None:
        self.has_size, self._modelled = has_size, modelled
        self._max_bytes = max_size_bytes
        self._model = SizeModel(layout) if has_size or max_size_bytes is not None else None
        self._size_bytes: list[float] = []
        self._is_size_known = self._has_warned = False
        self._holds: list[bool] = []
        self._has_metrics = False
        self._threshold = Threshold()
        self._codes: Codes = np.zeros((0, len(layout.regions)), dtype=np.int64)

    def learn(self, trials: Sequence[FrozenTrial], asked: Codes, snr_db: Floats, is_quick: Bools) -> None:
        """Learn from all measured trials; those that were learned from come first.

        Args:
            trials: At least one.
            asked: Scheme numbers that their files were built with; shape (n, R).
            snr_db: Of the worst output; shape (n,).
            is_quick: Whether they ran few samples; shape (n,).
        """
        for i in range(len(self._holds), len(trials)):
            beyond = {name: value for name, value in trials[i].constraints.items() if name not in self._modelled}
            self._holds.append(all(value <= 0 for value in beyond.values()))
            self._size_bytes.append(float(trials[i].user_attrs.get("size_bytes", 0)) or np.nan)
            by_snr = [value <= 0 for name, value in beyond.items() if name not in _NOT_BY_SNR]
            if by_snr and not (is_quick[i] and all(by_snr)):  # what was stopped early is not known to hold
                self._has_metrics = True
                self._threshold.learn(float(snr_db[i]), is_kept=all(by_snr))
        self._codes = asked
        is_known = np.isfinite(self._size_bytes)
        if self._model is not None and is_known.any():
            self._is_size_known = True
            self._model.fit(asked[is_known], np.array(self._size_bytes)[is_known])
        elif self._model is not None and not self._has_warned:
            self._has_warned = True
            warn_caller("sizes are of interest, but no trial says its own; set its attribute 'size_bytes'")

    @property
    def keeps(self) -> Bools:
        """Which trials keep all demands but those on SNR and latency, as far as they say; shape (n,)."""
        found = np.array(self._holds, dtype=bool)
        return found if self._max_bytes is None else found & ~(np.array(self._size_bytes) > self._max_bytes)

    def costs(self, ratios: Floats, codes: Codes | None = None) -> Floats:
        """Ratios by target, and the size as a share of the largest file after them where it is an objective.

        Args:
            ratios: Shape (n, T).
            codes: Of assignments, shape (n, R), whose sizes are predicted; None for the trials.

        Returns:
            Shape (n, T) or (n, T + 1).
        """
        if self._model is None or not self.has_size:
            return ratios
        if codes is not None:
            return np.column_stack([ratios, self._model.predict(codes)])
        said = np.array(self._size_bytes) / self._model.largest_bytes
        return np.column_stack([ratios, np.where(np.isfinite(said), said, self._model.predict(self._codes))])

    def term(self, price: float) -> SizeTerm | None:
        """For solving: what the size costs where it is an objective or limited; None where it does not matter."""
        if self._model is None or not (self.has_size or self._is_size_known):
            return None
        prices = tuple(price + more for more in _PRICES) if self._is_limited else (price,)
        return SizeTerm(self._model.table, prices)

    @property
    def _is_limited(self) -> bool:
        """Whether there is a limit, and it is known how large files are."""
        return self._max_bytes is not None and self._is_size_known

    def min_snr_db(self, demanded: float | None) -> float | None:
        """Lowest SNR of interest: what is demanded, or more where metrics want it."""
        if not self._has_metrics:
            return demanded
        wanted = self._threshold.lowest_db()
        return wanted if demanded is None else max(demanded, wanted)

    def chances(self, codes: Codes, snr_db: Floats) -> Floats:
        """Probability that assignments keep all demands but those on SNR and latency; shape (n,).

        Args:
            codes: Scheme numbers, shape (n, R).
            snr_db: Predicted, shape (n,).
        """
        found = self._threshold.chances(snr_db) if self._has_metrics else np.ones(snr_db.shape)
        if not self._is_limited:
            return found
        assert self._model is not None
        assert self._max_bytes is not None
        limit = self._max_bytes / self._model.largest_bytes
        return np.asarray(found * ndtr((limit - self._model.predict(codes)) / self._model.error))
