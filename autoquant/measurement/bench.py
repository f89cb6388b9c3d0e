"""Measures candidates against the pinned float model."""

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from autoquant.domain.feed import Feed, Shapes, sample_name, shapes_of
from autoquant.domain.measurement import Latency, Quality
from autoquant.domain.quality import QualityMeter, heard
from autoquant.domain.target import DEFAULT_TARGET, Target
from autoquant.errors import ProfileError
from autoquant.measurement.durations import of_several_sizes, seconds_of, size_of, typical_seconds
from autoquant.measurement.latency import REFERENCE, Outputs, Repeats, Timings, run_new_shapes, run_round
from autoquant.measurement.opening import Constants, Opened, Opener
from autoquant.measurement.profile import LEAST_RUNS, Profile, no_time, take_profiles
from autoquant.measurement.signal import Signal
from autoquant.measurement.telling import TellingSamples
from autoquant.runtime.binding import on_device
from autoquant.runtime.clocks import Clock, clock_of
from autoquant.runtime.samples import refuse_non_finite, run_sample
from autoquant.runtime.session import Session, open_session
from autoquant.runtime.streams import in_streams

__all__ = ["N_FIRST", "N_TELLING", "Bench", "Observer", "Progress", "warm_up", "worst"]

_WARMUP_S = 5e-3
_ENOUGH = 0.015
"""Standard error of a ratio above which rounds are added."""
_ROUNDING_DB = 90.0
"""A candidate closer to float than this tells nothing of how quantization noise is spread."""
_N_USUAL, _MANY_SHARE = 16, 0.4
"""What there are more samples than so many for may take that share of the time: every file of the end runs them all."""
_N_LEARNING = 64
"""The telling samples are looked for among so many, or among fewer, where running them takes long."""
_N_LEARNED_FROM = 5
"""Candidates that run all of these: the preprocessed model, and those that tell which ones are telling."""
N_FIRST = 4
"""Samples that a candidate runs where it isn't timed."""
N_TELLING = 12
"""Samples that tell the quality over all of them well enough to search with."""
Observer = Callable[[int, Outputs], None]
"""Told a sample and a candidate's outputs."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A measurement so far.

    Attributes:
        quality: Estimated for all samples from those so far.
        snr_error_db: Standard deviation of that estimate.
        ratios: Median ratio so far, by target name; empty before anything was timed.
        n_rounds: Timed rounds so far.
    """

    quality: Quality
    snr_error_db: float
    ratios: Mapping[str, float]
    n_rounds: int


