"""A sampler that understands the graph."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import Assignment
from autoquant.study.frontier import Frontier
from autoquant.study.gain import Gain
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.surrogate import Observations, Surrogate
from autoquant.study.trust import Trust

__all__ = ["SAMPLER_ATTRIBUTES", "StructureSampler"]

_N_DRAWS = 3
_N_NORMALS = 32
_N_NEIGHBOURS = 60
_FIXED_COST = 2.0
"""Opening a candidate and running float cost as much as so many runs of it, roughly."""
_SNR_LIMIT_DB = 200.0
_MAX_OBSERVATIONS = 400
"""Of these a third are the first ones: the uniform recipes and the probes."""
_N_INEFFECTIVE = 2
_N_DEVIATIONS = 3.0
"""A ratio is hardly so many standard deviations below what is expected of it."""
SAMPLER_ATTRIBUTES = frozenset({"state", "snr_db", "ratios", "ratio_error", "snr_by_output", "effective"})
"""User attributes of a trial that the sampler reads where they are.

``snr_db`` is the SNR and ``ratios`` the latency ratio on each target, whatever the objectives of the study are;
``state`` says whether it was rejected early, or ``untimed``, measured for its quality alone: that one may be proposed
again. ``ratio_error`` is the standard error of its ratio, ``snr_by_output`` the SNR of every output: noise power adds
up output by output, not in the worst of them; ``effective`` the scheme that each region really ran.
"""


class StructureSampler(BaseSampler):
    """Proposes the assignment with the highest expected gain of hypervolume for the time that its evaluation takes.

    Candidates are the fronts that draws from the surrogate believe in, each solved exactly (Thompson sampling), and
    neighbours of the best evaluations. Where later evaluations refute the surrogate, a growing share of the proposals
    comes from a generic sampler.

    A pruned trial that says its SNR and no ratios was not timed: what it says of noise is learned.

    Trials say their SNR in dB and latency ratios in user attributes, see ``SAMPLER_ATTRIBUTES``; a study whose trials
    don't maximises the SNR and minimises a latency ratio for each target, in this order. The parameters are regions,
    categorical over schemes in the layout's order. Equal seeds and evaluations give equal proposals.

    Args:
        layout: Regions, schemes and borders.
        seed: Of draws and moves.
        min_snr_db: Lowest SNR of interest.
        max_latency_ratio: Highest ratio of interest.
        prior: What is expected of latencies on the first target; from the regions' shares of the arithmetic where there
            is none.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        seed: int = 0,
        min_snr_db: float | None = None,
        max_latency_ratio: float | None = None,
        prior: LatencyPrior | None = None,
    ) -> None:
        self._layout = layout
        self._rng = np.random.default_rng(seed)
        self._min_snr_db, self._max_ratio = min_snr_db, max_latency_ratio
        self._prior = prior
        self._surrogate: Surrogate | None = None
        self._frontier = Frontier(layout)
        self._trust = Trust()
        self._n_fitted = 0
        self._independent = RandomSampler(seed=seed)
        self._generic = TPESampler(seed=seed, multivariate=True)

    @property
    def surrogate(self) -> Surrogate | None:
        """What it believes; None before the first proposal."""
        return self._surrogate

    def least_ratios(self, assignment: Assignment) -> list[float]:
        """Latency ratios that an assignment can hardly be below, by target; empty before there were evaluations."""
        if self._surrogate is None or not self._n_fitted:
            return []
        found = self._surrogate.predict(
            self._layout.encode({str(region): name for region, name in assignment.items()})[None]
        )
        errors = self._trust.stretch[1] * found.ratio_errors[0]
        return [float(ratio) for ratio in found.ratios[0] - _N_DEVIATIONS * errors]

    def infer_relative_search_space(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        """Every region is sampled jointly."""
        return {
            region: CategoricalDistribution(
                tuple(name for name, ok in zip(self._layout.schemes, allowed, strict=True) if ok)
            )
            for region, allowed in zip(self._layout.regions, self._layout.allowed, strict=True)
        }

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The proposal; never one that was told already, or that is known to run as one that was."""
        told = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished()]
        known = [t for t in told if set(self._layout.regions) <= t.params.keys()]
        complete = [t for t in known if t.state is TrialState.COMPLETE]
        measured = [t for t in known if t.state is TrialState.COMPLETE or _is_untimed(t)]
        if self._surrogate is None or not complete:
            self._surrogate = Surrogate(self._layout, len(_ratios(complete[0])) if complete else 1, self._prior)
        ran = [self._ran(t) for t in measured]
        found = _observations(measured, ran, self._surrogate.n_targets)
        if len(measured) > self._n_fitted:
            self._learn(found, [self._layout.encode(t.params) for t in measured])
        if self._rng.random() < self._trust.generic_share:
            return self._generic.sample_relative(study, trial, search_space)
        answered = [t for t in known if t.user_attrs.get("state") != "untimed"]
        seen = [*map(self._layout.encode, (t.params for t in answered)), *map(self._ran, answered)]
        return self._layout.decode(self._propose(found, {codes.tobytes() for codes in seen}))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """At random: for parameters that are no regions."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _ran(self, trial: FrozenTrial) -> Codes:
        """What really ran; a region that onnxruntime quantized unasked counts as asked."""
        effective = trial.user_attrs.get("effective") or {}
        known = {region: scheme for region, scheme in effective.items() if scheme in self._layout.schemes}
        return self._layout.encode({**trial.params, **known})

    def _learn(self, found: Observations, asked: Sequence[Codes]) -> None:
        assert self._surrogate is not None
        n_before, self._n_fitted = self._n_fitted, len(found)
        if n_before:
            new = found.of(slice(n_before, None))
            self._trust.compare(self._surrogate.predict(new.codes), new)
        n_first = _MAX_OBSERVATIONS // 3
        every = np.arange(len(found))
        kept = (
            every if len(found) <= _MAX_OBSERVATIONS else np.r_[every[:n_first], every[n_first - _MAX_OBSERVATIONS :]]
        )
        self._surrogate.fit(found.of(kept))
        self._frontier = Frontier(replace(self._layout, allowed=self._effective(np.array(asked), found.codes)))

    def _effective(self, asked: Codes, ran: Codes) -> Any:
        """Schemes that a region may take, without those that it was asked for and never ran."""
        allowed = self._layout.allowed.copy()
        for scheme in range(1, allowed.shape[1]):
            n_ran = ((asked == scheme) & (ran == scheme)).sum(axis=0)
            n_asked = (asked == scheme).sum(axis=0)
            allowed[(n_ran == 0) & (n_asked >= _N_INEFFECTIVE), scheme] = False
        return allowed

    def _propose(self, found: Observations, seen: set[bytes]) -> Codes:
        assert self._surrogate is not None
        weights = self._weights(self._surrogate.n_targets)
        whole = ~found.is_quick & found.is_timed
        snr_db, ratios = found.snr_db.min(axis=1)[whole], (found.ratios @ weights)[whole]
        gain = Gain.of(snr_db, ratios, min_snr_db=self._min_snr_db, max_ratio=self._max_ratio)
        proposals = [
            self._frontier.solve(self._surrogate.landscape(self._rng, min(k, 1.0)), weights) for k in range(_N_DRAWS)
        ]
        best = found.codes[np.flatnonzero(whole)[gain.of_members(snr_db, ratios)]]
        proposals.append(self._neighbours(best, gain, weights))
        candidates = [codes for codes in np.unique(np.concatenate(proposals), axis=0) if codes.tobytes() not in seen]
        if not candidates:
            return self._mutated(best, seen)
        predicted = self._surrogate.predict(np.array(candidates))
        normals = self._rng.standard_normal((_N_NORMALS, 2))
        expected = gain.expected(predicted, weights, normals, self._trust.stretch)
        return np.asarray(candidates[int(np.argmax(expected / (_FIXED_COST + predicted.ratios @ weights)))])

    def _weights(self, n_targets: int) -> Floats:
        """Of the targets: drawn anew for every proposal, so that their whole front is looked for."""
        return np.ones(1) if n_targets == 1 else self._rng.dirichlet(np.ones(n_targets))

    def _neighbours(self, best: Codes, gain: Gain, weights: Floats) -> Codes:
        """The most promising assignments that differ from an evaluated member of the front in one region."""
        assert self._surrogate is not None
        layout = self._frontier.layout
        start = best[self._rng.integers(len(best))] if len(best) else np.zeros(len(layout.regions), dtype=np.int64)
        region, scheme = np.nonzero(layout.allowed)
        moved = np.tile(start, (len(region), 1))
        moved[np.arange(len(region)), region] = scheme
        landscape = self._surrogate.landscape(self._rng, 1.0)
        noise, ratios = landscape.noise_of(moved).max(axis=1), landscape.ratios_of(moved) @ weights
        order = np.argsort(-gain.of_points(-10 * np.log10(noise), ratios), kind="stable")
        return moved[order[:_N_NEIGHBOURS]]

    def _mutated(self, best: Codes, seen: set[bytes]) -> Codes:
        start = (
            best[self._rng.integers(len(best))] if len(best) else np.zeros(len(self._layout.regions), dtype=np.int64)
        )
        for _ in range(100):
            changed = start.copy()
            for region in self._rng.integers(len(start), size=1 + self._rng.integers(3)):
                changed[region] = self._rng.choice(np.flatnonzero(self._layout.allowed[region]))
            if changed.tobytes() not in seen:
                break
        return changed


def _is_untimed(trial: FrozenTrial) -> bool:
    return trial.state is TrialState.PRUNED and "snr_db" in trial.user_attrs


def _observations(trials: Sequence[FrozenTrial], ran: Sequence[Codes], n_targets: int) -> Observations:
    unknown = [np.nan] * n_targets
    ratios = [unknown if _is_untimed(t) else _ratios(t) for t in trials]
    return Observations(
        codes=np.array(ran, dtype=np.int64),
        snr_db=_snr_by_output(trials),
        ratios=np.array(ratios, dtype=float).reshape(-1, n_targets),
        errors=np.array([float(t.user_attrs.get("ratio_error") or 0.0) for t in trials]),
        is_quick=np.array([t.user_attrs.get("state") == "rejected-early" for t in trials], dtype=bool),
    )


def _snr_by_output(trials: Sequence[FrozenTrial]) -> Floats:
    """SNR in dB, shape (n, O); of the worst output alone where a trial does not say more."""
    rows = [t.user_attrs.get("snr_by_output") or [_snr_db(t)] for t in trials]
    if len({len(row) for row in rows}) > 1:
        rows = [[_snr_db(t)] for t in trials]
    found = np.array(rows, dtype=float).reshape(len(trials), max(map(len, rows), default=1))
    return np.asarray(np.clip(found, -_SNR_LIMIT_DB, _SNR_LIMIT_DB))


def _snr_db(trial: FrozenTrial) -> float:
    return float(trial.user_attrs["snr_db"] if "snr_db" in trial.user_attrs else trial.values[0])


def _ratios(trial: FrozenTrial) -> list[float]:
    return list(trial.user_attrs.get("ratios", trial.values[1:]))
