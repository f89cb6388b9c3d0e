"""Latency ratios from interleaved rounds."""

import gc
import math
import random
import statistics
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Feed, Shapes, shapes_of
from autoquant.domain.front import FLOAT_ID
from autoquant.domain.measurement import Latency
from autoquant.measurement.costs import TIMING_S
from autoquant.measurement.medians import variance_of_medians
from autoquant.runtime.clocks import Clock
from autoquant.runtime.session import Session
from autoquant.runtime.streams import ready

__all__ = [
    "REFERENCE",
    "Estimate",
    "Outputs",
    "Repeats",
    "Timings",
    "bootstrap_interval",
    "run_new_shapes",
    "run_round",
]

_N_RESAMPLES = 400
_N_REMEMBERED = 15
"""Rounds by which repeats are chosen."""
REFERENCE = FLOAT_ID
"""What the pinned float model is called among the sessions of a round."""

Outputs = Sequence[npt.NDArray[np.generic]]
Floats = npt.NDArray[np.float64]
Estimate = tuple[float, float, float]
"""A value, and the ends of its interval."""


@dataclass(slots=True)
class Timings:
    """Paired latencies of one candidate on one target; raw samples are kept.

    Attributes:
        candidate_s: Median seconds of the candidate's inferences, by round.
        reference_s: Those of the float model in the same rounds.
        session: Which opening of the sessions each round belongs to.
        each_s: Seconds of every single inference of the candidate.
    """

    candidate_s: list[float] = field(default_factory=list)
    reference_s: list[float] = field(default_factory=list)
    session: list[int] = field(default_factory=list)
    each_s: list[float] = field(default_factory=list)

    def add(self, candidate_s: Sequence[float], reference_s: Sequence[float], session: int = 0) -> None:
        """Count one round: seconds of each inference in it."""
        self.candidate_s.append(statistics.median(candidate_s))
        self.reference_s.append(statistics.median(reference_s))
        self.session.append(session)
        self.each_s.extend(candidate_s)

    @property
    def ratio(self) -> float:
        """Median of the paired ratios so far."""
        return float(np.median(self._ratios))

    @property
    def error(self) -> float:
        """Standard error of the median ratio, from the interquartile range; infinite for fewer than 3 rounds."""
        if len(self.session) < 3:
            return math.inf
        low, high = np.quantile(self._ratios, [0.25, 0.75])
        return float(1.2533 * (high - low) / 1.349 / math.sqrt(len(self.session)))

    def latency(self, seed: int) -> Latency:
        """Medians with 95 % bootstrap intervals; sessions are resampled first, then the rounds inside them."""
        own, sessions, ratios = np.array(self.candidate_s), np.array(self.session), self._ratios
        return self.latency_within(
            (float(np.median(own)), *bootstrap_interval(own, sessions, seed)),
            (float(np.median(ratios)), *bootstrap_interval(ratios, sessions, seed)),
        )

    def latency_within(self, own_s: Estimate, ratio: Estimate) -> Latency:
        """With intervals that come from elsewhere.

        Args:
            own_s: Seconds of the candidate.
            ratio: To the float model.
        """
        median_ms, low_ms, high_ms = (seconds * 1e3 for seconds in own_s)
        value, ratio_low, ratio_high = ratio
        return Latency(
            median_ms=median_ms,
            low_ms=low_ms,
            high_ms=high_ms,
            ratio=value,
            ratio_low=ratio_low,
            ratio_high=ratio_high,
            n_rounds=len(self.session),
            n_sessions=len(set(self.session)),
            p90_ms=float(np.quantile(self.each_s, 0.9)) * 1e3,
            p99_ms=float(np.quantile(self.each_s, 0.99)) * 1e3,
        )

    def ratio_by_session(self) -> list[float]:
        """Median of the paired ratios in each session."""
        return self._medians(self._ratios)

    def seconds_by_session(self) -> list[float]:
        """Median seconds of the candidate in each session."""
        return self._medians(np.array(self.candidate_s))

    def ratio_variance(self) -> float:
        """``variance_of_medians`` of the paired ratios."""
        return variance_of_medians(self._ratios, np.array(self.session))

    def seconds_variance(self) -> float:
        """The same of the candidate's seconds."""
        return variance_of_medians(np.array(self.candidate_s), np.array(self.session))

    @property
    def _ratios(self) -> Floats:
        return np.divide(self.candidate_s, self.reference_s)

    def _medians(self, values: Floats) -> list[float]:
        sessions = np.array(self.session)
        return [float(np.median(values[sessions == number])) for number in np.unique(sessions)]


