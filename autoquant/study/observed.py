"""Told trials as the models take them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial

from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.surrogate import Observations

__all__ = ["effective", "observe"]

_SNR_LIMIT_DB = 200.0
_N_INEFFECTIVE = 2
_QUICK_ERROR = 0.03
"""Least standard error of a ratio from the few rounds of a trial that was stopped early."""


def observe(layout: Layout, trials: Sequence[FrozenTrial]) -> Observations:
    """What complete trials say; see ``StructureSampler`` for where they say it."""
    n_targets = len(_ratios(trials[0])) if trials else 1
    is_quick = np.array([t.user_attrs.get("state") == "rejected-early" for t in trials], dtype=bool)
    errors = np.array([float(t.user_attrs.get("ratio_error", 0.0)) for t in trials])
    return Observations(
        codes=np.array([_ran(layout, t) for t in trials], dtype=np.int64),
        snr_db=_snr_by_output(trials),
        ratios=np.array([_ratios(t) for t in trials], dtype=float).reshape(-1, n_targets),
        errors=np.maximum(errors, _QUICK_ERROR * is_quick),
        is_quick=is_quick,
    )


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


def _ran(layout: Layout, trial: FrozenTrial) -> Codes:
    """What really ran; a region that onnxruntime quantized unasked counts as asked."""
    found = trial.user_attrs.get("effective") or {}
    known = {region: scheme for region, scheme in found.items() if scheme in layout.schemes}
    return layout.encode({**trial.params, **known})


def _snr_by_output(trials: Sequence[FrozenTrial]) -> Floats:
    """SNR in dB, shape (n, O); of the worst output alone where a trial does not say more."""
    rows = [t.user_attrs.get("snr_by_output") or [_snr_db(t)] for t in trials]
    if len({len(row) for row in rows}) > 1:
        rows = [[_snr_db(t)] for t in trials]
    found = np.array(rows, dtype=float).reshape(len(trials), max(map(len, rows), default=1))
    return np.asarray(np.clip(found, -_SNR_LIMIT_DB, _SNR_LIMIT_DB))


def _snr_db(trial: FrozenTrial) -> float:
    return float(trial.user_attrs.get("snr_db", trial.values[0]))


def _ratios(trial: FrozenTrial) -> list[float]:
    return list(trial.user_attrs.get("ratios", trial.values[1:]))