@dataclass(slots=True)
class Bench:
    """The float model, open on every target, and its outputs on the evaluation samples.

    Attributes:
        model: The user's own file: latencies are ratios to it, its outputs on the CPU provider are the reference.
        targets: Where candidates are timed.
        feeds: Evaluation samples, in memory, without those that there was no time for.
        seed: Of orders and resampling.
        seconds: For running the float model on the samples, two fifths of it for more than 16; two are run in any case.
            The first candidates together run them for two fifths of it at most, but 16 each in any case.
        sample_names: What messages call the samples; their places by default.
        numbers: Outputs of integers that are numbers and no labels; those that are not 0 throughout have an SNR.
        float_s: Seconds of one inference of the float model by target name, of wall-clock time: plans go by them.
        names: Of the model's outputs.
        signal: Of its outputs, and which of them judge.
        reference: Outputs of the float model, by sample.
        opener: Of candidates.
        float_opening_s: Seconds that opening the float model's file takes on all targets; 0 until it is timed.
    """

    model: Path
    targets: Sequence[Target]
    feeds: Sequence[Feed] = field(repr=False)
    seed: int = 0
    seconds: float = math.inf
    sample_names: Sequence[str] = field(default=(), repr=False)
    numbers: frozenset[str] = frozenset()
    float_s: dict[str, float] = field(default_factory=dict)
    float_opening_s: float = 0.0
    reference: list[Outputs] = field(default_factory=list, repr=False)
    names: list[str] = field(init=False)
    signal: Signal = field(init=False, repr=False)
    opener: Opener = field(init=False, repr=False)
    _telling: TellingSamples = field(init=False, repr=False)
    _pinned: dict[str, Session] = field(init=False, repr=False)
    _known_shapes: defaultdict[str, set[Shapes]] = field(
        init=False, repr=False, default_factory=lambda: defaultdict(set)
    )
    _repeats: Repeats = field(init=False, repr=False, default_factory=Repeats)
    _clocks: dict[str, Clock] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._clocks = {target.name: clock_of(target) for target in self.targets}
        self.opener = Opener(self.targets)
        session = open_session(self.model, DEFAULT_TARGET)
        self.names = [output.name for output in session.get_outputs()]
        self._run_reference(session)
        for i, outputs in enumerate(self.reference):
            refuse_non_finite(zip(self.names, outputs, strict=True), sample_name(self.sample_names, i))
        self.signal = Signal(self.names, self.reference, heard(self.numbers, self.names, self.reference))
        self._pinned = {t.name: in_streams(on_device(open_session(self.model, t)), t.streams) for t in self.targets}
        self.time_float()
        self._telling = TellingSamples(self._n_learning, len(self.names), self._sizes)

    @property
    def _sizes(self) -> list[int]:
        return [size_of(feed) for feed in self.feeds]

    @property
    def _n_learning(self) -> int:
        each_s = _N_LEARNED_FROM * sum(self.float_s.values())
        n_most = _N_LEARNING if math.isinf(self.seconds) else int(_MANY_SHARE * self.seconds / max(each_s, 1e-9))
        return min(len(self.feeds), _N_LEARNING, max(_N_USUAL, n_most))

    def held_out_outputs(self, feeds: Sequence[Feed], sample_names: Sequence[str] = ()) -> Iterator[Outputs]:
        """Of the float model on samples that only the last measurement will see, one by one; ``signal`` hears them.

        Args:
            feeds: The samples.
            sample_names: What messages call them; their places by default.

        Raises:
            DataError: onnxruntime cannot run the model on one of them, or an output holds no number.
        """
        session, total = open_session(self.model, DEFAULT_TARGET), np.zeros(len(self.names))
        for i, feed in enumerate(feeds):
            sample = sample_name(sample_names, i)
            outputs: Outputs = run_sample(session, feed, sample)
            refuse_non_finite(zip(self.names, outputs, strict=True), sample)
            total += self.signal.powers_of(outputs)
            yield outputs
        self.signal.hear(total / (len(self.feeds) + len(feeds)))

    def run_all_samples(self) -> None:
        """Let the first candidates run every sample, however many there are; before any was measured."""
        self._telling = TellingSamples(len(self.feeds), len(self.names), self._sizes)

    def time_float(self) -> None:
        """Set ``float_s``: a few inferences of unlike sizes on every target, one of usual size where it takes long."""
        feeds = of_several_sizes(self.feeds)
        for name, pinned in self._pinned.items():
            warm_up(pinned, feeds)
            known = self._known_shapes[name]
            known.add(shapes_of(feeds[0]))
            self.float_s[name] = typical_seconds(pinned, feeds, known)

    def time_opening(self) -> None:
        """Set ``float_opening_s``: once more on every target."""
        start = time.perf_counter()
        for target in self.targets:
            open_session(self.model, target)
        self.float_opening_s = time.perf_counter() - start

    def _run_reference(self, session: Session) -> None:
        start = time.perf_counter()
        for k, feed in enumerate(self.feeds):
            limit_s = self.seconds if k < _N_USUAL else _MANY_SHARE * self.seconds
            if k >= 2 and time.perf_counter() - start > limit_s:
                break
            self.reference.append(run_sample(session, feed, sample_name(self.sample_names, k)))
        self.feeds = self.feeds[: len(self.reference)]

    def compare(self, first: Opened, second: Opened, n_rounds: int, feed: Feed | None = None) -> dict[str, Timings]:
        """Latencies of the second against the first, interleaved, by target name.

        Args:
            first: One.
            second: The other.
            n_rounds: Timed rounds.
            feed: What both read, where they are not the whole model; its samples by default.
        """
        rng, feeds = random.Random(self.seed), self.feeds if feed is None else [feed]
        timings = {name: Timings() for name in first.sessions}
        for name, timing in timings.items():
            pair = {"first": first.sessions[name], "second": second.sessions[name]}
            for session in pair.values():
                warm_up(session, feeds)
            each_s = self.float_s[name] if feed is None else seconds_of(pair["first"], feed)
            clock = self._clocks[name]
            for k in range(n_rounds):
                n_repeats = self._repeats.of(name, shapes_of(feeds[k % len(feeds)]), each_s)
                seconds, _ = run_round(pair, feeds[k % len(feeds)], n_repeats, rng, clock)
                timing.add(seconds["second"], seconds["first"])
        return timings

    def profile(
        self, candidates: Sequence[tuple[bytes, Constants]], seconds: float, most_s: float
    ) -> tuple[Profile, ...]:
        """Kernel times of the user's model and of candidates on the first target.

        Args:
            candidates: Skeletons and the constants that they leave out.
            seconds: For running them.
            most_s: Nothing is opened where opening them and running each a few times should take longer, and nothing is
                run any more where that turns out to take longer.

        Raises:
            ModelError: onnxruntime refuses a candidate.
            ProfileError: There is no time for it, or the times cannot be had.
        """
        target = self.targets[0]
        least_s = (1 + len(candidates)) * (
            self.opener.seconds / len(self.targets) + LEAST_RUNS * self.float_s[target.name]
        )
        if least_s > most_s:
            raise ProfileError(no_time(least_s))
        models = [(skeleton, self.opener.ort_values(constants)) for skeleton, constants in candidates]
        return take_profiles([(self.model, {}), *models], target, self.feeds, seconds, most_s)

    def measure(
        self,
        sessions: Mapping[str, Session],
        n_rounds: int,
        goes_on: Callable[[Progress], bool],
        observe: Observer = lambda *_: None,
    ) -> tuple[Quality, dict[str, Latency], bool]:
        """Quality of a few samples, then quality and latency from the same inferences.

        The first samples aren't timed: they warm the sessions up, and so does an inference before the first round of
        each further shape. In each round every target runs another sample, beside the float model. The first candidates
        run all samples, which tells the telling ones; later candidates run those, and their quality over all samples is
        estimated.

        Args:
            sessions: The candidate's, by target name.
            n_rounds: Timed rounds; up to twice as many on targets where the ratios scatter; samples repeat where they
                are fewer. With 0 the quality of a few telling samples is all that is measured.
            goes_on: Asked with the estimate before the first round, after a third of the rounds, and after all of them
                whether there shall be more.
            observe: Told the outputs of each sample on the first target.

        Returns:
            Quality of the worst target, latency by target name, and whether all rounds were run.
        """
        rng = random.Random(self.seed)
        meters = {name: QualityMeter(self.names, self.signal.numbers) for name in sessions}
        known: dict[str, set[Shapes]] = {name: set() for name in sessions}
        timings = {name: Timings() for name in sessions}
        samples = self._samples(n_rounds)
        n_first = min(self._n_first, len(samples))
        checkpoints = _checkpoints(n_first, n_rounds) if self._telling.is_known else frozenset()
        for k in range(max(len(samples), n_first + 2 * n_rounds)):
            sample, is_new = samples[k % len(samples)], k < len(samples)
            if k in checkpoints and not goes_on(self._progress(meters, timings)):
                return self._progress(meters, timings).quality, self._latencies(timings), k >= n_first + n_rounds
            timed = _timed(timings, k - n_first, n_rounds)
            running = sessions if is_new else {name: sessions[name] for name in timed}
            outputs = self._run(sample, running, timed, known, rng)
            if is_new:
                self._add(meters, sample, outputs)
                observe(sample, outputs[self.targets[0].name])
        quality = self._progress(meters, timings).quality
        if not self._telling.is_known and quality.worst_db < _ROUNDING_DB:
            self._telling.learn(np.where(self.signal.is_judged, meters[self.targets[0].name].noise, 0.0))
        return quality, self._latencies(timings), True

    def untimed_quality(self, opened: Opened, n_samples: int) -> Quality:
        """Quality on so many samples, evenly spread, on the first target; nothing is timed."""
        session, meter = opened.sessions[self.targets[0].name], QualityMeter(self.names, self.signal.numbers)
        for i in np.unique(np.linspace(0, len(self.feeds) - 1, n_samples).astype(np.int64)):
            meter.add(self.reference[i], session.run(None, self.feeds[i]))
        return meter.quality()

    def _samples(self, n_rounds: int) -> list[int]:
        if not self._telling.is_known:
            return self._telling.order
        return self._telling.order[: max(N_TELLING, n_rounds) if n_rounds else N_FIRST]

    @property
    def _n_first(self) -> int:
        """Samples before the first round: as many as it takes to warm the sessions up, so that they cost nothing."""
        return math.ceil(_WARMUP_S / max(min(self.float_s.values()), _WARMUP_S / N_FIRST))

    def _latencies(self, timings: Mapping[str, Timings]) -> dict[str, Latency]:
        return {name: timing.latency(self.seed) for name, timing in timings.items() if timing.session}

    def _progress(self, meters: Mapping[str, QualityMeter], timings: Mapping[str, Timings]) -> Progress:
        n_done = len(next(iter(meters.values())).noise)
        quality = worst([self._quality(meter) for meter in meters.values()])
        ratios = {name: timing.ratio for name, timing in timings.items() if timing.session}
        n_rounds = len(next(iter(timings.values())).session)
        return Progress(quality, self._telling.error_db(n_done, self._worst_output(quality)), ratios, n_rounds)

    def _quality(self, meter: QualityMeter) -> Quality:
        n_done = len(meter.noise)
        shares = self._telling.shares(n_done) * self._telling.n_samples / len(self.feeds)
        quality = meter.quality(shares, self.signal.total)
        if not meter.noise:
            return quality
        output = self._worst_output(quality)
        scatter_db = self._telling.scatter_db(np.array(meter.noise)[:, output], output)
        left_out_db = self._telling.error_db(n_done, output) if self._telling.is_known else 0.0
        return replace(quality, error_db=math.hypot(scatter_db, left_out_db))

    def _worst_output(self, quality: Quality) -> int:
        found = quality.per_output or quality.agreement
        return self.names.index(min(found, key=found.__getitem__)) if found else 0

    def _run(
        self,
        i: int,
        sessions: Mapping[str, Session],
        timings: Mapping[str, Timings],
        known: Mapping[str, set[Shapes]],
        rng: random.Random,
    ) -> dict[str, Outputs]:
        """Outputs by target name; the inferences are rounds on targets that there are timings of."""
        feed, found = self.feeds[i], dict[str, Outputs]()
        for name, session in sessions.items():
            if name not in timings:
                found[name] = session.run(None, feed)
                known[name].add(shapes_of(feed))
                continue
            pair = {REFERENCE: self._pinned[name], "candidate": session}
            run_new_shapes(self._pinned[name], feed, self._known_shapes[name])
            run_new_shapes(session, feed, known[name])
            n_repeats = self._repeats.of(name, shapes_of(feed), self.float_s[name])
            seconds, outputs = run_round(pair, feed, n_repeats, rng, self._clocks[name])
            self._repeats.learn(name, shapes_of(feed), seconds[REFERENCE])
            timings[name].add(seconds["candidate"], seconds[REFERENCE])
            found[name] = outputs["candidate"]
        return found

    def _add(self, meters: Mapping[str, QualityMeter], sample: int, outputs: Mapping[str, Outputs]) -> None:
        for name, meter in meters.items():
            meter.add(self.reference[sample], outputs[name])


def _checkpoints(n_first: int, n_rounds: int) -> frozenset[int]:
    """Before which inferences to ask whether a candidate goes on; never where it isn't to be timed."""
    rounds = {0, max(2, n_rounds // 3), n_rounds} if n_rounds else set()
    return frozenset(n_first + n for n in rounds)


def _timed(timings: Mapping[str, Timings], number: int, n_rounds: int) -> Mapping[str, Timings]:
    """Of which targets this is a round: of all at first, and again as often of those whose ratios scatter."""
    if 0 <= number < n_rounds:
        return timings
    may_be_more = n_rounds <= number < 2 * n_rounds
    return {name: timing for name, timing in timings.items() if may_be_more and _scatters(timing)}


def _scatters(timing: Timings) -> bool:
    return timing.error > _ENOUGH


def warm_up(session: Session, feeds: Sequence[Feed]) -> None:
    """Once, and again while that took no longer than a few milliseconds: the first run allocates."""
    end = time.perf_counter() + _WARMUP_S
    for feed in feeds[:3]:
        session.run(None, feed)
        if time.perf_counter() > end:
            break


def worst(qualities: Sequence[Quality]) -> Quality:
    """The quality with the lowest SNR."""
    return min(qualities, key=lambda quality: quality.worst_db)
