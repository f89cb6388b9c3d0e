"""What the outputs of files say, and which of the files are worth being timed by that."""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from autoquant.domain.division import Division
from autoquant.errors import MetricError
from autoquant.isolation.process import Worker
from autoquant.measurement.collected import Collected
from autoquant.measurement.costs import CHUNK_S, FEW, LEAST_ROUNDS, TimingCosts
from autoquant.measurement.files import Compared, FileBenchSetup, Round
from autoquant.measurement.latency import REFERENCE
from autoquant.measurement.measured import Judged
from autoquant.measurement.roster import Roster
from autoquant.measurement.time_left import TimeLeft

__all__ = ["Judging", "Wishes"]

_TIMED_SHARE = 0.5
"""Of the files whose outputs are compared: the others are superseded or spares in most cases."""
_LONG_SHARE = 0.1
"""Of the time that is left: what the first sample takes less than that of is not judged by, as all is new to it."""
_LATE = "left out without being timed, as time is short and others matter more: {}; give more time"
_LATE_SPARES = "left out without being timed, as time is short and others should beat them: {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Which files matter.

    Attributes:
        may_drop: Whether files that there is no time for are dropped, the least important first.
        comparing_share: Of the time that is left, for comparing outputs on all targets; a few samples are compared in
            any case, all of them where it is None.
        superseded: Given what outputs say of each file, ids of those that nobody wants any more: they are not timed.
        spares: Given the same of the others, and their latency ratios by target, one of each process so far, ids of
            those that are timed only where there is time for the number of processes that is wanted, the most important
            first.
    """

    may_drop: bool = True
    comparing_share: float | None = None
    superseded: Callable[[Mapping[str, Judged]], Collection[str]] = lambda _: ()
    spares: Callable[[Mapping[str, Judged], Mapping[str, Mapping[str, Sequence[float]]]], Sequence[str]] = lambda *_: ()


@dataclass(slots=True)
class Judging:
    """Compares outputs of open files with the baseline's, on every target, before anything is timed.

    Attributes:
        setup: The baseline, samples and targets.
        wishes: Which files matter.
        roster: The files; those that are not worth being timed are taken out.
        collected: Gets what outputs say.
        time: How long there is.
        division: Which samples the search has seen; None where nothing is to be said of parts.
        notes: Gets what to know about it.
        rounds: Those that outputs were compared in, by target, where the baseline ran there too.
    """

    setup: FileBenchSetup
    wishes: Wishes
    roster: Roster
    collected: Collected
    time: TimeLeft
    division: Division | None
    notes: list[str]
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    _sample_s: dict[str, tuple[float, float]] = field(default_factory=dict)
    _starting_s: float = 0.0
    _opening_s: float = 0.0

    def run(self, worker: Worker, starting_s: float, opening_s: float) -> None:
        """Compare all files that are kept.

        Args:
            worker: A process of a ``FileBench``, in which they are open.
            starting_s: Seconds that it took to be ready.
            opening_s: Seconds that opening all of them took.
        """
        self._starting_s = starting_s
        self._opening_s = opening_s / (1 + len(self.roster.kept))
        not_on_cpu = worker.call("open_reference", seconds=self.time.answer_s(1))
        if not_on_cpu:
            where = "on the same target, not on the CPU"
            self.notes.append(f"outputs are compared with the baseline's {where}: {not_on_cpu}")
        for target in self.collected.targets:
            self._compare(worker, target)
            if self.setup.make_scorer is not None:
                self._score(worker, target)
        before = self.roster.kept
        judged = {key: self.collected.judged(key) for key in before}
        self.roster.drop(self.wishes.superseded(judged))
        spares = self.wishes.spares({key: judged[key] for key in self.roster.kept}, {})
        self._leave_out_untimed(spares)
        self._close(worker, before)

    def _compare(self, worker: Worker, target: str) -> None:
        n_samples, n_done, size = len(self.setup.feeds), 0, 1
        n_later = n_samples * (len(self.collected.targets) - 1 - list(self.collected.targets).index(target))
        end, parts = time.perf_counter() + self._comparing_s, list[tuple[int, float, float]]()
        while n_done < n_samples and not (n_done >= self._least_compared and self._why_no_more(end)):
            start = time.perf_counter()
            part = range(n_done, min(n_done + size, n_samples))
            limit_s = self.time.answer_s(1 + len(self.roster.kept))
            found: Compared = worker.call("compare", target, part, seconds=limit_s)
            self.roster.lose(found.failed)
            self.collected.compare(target, found.meters)
            if found.is_beside:
                self.rounds.setdefault(target, []).extend(found.rounds)
            seconds = time.perf_counter() - start
            parts.append((len(part), found.baseline_s, (seconds - found.baseline_s) / max(1, len(found.meters))))
            self._sample_s[target] = _per_sample(parts)
            n_done += len(part)
            size = max(1, int(CHUNK_S * len(part) / max(seconds, 1e-6)))
            if len(parts) > 1 or seconds > _LONG_SHARE * self.time.seconds:
                self._leave_out_late(worker, target, n_samples - n_done + n_later)
        said = f"outputs were compared on {n_done} of the {n_samples} samples: {self._why_no_more(end)}"
        if n_done < n_samples and said not in self.notes:
            self.notes.append(said)

    @property
    def _comparing_s(self) -> float:
        """For comparing outputs on one target."""
        share = self.wishes.comparing_share
        return math.inf if share is None else share * self.time.seconds / len(self.collected.targets)

    def _why_no_more(self, end: float) -> str:
        """Than the samples that were compared; empty where the next ones are."""
        if self.time.is_ended():
            return "the user wanted no more"
        return "there was no time for more; give more time" if time.perf_counter() > end else ""

    @property
    def _least_compared(self) -> int:
        """Samples, whoever wants it to end: metrics have values on all those of a search, on fewer they may not."""
        if self.setup.make_scorer is None:
            return LEAST_ROUNDS
        return len(self.setup.feeds) if self.division is None else self.division.search.stop

    def _leave_out_late(self, worker: Worker, target: str, n_samples: int) -> None:
        """Where there is no time to run all files on so many samples more, of later targets too, and to time them."""
        kept, (baseline_s, file_s) = self.roster.kept, self._sample_s[target]
        if not n_samples or len(kept) < 2 or not self.wishes.may_drop or math.isinf(self.time.deadline):
            return
        n_targets = len(self.collected.targets)
        costs = self._costs(n_targets * baseline_s, n_targets * file_s)
        left_s, running_s = self.time.seconds - n_samples * baseline_s, n_samples * file_s
        n = costs.n_least(left_s, running_s=running_s, timed_share=_TIMED_SHARE)
        late = "there was no time to compare the outputs of {}, which are left out; give more time"
        self.roster.leave_out(kept[max(n, FEW) :], late)
        self._close(worker, kept)

    def _score(self, worker: Worker, target: str) -> None:
        """Metrics of the baseline and of every file; a file that there is no time for or that has none is left out."""
        self.collected.score(target, REFERENCE, worker.call("score", target, REFERENCE))
        before, has_scored = self.roster.kept, False
        for number, key in enumerate(before):
            if has_scored and self.wishes.may_drop and self.time.is_over:
                late = "there was no time for the metrics of {}, which are left out; give more time"
                unwanted = "left out, as the user wanted no more: the metrics of {}"
                self.roster.leave_out(before[number:], unwanted if self.time.is_ended() else late)
                break
            try:
                self.collected.score(target, key, worker.call("score", target, key))
                has_scored = True
            except MetricError as error:
                self.roster.lose({key: str(error)})
        self._close(worker, before)

    def _leave_out_untimed(self, spares: Sequence[str]) -> None:
        """Spares without time for as many processes as are wanted, and others without time for the least number."""
        if math.isinf(self.time.deadline) or not self._sample_s or not self.wishes.may_drop:
            return
        costs = self._costs(*(sum(seconds) for seconds in zip(*self._sample_s.values(), strict=True)))
        n_others = len(self.roster.kept) - len(spares)
        n_timed, n_least = costs.n_timed(self.time.seconds), costs.n_least(self.time.seconds)
        self.roster.leave_out(spares[max(n_timed, n_others, 1) - n_others :], _LATE_SPARES)
        self.roster.leave_out(self.roster.kept[max(n_least, FEW) :], _LATE)

    def _costs(self, baseline_s: float, file_s: float) -> TimingCosts:
        """Of inferences that take so long on all targets."""
        n_targets = len(self.collected.targets)
        is_counted = n_targets == 1 and bool(self.rounds) and len(self.setup.feeds) >= LEAST_ROUNDS
        return TimingCosts(
            starting_s=self._starting_s,
            opening_s=self._opening_s,
            baseline_s=baseline_s,
            file_s=file_s,
            n_targets=n_targets,
            is_counted=is_counted,
        )

    def _close(self, worker: Worker, before: Sequence[str]) -> None:
        """The files that were open before and are not kept any more."""
        worker.call("drop", [key for key in before if key not in self.roster.kept])


def _per_sample(parts: Sequence[tuple[int, float, float]]) -> tuple[float, float]:
    """Seconds of the baseline and of a file, by samples and seconds of parts; the first one counts where it is alone.

    It begins all that later ones go on with.
    """
    n_samples, baseline_s, file_s = (sum(column) for column in zip(*(parts[1:] or parts), strict=True))
    return baseline_s / n_samples, file_s / n_samples
