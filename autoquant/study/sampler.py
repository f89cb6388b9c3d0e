"""A sampler that understands the graph."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial
from scipy.special import ndtr

from autoquant.domain.measurement import Believed
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import Assignment
from autoquant.study.belief import believed
from autoquant.study.failing import Suspects
from autoquant.study.frontier import Frontier
from autoquant.study.gain import Gain
from autoquant.study.landscape import Landscape
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.moves import unseen
from autoquant.study.observed import Reader, Told, effective, snr_errors_of
from autoquant.study.outlook import Outlook, Pace, Promise
from autoquant.study.proposal import Fixed, every_trial, is_taken, publish
from autoquant.study.steering import Steering
from autoquant.study.surrogate import Observations, Prediction, Surrogate
from autoquant.study.trust import Trust, believe

__all__ = ["SAMPLER_ATTRIBUTES", "StructureSampler"]

_N_DRAWS = 3
"""From the surrogate: one for neighbours, the others and the mean for fronts."""
_N_NEIGHBOURS = 60
_FIXED_COST = 2.0
"""Opening a candidate and running float cost as much as so many runs of it, roughly."""
_MAX_OBSERVATIONS = 400
"""Of these a third are the first ones: the uniform recipes and the probes."""
_N_TRIES = 4
"""Proposals for one trial, as long as another process makes the same one at the same time."""
_N_DEVIATIONS = 3.0
"""A ratio is hardly so many standard deviations below what is expected of it."""
SAMPLER_ATTRIBUTES = frozenset(
    {"state", "snr_db", "snr_error_db", "ratios", "ratio_error", "snr_by_output", "effective", "size_bytes"}
)
"""User attributes of a trial that the sampler reads where they are.

