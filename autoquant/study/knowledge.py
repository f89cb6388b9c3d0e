"""What is known of a study: what its trials say, and models of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from autoquant.domain.measurement import Believed
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import Assignment
from autoquant.study.belief import believed
from autoquant.study.failing import Suspects
from autoquant.study.frontier import Frontier
from autoquant.study.landscape import Landscape
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.observed import Reader, Told, effective, observe, snr_errors_of
from autoquant.study.outlook import Outlook, Pace, Promise
from autoquant.study.standing import Interest, Standing
from autoquant.study.steering import Steering
from autoquant.study.surrogate import Prediction, Surrogate
from autoquant.study.trust import Trust, believe

__all__ = ["Knowledge"]

_MAX_OBSERVATIONS = 400
"""Of these a third are the first ones: the uniform recipes and the probes."""
_N_DEVIATIONS = 3.0
"""A ratio is hardly so many standard deviations below what is expected of it."""


class Knowledge:
    """Learns from the trials of one study.

    Args:
        layout: Regions, schemes and borders.
        interest: What proposals are made for.
        prior: What is expected of latencies.

    Attributes:
        layout: Of all schemes.
        interest: What proposals are made for.
        steering: What was learned of sizes and demands on metrics.
        frontier: Solves, of the schemes but those that were asked for and never ran, or make trials fail.
        suspects: What may be the cause of failed trials.
        surrogate: None before anything was learned.
        trust: What evaluations said of its predictions.
    """

    def __init__(self, layout: Layout, interest: Interest, prior: LatencyPrior | None = None) -> None:
        self.layout, self.interest, self._prior = layout, interest, prior
        self.frontier = Frontier(layout)
        nothing = np.zeros((0, len(layout.regions)), dtype=np.int64)
        self.suspects = Suspects.of(layout, nothing, nothing)
        self._reader = Reader(layout, has_size=interest.has_size)
        self._begin()

    def _begin(self) -> None:
        """Nothing was learned of any evaluation."""
        self.steering = Steering(
            self.layout,
            max_size_bytes=self.interest.max_size_bytes,
            has_size=self.interest.has_size,
            modelled=self.interest.modelled,
        )
        self.surrogate: Surrogate | None = None
        self.trust = Trust()
        self._found = observe(self.layout, [])
        self._numbers: list[int] = []
        self._pace = Pace()
        self._promised: dict[bytes, Promise] = {}
        self._next_gain = float("inf")

    @property
    def standing(self) -> Standing:
        """Of the evaluations as they are believed to be."""
        return Standing(self._found, self.steering, self.interest)

    def is_of(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether what is known comes from the study of these trials."""
        return self._reader.knows(trials)

    def learn(self, trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection]) -> frozenset[bytes]:
        """Learn from trials that ended since.

        Returns:
            Scheme numbers, as bytes, that need not be asked for again.

        Raises:
            UsageError: What a trial says cannot be read, see ``Reader``.
        """
        told = self._reader.read(trials, directions)
        if [trial.number for trial in told.measured[: len(self._numbers)]] != self._numbers:
            self._begin()  # ratios on as many targets as others have now make some odd that were not
        n_targets = told.found.ratios.shape[1]
        if self.surrogate is None or self.surrogate.n_targets != n_targets:
            self.surrogate = Surrogate(self.layout, n_targets, self._prior)
            self._promised.clear()
        if len(told.found) > len(self._found):
            self._fit(told)
        self._leave_out(told)
        return told.seen

    def _fit(self, told: Told) -> None:
        assert self.surrogate is not None
        found, n_before = told.found, len(self._found)
        self.steering.learn(told.measured, told.asked, found.snr_db.min(axis=1), found.is_quick)
        if n_before:
            new = found.of(slice(n_before, None))
            self.trust.compare(self.surrogate.predict(new.codes), new)
        n_first, every = _MAX_OBSERVATIONS // 3, np.arange(len(found))
        kept = found.of(
            every if len(found) <= _MAX_OBSERVATIONS else np.r_[every[:n_first], every[n_first - _MAX_OBSERVATIONS :]]
        )
        if not n_before and not all("fixed_params" in trial.system_attrs for trial in told.measured):
            self.surrogate, self.trust = believe(self.layout, kept, self._prior)  # of a study that goes on
            self.surrogate.n_observed = len(found)
        self.surrogate.fit(kept, n_all=len(found))
        self._found = believed(found, snr_errors_of(told.measured), self.surrogate, self.trust)
        self._numbers = [trial.number for trial in told.measured]
        if n_before:
            self._count(n_before, told.asked)

    def _count(self, n_before: int, asked: Codes) -> None:
        """What the proposals among the new evaluations brought, with the weights that they were chosen by."""
        standing, is_before = self.standing, np.arange(len(self._found)) < n_before
        for i in range(n_before, len(self._found)):
            promise = self._promised.pop(asked[i].tobytes(), None)
            if promise is not None:
                before = standing.gain(promise.weights, is_before)
                self._pace.count(promise.gain, standing.gain_of(i, promise.weights, before))

    def _leave_out(self, told: Told) -> None:
        """What never ran where it was asked for, and what makes trials fail."""
        for codes in told.failed:
            promise = self._promised.pop(codes.tobytes(), None)
            if promise is not None:
                self._pace.count(promise.gain, 0.0)
        measured = np.concatenate([told.asked, told.found.codes])
        self.suspects = Suspects.of(self.layout, told.failed, measured, told.is_told)
        ran = effective(self.layout, told.asked, told.found.codes)
        self.frontier = self.frontier.within(ran & ~self.suspects.certain)

    def expect(self, codes: Codes, promise: Promise | None) -> None:
        """Keep in mind what a proposal shall bring; None where nothing is expected of it."""
        self._next_gain = 0.0 if promise is None else promise.gain
        if promise is not None:
            self._promised[codes.tobytes()] = promise

    def predict(self, codes: Codes) -> Prediction:
        """With the size, which is as good as known, as a further ratio where it is an objective."""
        assert self.surrogate is not None
        found = self.surrogate.predict(codes)
        ratios = self.steering.costs(found.ratios, codes)
        errors = np.zeros(ratios.shape)
        errors[:, : found.ratios.shape[1]] = found.ratio_errors
        return replace(found, ratios=ratios, ratio_errors=errors)

    def solve(self, frontier: Frontier, landscapes: Sequence[Landscape], weights: Floats) -> Codes:
        """Assignments of the fronts' lower hulls, with what they pay for their size.

        Args:
            frontier: Of the schemes that they may have.
            landscapes: What to believe.
            weights: Of targets and size.
        """
        n_targets = len(landscapes[0].constant)
        price = float(weights[n_targets:].sum())
        return frontier.solve(landscapes, weights[:n_targets], self.steering.term(price))

    def beliefs(self) -> dict[int, Believed]:
        """What is believed of the trials that are known, by number; of those that were not timed the SNR alone."""
        found = self._found
        rows = zip(self._numbers, found.snr_db[:, 0].tolist(), found.ratios.tolist(), found.is_timed, strict=True)
        return {
            n: Believed(snr_db=snr_db, ratios=tuple(ratios) if is_timed else ()) for n, snr_db, ratios, is_timed in rows
        }

    def least_ratios(self, assignment: Assignment) -> list[float]:
        """Latency ratios that an assignment can hardly be below, by target; empty before there were evaluations."""
        if self.surrogate is None or not len(self._found):
            return []
        found = self.surrogate.predict(self.layout.encode({str(k): v for k, v in assignment.items()})[None])
        errors = max(1.0, self.trust.stretch[1]) * found.ratio_errors[0]  # of proposals it knows more than of others
        return [float(ratio) for ratio in found.ratios[0] - _N_DEVIATIONS * errors]

    def outlook(self) -> Outlook | None:
        """How much better the front could still get; None before anything was evaluated.

        With several targets ratios count by their mean.
        """
        surrogate, standing, steering = self.surrogate, self.standing, self.steering
        if surrogate is None or not len(standing.found):
            return None
        weights = np.full(standing.n_weights, 1 / standing.n_weights)
        gain = standing.gain(weights)
        landscape = surrogate.landscape()
        codes = self.solve(self.frontier, [landscape], weights)
        snr_db = -10 * np.log10(landscape.noise_of(codes).max(axis=1))
        ratios = landscape.ratios_of(codes)
        likely = (steering.chances(codes, snr_db) > 0.5) & self.interest.is_fast(ratios)
        costs = steering.costs(ratios, codes) @ weights
        attainable = gain.with_points(snr_db[likely], costs[likely]).saving
        members = standing.members(gain, weights)
        errors = standing.found.errors[members] @ weights[: standing.n_targets]
        noise = np.sqrt(np.mean(np.square(errors)) / len(members)) if len(members) else 0.0
        return Outlook(
            saving=gain.saving,
            attainable=attainable,
            next_gain=self._next_gain * self._pace.factor,
            noise=float(noise),
            demands_db=(float(gain.demands_db[0]), float(gain.demands_db[-1])),
        )
