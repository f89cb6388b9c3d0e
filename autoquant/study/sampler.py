"""A sampler that understands the graph."""

from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState

from autoquant.domain.prior import LatencyPrior
from autoquant.study.local_search import LocalSearch
from autoquant.study.surrogate import Codes, Floats, Landscape, LatencyModel, Layout, NoiseModel

__all__ = ["SAMPLER_ATTRIBUTES", "StructureSampler"]

_DEMANDS_DB = (8.0, 64.0)
"""Between these every proposal aims at one SNR."""
_GOLDEN = 0.6180339887498949
_QUICK_WEIGHT = 0.3
_QUICK_ERROR = 0.03
_MAX_OUTPUTS = 3
_SNR_LIMIT_DB = 200.0
SAMPLER_ATTRIBUTES = frozenset({"state", "ratio_error", "snr_by_output"})
"""User attributes of a trial that the sampler reads where they are.

``state`` says whether it was rejected early, ``ratio_error`` the standard error of its ratio, ``snr_by_output`` the SNR
of every output: noise power adds up output by output, not in the worst of them.
"""
_MAX_OBSERVATIONS = 400
"""Of these a third are the first ones: the uniform recipes and the probes."""


class StructureSampler(BaseSampler):
    """Proposes the fastest assignment that a draw from the surrogate believes to meet an SNR demand.

    The demand walks through the useful SNRs in a low-discrepancy sequence; the assignment is found by local search over
    runs of consecutive regions, from the best evaluated assignments.

    The study maximises SNR in dB and minimises a latency ratio; the parameters are regions, categorical over schemes in
    the layout's order.

    Args:
        layout: Regions, schemes and borders.
        seed: Of draws and moves.
        min_snr_db: Lowest SNR of interest.
        prior: What is expected of latencies; from the regions' shares of the arithmetic where there is none.
    """

    def __init__(
        self, layout: Layout, *, seed: int = 0, min_snr_db: float | None = None, prior: LatencyPrior | None = None
    ) -> None:
        self._layout = layout
        self._rng = np.random.default_rng(seed)
        self._min_snr_db = min_snr_db
        self._noise: dict[int, NoiseModel] = {}
        self._latency = LatencyModel(layout, prior)
        self._search = LocalSearch(layout, self._rng)
        self._n_asked = 0
        self._n_fitted = 0
        self._independent = RandomSampler(seed=seed)

    def infer_relative_search_space(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        """Every region is sampled jointly."""
        return {
            region: optuna.distributions.CategoricalDistribution(self._choices(i))
            for i, region in enumerate(self._layout.regions)
        }

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002
        search_space: dict[str, BaseDistribution],  # noqa: ARG002
    ) -> dict[str, Any]:
        """The proposal; never one that was told already."""
        told = [t for t in study.get_trials(deepcopy=False) if t.state in (TrialState.COMPLETE, TrialState.FAIL)]
        known = [t for t in told if set(self._layout.regions) <= t.params.keys()]
        complete = [t for t in known if t.state is TrialState.COMPLETE]
        seen = {self._layout.encode(t.params).tobytes() for t in known}
        if complete:
            self._fit(complete)
        codes = self._propose(complete, seen)
        return self._layout.decode(codes)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """At random: for parameters that are no regions."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _choices(self, region: int) -> tuple[str, ...]:
        return tuple(name for name, ok in zip(self._layout.schemes, self._layout.allowed[region], strict=True) if ok)

    def _fit(self, trials: list[FrozenTrial]) -> None:
        if len(trials) == self._n_fitted:
            return
        self._n_fitted = len(trials)
        if len(trials) > _MAX_OBSERVATIONS:
            trials = trials[: _MAX_OBSERVATIONS // 3] + trials[-(_MAX_OBSERVATIONS * 2 // 3) :]
        codes = np.array([self._layout.encode(t.params) for t in trials])
        values = np.array([t.values for t in trials], dtype=float)
        quick = np.array([t.user_attrs.get("state") == "rejected-early" for t in trials])
        errors = np.array([float(t.user_attrs.get("ratio_error", 0.0)) for t in trials])
        self._fit_noise(codes, _snr_by_output(trials), np.where(quick, _QUICK_WEIGHT, 1.0))
        self._latency.fit(codes, values[:, 1:].max(axis=1), np.maximum(errors, quick * _QUICK_ERROR))

    def _fit_noise(self, codes: Codes, snr_db: Floats, weights: Floats) -> None:
        """One model for each of the outputs that are the worst one most often."""
        counts = np.bincount(np.argmin(snr_db, axis=1), minlength=snr_db.shape[1])
        worst = [int(i) for i in np.argsort(-counts, kind="stable")[:_MAX_OUTPUTS] if counts[i] > 0]
        self._noise = {i: self._noise.get(i) or NoiseModel(self._layout) for i in worst}
        for i, model in self._noise.items():
            model.fit(codes, 10 ** (-snr_db[:, i] / 10), weights)

    def _landscape(self, scale: float) -> Landscape:
        models = list(self._noise.values()) or [NoiseModel(self._layout)]
        tables = np.stack([model.draw(self._rng, scale) for model in models])
        return Landscape(self._layout, tables, self._latency.draw(self._rng, scale))

    def _propose(self, complete: list[FrozenTrial], seen: set[bytes]) -> Codes:
        starts = self._starts(complete)
        for attempt in range(8):
            demand = self._next_demand()
            scale = 1.0 if self._n_asked % 3 else 0.0
            scale += 0.5 * attempt
            landscape = self._landscape(scale)
            found = self._search.fastest(landscape, 10 ** (-demand / 10), starts)
            if found.tobytes() not in seen:
                return found
        return self._mutated(found, seen)

    def _starts(self, complete: list[FrozenTrial]) -> Codes:
        """All float, and non-dominated evaluations."""
        front = [t for t in complete if not any(_dominates(o, t) for o in complete)]
        codes = [self._layout.encode(t.params) for t in front[:40]]
        return np.array([np.zeros(len(self._layout.regions), dtype=np.int64), *codes])

    def _next_demand(self) -> float:
        low, high = _DEMANDS_DB
        if self._min_snr_db is not None:
            low, high = self._min_snr_db, max(high, self._min_snr_db + 10)
        self._n_asked += 1
        return low + (high - low) * ((self._n_asked * _GOLDEN) % 1.0)

    def _mutated(self, codes: Codes, seen: set[bytes]) -> Codes:
        for _ in range(100):
            changed = codes.copy()
            for region in self._rng.integers(len(codes), size=1 + self._rng.integers(3)):
                changed[region] = self._rng.choice(np.flatnonzero(self._layout.allowed[region]))
            if changed.tobytes() not in seen:
                return changed
        return codes


def _snr_by_output(trials: list[FrozenTrial]) -> Floats:
    """SNR in dB, shape (n, O); of the worst output alone where a trial does not say more."""
    rows = [t.user_attrs.get("snr_by_output") or [t.values[0]] for t in trials]
    if len({len(row) for row in rows}) > 1:
        rows = [[t.values[0]] for t in trials]
    return np.asarray(np.clip(np.array(rows, dtype=float), -_SNR_LIMIT_DB, _SNR_LIMIT_DB))


def _dominates(a: FrozenTrial, b: FrozenTrial) -> bool:
    x, y = a.values, b.values
    return bool(x[0] >= y[0] and x[1] <= y[1] and (x[0] > y[0] or x[1] < y[1]))