``snr_db`` is the SNR and ``ratios`` the latency ratio on each target, whatever the objectives of the study are;
``state`` says whether it was rejected early, or ``untimed``, measured for its quality alone: that one may be proposed
again. ``ratio_error`` is the standard error of its ratios, or a list of one for each; ``snr_error_db`` what the samples
leave open of its SNR, a standard deviation; ``snr_by_output`` the SNR of each output: noise power adds up output by
output, not in the worst of them; ``effective`` the scheme that each region really ran; ``size_bytes`` what the file
takes.
"""


class StructureSampler(BaseSampler):
    """Proposes the assignment with the highest expected gain of hypervolume for the time that its evaluation takes.

    Candidates are the hulls of the fronts that draws from the surrogate believe in (Thompson sampling), and neighbours
    of the best evaluations, which are those that are believed to be it: the luck of a measurement counts as far as the
    surrogate knows no better. Where later evaluations refute the surrogate, a growing share of the proposals
    comes from a generic sampler. What may be the cause of failed trials is proposed the less, the surer it is.

    Demands on other things, which are Optuna's constraints of a trial, count too: evaluations that break one are on no
    front, and proposals keep away from SNRs at which that is likely. Sizes are predicted from those of earlier files.
    A pruned trial that says its SNR and no ratios was not timed: what it says of noise is learned.

    Trials say their SNR in dB and latency ratios in user attributes, see ``SAMPLER_ATTRIBUTES``; a study whose trials
    don't maximises the SNR and minimises a latency ratio for each target, in this order. The parameters are regions,
    categorical over schemes in the layout's order. Equal seeds and evaluations give equal proposals. Threads may share
    one sampler: they ask one after another; processes have one each, and see what others are about to run. In another
    study it begins anew.

    Args:
        layout: Regions, schemes and borders.
        seed: Of draws and moves; None for other ones each time.
        min_snr_db: Lowest SNR of interest.
        max_latency_ratio: Highest ratio of interest.
        max_size_bytes: Largest file of interest.
        has_size: Whether smaller files count as much as a lower ratio.
        prior: What is expected of latencies on the first target; from the regions' shares of the arithmetic where there
            is none.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        seed: int | None = 0,
        min_snr_db: float | None = None,
        max_latency_ratio: float | None = None,
        max_size_bytes: int | None = None,
        has_size: bool = False,
        prior: LatencyPrior | None = None,
    ) -> None:
        self._layout = layout
        self._rng = np.random.default_rng(seed)
        self._min_snr_db, self._max_ratio = min_snr_db, max_latency_ratio
        self._prior = prior
        self._max_size_bytes, self._has_size = max_size_bytes, has_size
        self._lock = threading.RLock()
        self._independent = RandomSampler(seed=seed)
        self._generic = TPESampler(seed=seed, multivariate=True)
        self.forget()

    def forget(self) -> None:
        """Know nothing of any study."""
        layout = self._layout
        self._steering = Steering(layout, max_size_bytes=self._max_size_bytes, has_size=self._has_size)
        self._surrogate: Surrogate | None = None
        self._reader = Reader(layout)
        self._frontier = Frontier(layout)
        self._suspects = Suspects.of(layout, *2 * [np.zeros((0, len(layout.regions)), dtype=np.int64)])
        self._trust = Trust()
        self._n_fitted = 0
        self._found: Observations | None = None
        self._numbers: list[int] = []
        self._pace = Pace()
        self._promised: dict[bytes, Promise] = {}
        self._next_gain = float("inf")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

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

    def reseed_rng(self) -> None:
        """Draw otherwise from now on: of processes that share a study, each has a sampler of its own."""
        self._rng = np.random.default_rng()
        self._independent.reseed_rng()
        self._generic.reseed_rng()

    def beliefs(self) -> dict[int, Believed]:
        """What it believes of the trials that it knows, by number; of those that were not timed the SNR alone."""
        with self._lock:
            found, numbers = self._found, self._numbers
        if found is None:
            return {}
        rows = zip(numbers, found.snr_db[:, 0].tolist(), found.ratios.tolist(), found.is_timed, strict=True)
        return {
            n: Believed(snr_db=snr_db, ratios=tuple(ratios) if is_timed else ()) for n, snr_db, ratios, is_timed in rows
        }

    def least_ratios(self, assignment: Assignment) -> list[float]:
        """Latency ratios that an assignment can hardly be below, by target; empty before there were evaluations."""
        with self._lock:
            return self._least_ratios(assignment)

    def _least_ratios(self, assignment: Assignment) -> list[float]:
        if self._surrogate is None or not self._n_fitted:
            return []
        found = self._surrogate.predict(self._layout.encode({str(k): v for k, v in assignment.items()})[None])
        errors = max(1.0, self._trust.stretch[1]) * found.ratio_errors[0]  # of proposals it knows more than of others
        return [float(ratio) for ratio in found.ratios[0] - _N_DEVIATIONS * errors]

    def infer_relative_search_space(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        """Every region is sampled jointly."""
        return {region: CategoricalDistribution(names) for region, names in self._layout.choices.items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The proposal; as long as there are others none that was proposed already or is known to run as one that was.

        It is one for the schemes that ``PartialFixedSampler`` fixes, or that the trial was enqueued with. Regions that
        are not in the search space are left out.
        """
        fixed = Fixed.of(self._layout, study, trial, search_space)
        if not fixed.is_free.any():
            return {}
        with self._lock:
            for _ in range(_N_TRIES):
                trials = every_trial(study)
                proposal = self._proposal(study, trial, search_space, trials, fixed)
                codes = self._layout.encode(proposal)
                publish(study, trial, codes)
                if not is_taken(self._layout, study, trial, codes, trials):
                    break
        return {region: scheme for region, scheme in proposal.items() if region in search_space}

    def _proposal(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
        trials: list[FrozenTrial],
        fixed: Fixed,
    ) -> dict[str, Any]:
        if not self._reader.knows(trials):
            self.forget()
        told = self._reader.read(trials, study.directions)
        found = told.found
        if self._surrogate is None or self._surrogate.n_targets != found.ratios.shape[1]:
            self._surrogate = Surrogate(self._layout, found.ratios.shape[1], self._prior)
            self._promised.clear()
        if len(found) > self._n_fitted:
            self._learn(found, told.measured, told.asked)
        self._leave_out(told)
        is_free = search_space.keys() >= self._layout.choices.keys() and fixed.is_free.all()
        if self._rng.random() < self._trust.generic_share and is_free:
            generic = self._generic_proposal(study, trial, search_space)
            if generic and self._is_new(self._layout.encode(generic), told.seen):
                return generic
        return self._layout.decode(self._propose(found if self._found is None else self._found, told.seen, fixed))

    def _generic_proposal(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Empty where trials have schemes of another space, which Optuna's samplers do not pass over."""
        choices = self._layout.choices.items()
        for other in every_trial(study):
            if any(other.params.get(region, names[0]) not in names for region, names in choices):
                return {}
        return self._generic.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """At random: for parameters that are no regions."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _learn(self, found: Observations, measured: Sequence[FrozenTrial], asked: Codes) -> None:
        assert self._surrogate is not None
        n_before, self._n_fitted = self._n_fitted, len(found)
        self._steering.learn(measured, asked, found.snr_db.min(axis=1), found.is_quick)
        if n_before:
            new = found.of(slice(n_before, None))
            self._trust.compare(self._surrogate.predict(new.codes), new)
        n_first, every = _MAX_OBSERVATIONS // 3, np.arange(len(found))
        kept = found.of(
            every if len(found) <= _MAX_OBSERVATIONS else np.r_[every[:n_first], every[n_first - _MAX_OBSERVATIONS :]]
        )
        if not n_before and not all("fixed_params" in trial.system_attrs for trial in measured):
            self._surrogate, self._trust = believe(self._layout, kept, self._prior)  # of a study that goes on
            self._surrogate.n_observed = len(found)
        self._surrogate.fit(kept, n_all=len(found))
        self._found = believed(found, snr_errors_of(measured), self._surrogate, self._trust)
        self._numbers = [trial.number for trial in measured]
        if n_before:
            self._count(self._found, n_before, asked)

    def _leave_out(self, told: Told) -> None:
        """What never ran where it was asked for, and what makes trials fail."""
        for codes in told.failed:
            promise = self._promised.pop(codes.tobytes(), None)
            if promise is not None:
                self._pace.count(promise.gain, 0.0)
        self._suspects = Suspects.of(self._layout, told.failed, np.concatenate([told.asked, told.found.codes]))
        ran = effective(self._layout, told.asked, told.found.codes)
        self._frontier = self._frontier.within(ran & ~self._suspects.certain)

    def _count(self, found: Observations, n_before: int, asked: Codes) -> None:
        """What the proposals among the new evaluations brought, with the weights that they were chosen by."""
        keeps, snr_db = self._kept(found), found.snr_db.min(axis=1)
        is_before = np.arange(len(found)) < n_before
        for i in range(n_before, len(found)):
            promise = self._promised.pop(asked[i].tobytes(), None)
            if promise is None:
                continue
            costs = self._steering.costs(found.ratios) @ promise.weights
            brought = self._gain(found, promise.weights, is_before).of_points(snr_db[i], costs[i])
            self._pace.count(promise.gain, float(brought) if keeps[i] else 0.0)

    def _gain(self, found: Observations, weights: Floats, chosen: npt.NDArray[np.bool_] | bool = True) -> Gain:
        """The front of the chosen evaluations that keep all demands and were not stopped early."""
        kept = chosen & self._kept(found)
        snr_db, costs = found.snr_db.min(axis=1)[kept], (self._steering.costs(found.ratios) @ weights)[kept]
        latency_share = weights[: found.ratios.shape[1]].sum()
        highest = None if self._max_ratio is None else 1 - latency_share * (1 - self._max_ratio)
        return Gain.of(snr_db, costs, min_snr_db=self._steering.min_snr_db(self._min_snr_db), max_ratio=highest)

    @property
    def _equal_weights(self) -> Floats:
        n = self._n_weights
        return np.full(n, 1 / n)

    @property
    def _n_targets(self) -> int:
        assert self._surrogate is not None
        return self._surrogate.n_targets

    @property
    def _n_weights(self) -> int:
        """One of each target, and the last one of the size, where it is an objective."""
        return self._n_targets + self._steering.has_size

    def outlook(self) -> Outlook | None:
        """How much better the front could still get; None before anything was evaluated.

        With several targets ratios count by their mean.
        """
        with self._lock:
            return self._outlook()

    def _outlook(self) -> Outlook | None:
        found, surrogate = self._found, self._surrogate
        if found is None or surrogate is None:
            return None
        weights = self._equal_weights
        gain = self._gain(found, weights)
        landscape = surrogate.landscape()
        codes = self._solve(self._frontier, [landscape], weights)
        snr_db = -10 * np.log10(landscape.noise_of(codes).max(axis=1))
        ratios = landscape.ratios_of(codes)
        likely = (self._steering.chances(codes, snr_db) > 0.5) & self._is_within(ratios)
        costs = self._steering.costs(ratios, codes) @ weights
        attainable = gain.with_points(snr_db[likely], costs[likely]).saving
        members = self._members(found, gain, weights)
        errors = found.errors[members] @ weights[: surrogate.n_targets]
        noise = np.sqrt(np.mean(np.square(errors)) / len(members)) if len(members) else 0.0
        return Outlook(
            saving=gain.saving,
            attainable=attainable,
            next_gain=self._next_gain * self._pace.factor,
            noise=float(noise),
        )

    def _kept(self, found: Observations) -> npt.NDArray[np.bool_]:
        """Which evaluations were measured to the end, keep every demand but that on SNR, and the ratio everywhere."""
        return self._steering.keeps & found.is_timed & ~found.is_quick & self._is_within(found.ratios)

    def _is_within(self, ratios: Floats) -> npt.NDArray[np.bool_]:
        return np.asarray(~(ratios > (np.inf if self._max_ratio is None else self._max_ratio)).any(axis=1))

    def _chances(self, codes: Codes, found: Prediction) -> Floats:
        """Probability that assignments run and keep every demand but that on SNR; shape (n,)."""
        chances = self._steering.chances(codes, found.snr_db) * self._suspects.chances(self._layout, codes)
        if self._max_ratio is None or self._n_weights == 1:
            return chances
        errors = np.maximum(self._trust.stretch[1] * found.ratio_errors, 1e-9)
        within = ndtr((self._max_ratio - found.ratios) / errors)[:, : self._n_targets]
        return np.asarray(chances * within.prod(axis=1))

    def _members(self, found: Observations, gain: Gain, weights: Floats) -> npt.NDArray[np.int64]:
        """Which evaluations make up the front."""
        kept = np.flatnonzero(self._kept(found))
        costs = self._steering.costs(found.ratios) @ weights
        return np.asarray(kept[gain.of_members(found.snr_db.min(axis=1)[kept], costs[kept])])

    def _solve(self, frontier: Frontier, landscapes: Sequence[Landscape], weights: Floats) -> Codes:
        n_targets = len(landscapes[0].constant)
        price = float(weights[n_targets:].sum())
        return frontier.solve(landscapes, weights[:n_targets], self._steering.term(price))

    def _propose(self, found: Observations, seen: frozenset[bytes], fixed: Fixed) -> Codes:
        assert self._surrogate is not None
        weights = self._weights()
        gain = self._gain(found, weights)
        first, *drawn = self._surrogate.landscapes(self._rng, _N_DRAWS)
        frontier = self._frontier.within(fixed.narrow(self._frontier.layout.allowed))
        start = fixed.hold(self._start(found.codes[self._members(found, gain, weights)]))
        neighbours = self._neighbours(start, frontier.layout.allowed, first, gain, weights)
        believed = [self._surrogate.landscape(), *drawn]
        proposals = np.concatenate([self._solve(frontier, believed, weights), neighbours])
        candidates = [codes for codes in np.unique(proposals, axis=0) if codes.tobytes() not in seen]
        if not candidates:
            self._next_gain = 0.0
            return self._unseen(start, seen, fixed)
        predicted = self._predict(np.array(candidates))
        expected = gain.expected(predicted, weights, self._trust.stretch)
        expected = expected * self._chances(np.array(candidates), predicted)
        costs = predicted.ratios @ weights
        times = _FIXED_COST + predicted.ratios[:, : self._n_targets].mean(axis=1)
        order = np.lexsort((gain.missed(predicted.snr_db, costs), -expected / times))
        chosen = int(order[0])
        self._next_gain = float(expected[chosen])
        self._promised[candidates[chosen].tobytes()] = Promise(self._next_gain, weights)
        return np.asarray(candidates[chosen])

    def _predict(self, codes: Codes) -> Prediction:
        """With the size, which is as good as known, as a further ratio where it is an objective."""
        assert self._surrogate is not None
        found = self._surrogate.predict(codes)
        ratios = self._steering.costs(found.ratios, codes)
        errors = np.zeros(ratios.shape)
        errors[:, : found.ratios.shape[1]] = found.ratio_errors
        return replace(found, ratios=ratios, ratio_errors=errors)

    def _weights(self) -> Floats:
        """Drawn anew for every proposal, so that the whole front is looked for."""
        return np.ones(1) if self._n_weights == 1 else self._rng.dirichlet(np.ones(self._n_weights))

    def _start(self, best: Codes) -> Codes:
        """An evaluated member of the front, or all float."""
        return best[self._rng.integers(len(best))] if len(best) else np.zeros(best.shape[1], dtype=np.int64)

    def _neighbours(
        self, start: Codes, allowed: npt.NDArray[np.bool_], landscape: Landscape, gain: Gain, weights: Floats
    ) -> Codes:
        """The most promising assignments that differ in one region."""
        region, scheme = np.nonzero(allowed)
        moved = np.tile(start, (len(region), 1))
        moved[np.arange(len(region)), region] = scheme
        snr_db = -10 * np.log10(landscape.noise_of(moved).max(axis=1))
        costs = self._steering.costs(landscape.ratios_of(moved), moved) @ weights
        gains = gain.of_points(snr_db, costs) * self._steering.chances(moved, snr_db)
        order = np.lexsort((gain.missed(snr_db, costs), -gains))
        return moved[order[:_N_NEIGHBOURS]]

    def _unseen(self, start: Codes, seen: frozenset[bytes], fixed: Fixed) -> Codes:
        """Something new, if need be with schemes that never ran; the start where nothing is left."""
        wide = self._layout.allowed & ~self._suspects.certain
        choices = (fixed.narrow(allowed) for allowed in (self._frontier.layout.allowed, wide))
        found = (unseen(self._rng, start, allowed, seen) for allowed in choices)
        return next((codes for codes in found if codes is not None), start)

    def _is_new(self, codes: Codes, seen: frozenset[bytes]) -> bool:
        """Whether it was not proposed yet, and has nothing that never ran or made trials fail."""
        may = self._frontier.layout.allowed[np.arange(len(codes)), codes]
        return bool(may.all()) and codes.tobytes() not in seen
