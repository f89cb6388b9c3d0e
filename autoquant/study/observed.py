"""Told trials as the models take them: complete ones, and pruned ones that say their SNR but no ratio."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.surrogate import Observations

__all__ = ["Reader", "Told", "effective", "is_measured", "observe"]

_SNR_LIMIT_DB = 200.0
_N_INEFFECTIVE = 2
_QUICK = ("rejected-early", "untimed")
"""States of trials that ran few samples."""
_QUICK_ERROR = 0.03
"""Least standard error of a ratio from the few rounds of a trial that was stopped early."""


def is_measured(trial: FrozenTrial) -> bool:
    """Whether it says something to learn from."""
    return trial.state is TrialState.COMPLETE or (trial.state is TrialState.PRUNED and "snr_db" in trial.user_attrs)


@dataclass(frozen=True, slots=True)
class Told:
    """What trials say together.

    Attributes:
        found: Of those that were measured.
        asked: Scheme numbers that these were asked for; shape (n, R).
        seen: Scheme numbers, as bytes, that need not be asked for again: what was asked for, and what is known to run.
            A trial that was not to be timed leaves its latency to be asked for.
    """

    found: Observations
    asked: Codes
    seen: frozenset[bytes]


class Reader:
    """Reads told trials of one study, each once; those that are not about all regions are passed over.

    Args:
        layout: Regions and schemes.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._regions = frozenset(layout.regions)
        self._rows: dict[int, _Row | None] = {}

    def read(self, trials: Sequence[FrozenTrial]) -> Told:
        """Finished trials, others are passed over too."""
        rows = [row for trial in trials if (row := self._row(trial)) is not None]
        measured = [(row.asked, row.evaluated) for row in rows if row.evaluated is not None]
        return Told(
            found=_together(self._layout, [evaluated for _, evaluated in measured]),
            asked=np.array([asked for asked, _ in measured], dtype=np.int64).reshape(-1, len(self._regions)),
            seen=frozenset().union(*(row.seen for row in rows)),
        )

    def _row(self, trial: FrozenTrial) -> "_Row | None":
        if trial.number not in self._rows and trial.state.is_finished():
            self._rows[trial.number] = _row(self._layout, trial) if trial.params.keys() >= self._regions else None
        return self._rows.get(trial.number)


def observe(layout: Layout, trials: Sequence[FrozenTrial]) -> Observations:
    """What complete trials say; see ``StructureSampler`` for where they say it."""
    return _together(layout, [_read(layout, trial) for trial in trials])


def effective(layout: Layout, asked: Codes, ran: Codes) -> Any:
    """Schemes that a region may take, without those that it was asked for and never ran; shape (R, S).

    Args:
        layout: Regions and schemes.
        asked: Scheme numbers of complete trials; shape (n, R).
        ran: What they really ran; shape (n, R).
    """
    allowed = layout.allowed.copy()
    for scheme in range(1, allowed.shape[1]):
        n_ran = ((asked == scheme) & (ran == scheme)).sum(axis=0)
        n_asked = (asked == scheme).sum(axis=0)
        allowed[(n_ran == 0) & (n_asked >= _N_INEFFECTIVE), scheme] = False
    return allowed


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """One trial; ``snr_by_output`` is empty where it says no more than the worst, ``ratios`` where it was not timed."""

    codes: Codes
    snr_db: float
    snr_by_output: Sequence[float]
    ratios: Sequence[float]
    error: float
    is_quick: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """One trial for a reader."""

    asked: Codes
    evaluated: _Evaluated | None
    seen: frozenset[bytes]


def _row(layout: Layout, trial: FrozenTrial) -> _Row:
    asked = layout.encode(trial.params)
    evaluated = _read(layout, trial) if is_measured(trial) else None
    ran = asked if evaluated is None else evaluated.codes
    is_untimed = trial.user_attrs.get("state") == "untimed"
    return _Row(asked, evaluated, frozenset() if is_untimed else frozenset((asked.tobytes(), ran.tobytes())))


def _read(layout: Layout, trial: FrozenTrial) -> _Evaluated:
    """What really ran; a region that onnxruntime quantized unasked counts as asked."""
    attributes = trial.user_attrs
    ran = attributes.get("effective") or {}
    known = {region: scheme for region, scheme in ran.items() if scheme in layout.schemes}
    is_quick = attributes.get("state") in _QUICK
    return _Evaluated(
        codes=layout.encode({**trial.params, **known}),
        snr_db=float(attributes["snr_db"] if "snr_db" in attributes else trial.values[0]),
        snr_by_output=attributes.get("snr_by_output") or (),
        ratios=attributes["ratios"] if "ratios" in attributes else trial.values[1:],
        error=max(float(attributes.get("ratio_error") or 0.0), _QUICK_ERROR if is_quick else 0.0),
        is_quick=is_quick,
    )


def _together(layout: Layout, found: Sequence[_Evaluated]) -> Observations:
    n_targets = max((len(each.ratios) for each in found), default=0) or 1
    unknown = [np.nan] * n_targets
    return Observations(
        codes=np.array([each.codes for each in found], dtype=np.int64).reshape(-1, len(layout.regions)),
        snr_db=_snr_by_output(found),
        ratios=np.array([each.ratios or unknown for each in found], dtype=float).reshape(-1, n_targets),
        errors=np.array([each.error for each in found]),
        is_quick=np.array([each.is_quick for each in found], dtype=bool),
    )


def _snr_by_output(found: Sequence[_Evaluated]) -> Floats:
    """SNR in dB, shape (n, O); of the worst output alone where a trial does not say more."""
    rows = [each.snr_by_output or (each.snr_db,) for each in found]
    if len({len(row) for row in rows}) > 1:
        rows = [(each.snr_db,) for each in found]
    values = np.array(rows, dtype=float).reshape(len(found), max(map(len, rows), default=1))
    return np.asarray(np.clip(values, -_SNR_LIMIT_DB, _SNR_LIMIT_DB))