@dataclass(slots=True)
class Repeats:
    """How often inferences are repeated in a row so that a timing is long enough, by target and shapes.

    The float model says it, in trials as in the last measurement: of short inferences the first ones in a row are
    slower than the rest, of one session by more than of another. Its fastest inferences count: those that other work
    interrupts would make rounds short just where they have to be long.
    """

    _known: defaultdict[tuple[str, Shapes], deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_N_REMEMBERED))
    )

    def of(self, target: str, shapes: Shapes, expected_s: float) -> int:
        """At least once.

        Args:
            target: Name.
            shapes: Of the sample.
            expected_s: Seconds of an inference of the float model where no round of such samples is known.
        """
        known = sorted(self._known[target, shapes])
        seconds = known[len(known) // 4] if known else expected_s
        return max(1, round(TIMING_S / max(seconds, 1e-6)))

    def learn(self, target: str, shapes: Shapes, seconds: Sequence[float]) -> None:
        """What inferences of the float model took in a round."""
        self._known[target, shapes].append(min(seconds))


def bootstrap_interval(values: Floats, clusters: npt.NDArray[np.int64], seed: int) -> tuple[float, float]:
    """95 % percentile interval of the median; clusters are drawn with replacement, then values inside each.

    Args:
        values: Shape (n,), at least one.
        clusters: Cluster number of each value, shape (n,).
        seed: Of the resampling.

    References:
        Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8.
    """
    rng = np.random.default_rng(seed)
    groups = [values[clusters == c] for c in np.unique(clusters)]
    if len(groups) == 1:
        drawn = rng.choice(values, size=(_N_RESAMPLES, len(values)))
        medians = np.median(drawn, axis=1)
    else:
        medians = np.array([_resampled_median(groups, rng) for _ in range(_N_RESAMPLES)])
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(low), float(high)


def _resampled_median(groups: Sequence[Floats], rng: np.random.Generator) -> float:
    chosen = rng.integers(len(groups), size=len(groups))
    return float(np.median(np.concatenate([rng.choice(groups[c], size=len(groups[c])) for c in chosen])))


def run_new_shapes(session: Session, feed: Feed, known: set[Shapes]) -> None:
    """Run a session once that has not run a feed of these shapes yet: it allocates then, or looks for kernels.

    Args:
        session: It.
        feed: What it will be timed on.
        known: What it has run; those of ``feed`` are added.
    """
    shapes = shapes_of(feed)
    if shapes not in known:
        session.run(None, feed)
        known.add(shapes)


def run_round(
    sessions: Mapping[str, Session],
    feed: Feed,
    n_repeats: int,
    rng: random.Random,
    clock: Clock,
) -> tuple[dict[str, list[float]], dict[str, Outputs]]:
    """Run every session on one feed, in random order; copies to and from the memory of a device are not timed.

    Args:
        sessions: By name.
        feed: What all of them read.
        n_repeats: Inferences of each in a row.
        rng: Of the order.
        clock: See ``clock_of``.

    Returns:
        Seconds of each inference and the last outputs, by the name of the session.
    """
    order = list(sessions)
    rng.shuffle(order)
    seconds: dict[str, list[float]] = {}
    outputs: dict[str, Outputs] = {}
    with _without_collection():
        for name in order:
            inference = ready(sessions[name], feed)
            seconds[name] = []
            for _ in range(n_repeats):
                start = clock()
                inference.run()
                seconds[name].append(clock() - start)
            outputs[name] = inference.outputs
    return seconds, outputs


@contextmanager
def _without_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
