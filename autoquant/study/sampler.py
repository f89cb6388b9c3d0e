"""A sampler that understands the graph."""

from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import Assignment
from autoquant.study.frontier import Frontier
from autoquant.study.gain import Gain
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.observed import Reader, effective
from autoquant.study.outlook import Outlook, Pace
from autoquant.study.surrogate import Observations, Surrogate
from autoquant.study.trust import Trust

__all__ = ["SAMPLER_ATTRIBUTES", "StructureSampler"]

_N_DRAWS = 3
_N_NORMALS = 32
_N_NEIGHBOURS = 60
_FIXED_COST = 2.0
"""Opening a candidate and running float cost as much as so many runs of it, roughly."""
_MAX_OBSERVATIONS = 400
"""Of these a third are the first ones: the uniform recipes and the probes."""
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
        self._reader = Reader(layout)
        self._frontier = Frontier(layout)
        self._trust = Trust()
        self._n_fitted = 0
        self._found: Observations | None = None
        self._pace = Pace()
        self._expected: dict[bytes, float] = {}
        self._next_gain = float("inf")
        self._independent = RandomSampler(seed=seed)
        self._generic = TPESampler(seed=seed, multivariate=True)

    @property
    def surrogate(self) -> Surrogate | None:
        """What it believes; None before the first proposal."""
        return self._surrogate

    @property
    def layout(self) -> Layout:
        """Regions, borders, and schemes without those that were asked for and never ran."""
        return self._frontier.layout

    @property
    def trust(self) -> Trust:
        """What evaluations said of its predictions."""
        return self._trust

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
        told = self._reader.read(study.get_trials(deepcopy=False))
        found = told.found
        if self._surrogate is None or self._surrogate.n_targets != found.ratios.shape[1]:
            self._surrogate = Surrogate(self._layout, found.ratios.shape[1], self._prior)
        if len(found) > self._n_fitted:
            self._learn(found, told.asked)
        if self._rng.random() < self._trust.generic_share:
            return self._generic.sample_relative(study, trial, search_space)
        return self._layout.decode(self._propose(found, told.seen))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """At random: for parameters that are no regions."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _learn(self, found: Observations, asked: Codes) -> None:
        assert self._surrogate is not None
        n_before, self._n_fitted, self._found = self._n_fitted, len(found), found
        if n_before:
            new = found.of(slice(n_before, None))
            self._trust.compare(self._surrogate.predict(new.codes), new)
            self._count(found.of(slice(n_before)), new, asked[n_before:])
        n_first = _MAX_OBSERVATIONS // 3
        every = np.arange(len(found))
        kept = (
            every if len(found) <= _MAX_OBSERVATIONS else np.r_[every[:n_first], every[n_first - _MAX_OBSERVATIONS :]]
        )
        self._surrogate.fit(found.of(kept))
        self._frontier.narrow(effective(self._layout, asked, found.codes))

    def _count(self, before: Observations, new: Observations, asked: Codes) -> None:
        """What the proposals among the new evaluations brought."""
        weights = self._equal_weights
        gains = self._gain(before, weights).of_points(new.snr_db.min(axis=1), new.ratios @ weights)
        for codes, gain, is_quick in zip(asked, gains, new.is_quick, strict=True):
            expected = self._expected.pop(codes.tobytes(), None)
            if expected is not None:
                self._pace.count(expected, 0.0 if is_quick else float(gain))

    def _gain(self, found: Observations, weights: Floats) -> Gain:
        """The front of the evaluations that were not stopped early."""
        whole = ~found.is_quick
        snr_db, ratios = found.snr_db.min(axis=1)[whole], (found.ratios @ weights)[whole]
        return Gain.of(snr_db, ratios, min_snr_db=self._min_snr_db, max_ratio=self._max_ratio)

    @property
    def _equal_weights(self) -> Floats:
        assert self._surrogate is not None
        return np.full(self._surrogate.n_targets, 1 / self._surrogate.n_targets)

    def outlook(self) -> Outlook | None:
        """How much better the front could still get; None before anything was evaluated.

        With several targets ratios count by their mean.
        """
        found, surrogate = self._found, self._surrogate
        if found is None or surrogate is None:
            return None
        weights = self._equal_weights
        gain = self._gain(found, weights)
        landscape = surrogate.landscape(self._rng, 0.0)
        codes = self._frontier.solve([landscape], weights)
        snr_db = -10 * np.log10(landscape.noise_of(codes).max(axis=1))
        attainable = gain.with_points(snr_db, landscape.ratios_of(codes) @ weights).saving
        members = self._members(found, gain, weights)
        noise = np.sqrt(np.mean(np.square(found.errors[members])) / len(members)) if len(members) else 0.0
        return Outlook(
            saving=gain.saving,
            attainable=attainable,
            next_gain=self._next_gain * self._pace.factor,
            noise=float(noise),
        )

    def _members(self, found: Observations, gain: Gain, weights: Floats) -> npt.NDArray[np.int64]:
        """Which evaluations make up the front."""
        whole = np.flatnonzero(~found.is_quick)
        return np.asarray(whole[gain.of_members(found.snr_db.min(axis=1)[whole], (found.ratios @ weights)[whole])])

    def _propose(self, found: Observations, seen: frozenset[bytes]) -> Codes:
        assert self._surrogate is not None
        weights = self._weights(self._surrogate.n_targets)
        gain = self._gain(found, weights)
        drawn = [self._surrogate.landscape(self._rng, min(k, 1.0)) for k in range(_N_DRAWS)]
        best = found.codes[self._members(found, gain, weights)]
        proposals = np.concatenate([self._frontier.solve(drawn, weights), self._neighbours(best, gain, weights)])
        candidates = [codes for codes in np.unique(proposals, axis=0) if codes.tobytes() not in seen]
        if not candidates:
            self._next_gain = 0.0
            return self._mutated(best, seen)
        predicted = self._surrogate.predict(np.array(candidates))
        normals = self._rng.standard_normal((_N_NORMALS, 2))
        expected = gain.expected(predicted, weights, normals, self._trust.stretch)
        chosen = int(np.argmax(expected / (_FIXED_COST + predicted.ratios @ weights)))
        self._next_gain = self._expected[candidates[chosen].tobytes()] = float(expected[chosen])
        return np.asarray(candidates[chosen])

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

    def _mutated(self, best: Codes, seen: frozenset[bytes]) -> Codes:
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
