"""A sampler that understands the graph."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from autoquant.domain.measurement import Believed
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import Assignment
from autoquant.study.knowledge import Knowledge
from autoquant.study.layout import Codes, Layout
from autoquant.study.outlook import Outlook
from autoquant.study.proposal import Fixed, every_trial, publish, takers
from autoquant.study.proposing import Proposer
from autoquant.study.standing import ALL_OF_INTEREST, Interest
from autoquant.study.surrogate import Surrogate
from autoquant.study.trust import Trust

__all__ = ["SAMPLER_ATTRIBUTES", "StructureSampler", "structure_of"]

_N_TRIES = 4
"""Proposals for one trial, as long as another process makes the same one at the same time."""
SAMPLER_ATTRIBUTES = frozenset(
    {"state", "snr_db", "snr_error_db", "ratios", "ratio_error", "snr_by_output", "effective", "size_bytes"}
)
"""User attributes of a trial that the sampler reads where they are.

``snr_db`` is the SNR and ``ratios`` the latency ratio on each target, whatever the objectives of the study are;
``state`` says whether it was rejected early, or ``untimed``, measured for its quality alone: that one may be proposed
again, if the study times any. ``ratio_error`` is the standard error of its ratios, or a list of one for each;
``snr_error_db`` what the samples leave open of its SNR, a standard deviation; ``snr_by_output`` the SNR of each output:
noise power adds up output by output, not in the worst of them; ``effective`` the scheme that each region really ran;
``size_bytes`` what the file takes.
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
        interest: What proposals are made for.
        seed: Of draws and moves; None for other ones each time.
        prior: What is expected of latencies; from the regions' shares of the arithmetic where there is none.
    """

    def __init__(
        self,
        layout: Layout,
        interest: Interest = ALL_OF_INTEREST,
        *,
        seed: int | None = 0,
        prior: LatencyPrior | None = None,
    ) -> None:
        self._layout, self._interest, self._prior = layout, interest, prior
        self._rng = np.random.default_rng(seed)
        self._lock = threading.RLock()
        self._independent = RandomSampler(seed=seed)
        self._generic = TPESampler(seed=seed, multivariate=True)
        self.forget()

    def forget(self) -> None:
        """Know nothing of any study."""
        self._known = Knowledge(self._layout, self._interest, self._prior)

    def begin(self, interest: Interest, prior: LatencyPrior | None) -> None:
        """Propose for another study, of which nothing is known but this."""
        with self._lock:
            self._interest, self._prior = interest, prior
            self.forget()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    @property
    def surrogate(self) -> Surrogate | None:
        """What it believes; None before the first proposal."""
        return self._known.surrogate

    @property
    def layout(self) -> Layout:
        """Regions, borders, and schemes without those that were asked for and never ran."""
        return self._known.frontier.layout

    @property
    def trust(self) -> Trust:
        """What evaluations said of its predictions."""
        return self._known.trust

    def reseed_rng(self) -> None:
        """Draw otherwise from now on: of processes that share a study, each has a sampler of its own."""
        self._rng = np.random.default_rng()
        self._independent.reseed_rng()
        self._generic.reseed_rng()

    def beliefs(self) -> dict[int, Believed]:
        """What it believes of the trials that it knows, by number; of those that were not timed the SNR alone."""
        with self._lock:
            return self._known.beliefs()

    def least_ratios(self, assignment: Assignment) -> list[float]:
        """Latency ratios that an assignment can hardly be below, by target; empty before there were evaluations."""
        with self._lock:
            return self._known.least_ratios(assignment)

    def outlook(self) -> Outlook | None:
        """How much better the front could still get; None before anything was evaluated.

        With several targets ratios count by their mean.
        """
        with self._lock:
            return self._known.outlook()

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
        is_free = search_space.keys() >= set(self._layout.regions) and fixed.is_free.all()
        with self._lock:
            meeting: Sequence[int] = ()
            for n_tried in range(_N_TRIES):
                trials = every_trial(study)
                if not self._known.is_of(trials):
                    self.forget()
                seen = self._known.learn(trials, study.directions)
                is_generic = not n_tried and self._rng.random() < self._known.trust.generic_share and is_free
                proposal = self._generic_proposal(study, trial, search_space, seen) if is_generic else {}
                if not proposal:
                    proposal = self._proposal(self._proposer(trial, n_tried, meeting), seen, fixed)
                codes = self._layout.encode(proposal)
                publish(study, trial, codes)
                meeting = takers(self._layout, study, trial, codes, trials)
                if not meeting or codes.tobytes() in seen:
                    break
        return {region: scheme for region, scheme in proposal.items() if region in search_space}

    def _proposal(self, proposer: Proposer, seen: frozenset[bytes], fixed: Fixed) -> dict[str, Any]:
        codes, promise = proposer.propose(seen, fixed)
        if codes.tobytes() in seen:
            self.repeats()
        self._known.expect(codes, promise)
        return self._layout.decode(codes)

    def _proposer(self, trial: FrozenTrial, n_tried: int, meeting: Sequence[int]) -> Proposer:
        """Of trials that met at one proposal all give way, and must not meet again."""
        if not n_tried:
            return Proposer(self._known, self._rng)
        rank = sum(number < trial.number for number in meeting)
        return Proposer(self._known, np.random.default_rng([trial.number, n_tried]), rank)

    def repeats(self) -> None:
        """Hear that a proposal is none that is new, as no other is left."""

    def _generic_proposal(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
        seen: frozenset[bytes],
    ) -> dict[str, Any]:
        """Empty where it is not new, or trials have schemes of another space, which Optuna's do not pass over."""
        choices = self._layout.choices.items()
        for other in every_trial(study):
            if any(other.params.get(region, names[0]) not in names for region, names in choices):
                return {}
        found = self._generic.sample_relative(study, trial, search_space)
        return found if found and self._is_new(self._layout.encode(found), seen) else {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """At random: for parameters that are no regions."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _is_new(self, codes: Codes, seen: frozenset[bytes]) -> bool:
        """Whether it was not proposed yet, and has nothing that never ran or made trials fail."""
        may = self.layout.allowed[np.arange(len(codes)), codes]
        return bool(may.all()) and codes.tobytes() not in seen


def structure_of(sampler: object) -> StructureSampler | None:
    """The structure sampler that proposes: this one, or that inside of a ``PartialFixedSampler``; None of others."""
    while isinstance(sampler, PartialFixedSampler):
        sampler = sampler._base_sampler
    return sampler if isinstance(sampler, StructureSampler) else None
