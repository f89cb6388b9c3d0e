"""The trials of a search: what is proposed first, how each is evaluated, when it ends."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autoquant.api.deadline import Deadline
from autoquant.api.steps import measure
from autoquant.domain.measurement import Evaluation, Failure, Measurement, Trial
from autoquant.domain.region import Assignment, Region
from autoquant.domain.scheme import FLOAT
from autoquant.domain.space import SearchSpace
from autoquant.measurement.bench import Bench, Progress
from autoquant.qdq.builder import Builder
from autoquant.study.study import Study

__all__ = ["SearchProgress", "Trials"]

_LOG = logging.getLogger("autoquant")
_PROBE_SHARE = 0.25
_MOST_REPEATED = 100
"""So many trials in a row that run graphs known already end a search."""
_SNR_MARGIN_DB = 1.5
_RATIO_MARGIN = 0.04
"""A candidate whose ratio comes from two rounds is dropped only when it is beaten by this much; more rounds, less."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Where a search stands.

    Attributes:
        phase: What it is doing.
        seconds_left: Of the budget; None without one.
        n_evaluations: Different candidates measured so far.
        best: Lowest ratio so far at 30, 40 and 50 dB.
    """

    phase: str
    seconds_left: float | None
    n_evaluations: int
    best: dict[int, float]


@dataclass(slots=True)
class Trials:
    """Runs trials until the time, the trials or the user say stop.

    Attributes:
        study: What is asked and told.
        builder: Builds candidates.
        bench: Measures them.
        regions: The partition.
        space: Their choices.
        deadline: Of the whole search.
        on_progress: Told after every trial.
        size_bytes: Of the float model: what a delivered file may have.
    """

    study: Study
    builder: Builder
    bench: Bench
    regions: Sequence[Region]
    space: SearchSpace
    deadline: Deadline
    on_progress: Callable[[SearchProgress], None]
    size_bytes: int
    n_rounds: int = field(init=False)
    _built: dict[str, Measurement | Failure] = field(default_factory=dict)
    _known: dict[str, Measurement] = field(default_factory=dict)
    _best: dict[int, float] = field(default_factory=lambda: {30: 1.0, 40: 1.0, 50: 1.0})
    _seconds: list[float] = field(default_factory=list)
    _n_repeated: int = 0

    def __post_init__(self) -> None:
        slowest = max(self.bench.float_s.values()) * len(self.bench.float_s)
        self.n_rounds = max(6, min(16, round(0.25 / (2 * max(slowest, 2e-3)))))
        for evaluation in self.study.evaluations:
            if isinstance(evaluation.outcome, Measurement):
                self._known[evaluation.outcome.digest] = evaluation.outcome

    @property
    def n_evaluations(self) -> int:
        """Different candidates that were measured."""
        return len(self._known)

    def run(self, n_trials: int | None) -> str:
        """Evaluate until a budget ends; the uniform recipes come first, then one-region probes, then the sampler.

        Returns:
            Why it ended: ``"time"``, ``"trials"``, ``"exhausted"`` or ``"interrupted"``.
        """
        if not self.regions:
            return "exhausted"
        n_done = 0
        self.study.enqueue({})
        for name in self.space.schemes:
            self.study.enqueue(self._uniform(name))
        probed = False
        try:
            while n_trials is None or n_done < n_trials:
                if self._left < 1.2 * max(self._seconds[-5:], default=0.0):
                    return "time"
                if not probed and self.study.n_enqueued == 0:
                    self._enqueue_probes()
                    probed = True
                if self._is_exhausted() or self._n_repeated >= _MOST_REPEATED:
                    return "exhausted"
                self._trial()
                n_done += 1
        except KeyboardInterrupt:
            return "interrupted"
        return "trials"

    @property
    def _left(self) -> float:
        """Seconds for trials: what is left without the last measurement."""
        latency_s = sum(self.bench.float_s.values())
        return self.deadline.left - self.deadline.finish_seconds(
            latency_s, len(self.bench.feeds), self.bench.opening_s, self.size_bytes
        )

    def _trial(self) -> None:
        start, n_before = time.perf_counter(), self.n_evaluations
        trial = self.study.ask()
        evaluation = Evaluation(trial=trial, outcome=self._evaluate(trial))
        self.study.tell(evaluation)
        self._n_repeated = 0 if self.n_evaluations > n_before else self._n_repeated + 1
        self._seconds.append(time.perf_counter() - start)
        self._note(evaluation)

    def _evaluate(self, trial: Trial) -> Measurement | Failure:
        try:
            candidate = self.builder.build(trial.assignment)
        except (AssertionError, KeyError, ValueError) as error:
            return Failure(stage="build", reason=f"{type(error).__name__}: {error}")
        if candidate.digest not in self._built:
            found = measure(
                self.bench,
                candidate,
                trial.assignment,
                self.regions,
                n_rounds=self.n_rounds,
                goes_on=self._may_join,
                known=self._known,
            )
            self._built[candidate.digest] = found
            if isinstance(found, Measurement):
                self._known[found.digest] = found
        return self._built[candidate.digest]

    def _may_join(self, progress: Progress) -> bool:
        """Whether a candidate could still join the front: nothing known beats it by more than the margins."""
        snr = progress.quality.worst_db
        margin = _RATIO_MARGIN * math.sqrt(2 / progress.n_rounds)
        if min(progress.ratios.values()) > 1 + margin:
            return False
        return not any(
            known.is_complete
            and known.quality.worst_db >= snr + _SNR_MARGIN_DB
            and all(known.latency[name].ratio_high <= ratio - margin / 2 for name, ratio in progress.ratios.items())
            for known in self._known.values()
        )

    def _uniform(self, scheme: str) -> Assignment:
        return {region: scheme for region, names in self.space.choices.items() if scheme in names}

    def _enqueue_probes(self) -> None:
        """One region, or as many neighbours as the time asks for, under the uniform recipe with the best SNR."""
        measured = [
            (e.outcome.quality.worst_db, e.trial.assignment)
            for e in self.study.evaluations
            if isinstance(e.outcome, Measurement) and len(set(e.trial.assignment.values()) - {FLOAT}) == 1
        ]
        if not measured:
            return
        best = max(measured, key=lambda pair: pair[0])[1]
        quantized = [region for region, name in best.items() if name != FLOAT]
        seconds = min(self._seconds, default=1.0)
        room = _PROBE_SHARE * min(self._left, 1e6) / max(seconds, 1e-3)
        size = max(1, -(-len(quantized) // max(1, int(room))))
        for start in range(0, len(quantized), size):
            self.study.enqueue({region: best[region] for region in quantized[start : start + size]})

    def _is_exhausted(self) -> bool:
        n_assignments = 1
        for names in self.space.choices.values():
            n_assignments *= len(names)
            if n_assignments > len(self.study.evaluations):
                return False
        return self.study.n_enqueued == 0

    def _note(self, evaluation: Evaluation) -> None:
        outcome = evaluation.outcome
        if isinstance(outcome, Failure):
            _LOG.warning("trial %d failed at %s: %s", evaluation.trial.number, outcome.stage, outcome.reason)
        else:
            ratio = max(latency.ratio for latency in outcome.latency.values())
            snr = outcome.quality.worst_db
            _LOG.info("trial %d: ratio %.3f, %.2f dB, %.3f s", evaluation.trial.number, ratio, snr, self._seconds[-1])
            for demand in self._best:
                if snr >= demand and outcome.is_complete:
                    self._best[demand] = min(self._best[demand], ratio)
        left = None if self.deadline.seconds is None else self.deadline.left
        self.on_progress(SearchProgress("search", left, self.n_evaluations, dict(self._best)))
