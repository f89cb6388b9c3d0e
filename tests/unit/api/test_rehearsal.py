from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoquant.api.deadline import Deadline
from autoquant.api.finalists import Refined
from autoquant.api.rehearsal import Rehearsal, Rehearsed, Rehearses
from autoquant.api.trials import SearchProgress
from autoquant.domain.measurement import Evaluation
from autoquant.domain.region import Assignment
from tests.records import a_measured
from tests.unit.api.answers import Answers, some_trials

BUDGET_S = 100.0
KEPT_S = 20.0


@dataclass
class Clock(Deadline):
    """Time passes where somebody says so."""

    seconds: float | None = BUDGET_S
    now: float = 0.0

    @property
    def elapsed(self) -> float:
        return self.now


@dataclass
class Refines:
    """Answers in turn, and takes a while for each."""

    clock: Clock
    answers: list[Rehearsed | None]
    takes_s: float = 1.0
    once_s: float = 0.0
    is_over: bool = False
    is_closed: bool = False
    begun_s: float | None = None
    asked: list[Assignment] = field(default_factory=list)

    def __call__(self, assignment: Assignment) -> Refined | None:
        raise NotImplementedError

    def rehearse(self, assignment: Assignment) -> Rehearsed | None:
        self.asked.append(assignment)
        self.clock.now += self.takes_s
        return self.answers[len(self.asked) - 1]

    def close(self) -> None:
        self.is_closed = True


def won(gain_db: float, seconds: float = 0.2, *, is_whole: bool = True) -> Rehearsed:
    return Rehearsed(seconds=seconds, plain_db=30.0, refined_db=30.0 + gain_db, is_whole=is_whole)


def a_rehearsal(refines: Refines, *, is_ended: Callable[[], bool] = lambda: False) -> Rehearsal:
    def begin(seconds: float, is_ended: Callable[[], bool], notes: list[str]) -> Rehearses:
        refines.begun_s = seconds
        return refines

    return Rehearsal(deadline=refines.clock, begin=begin, choose=list, is_ended=is_ended)


def evaluations(n: int) -> list[Evaluation]:
    return [a_measured(number=number) for number in range(n)]


def test_a_share_of_the_budget_is_kept_as_long_as_nothing_is_known() -> None:
    rehearsal = a_rehearsal(Refines(Clock(), []))
    assert rehearsal.kept_s == KEPT_S
    assert rehearsal.is_due
    assert rehearsal.is_wanted


def test_twice_what_candidates_took_is_kept_for_finalists() -> None:
    refines = Refines(Clock(), [won(1.0, 0.1), won(0.0, 0.3), won(2.0, 0.2)])
    rehearsal = a_rehearsal(refines)
    rehearsal.rehearse(evaluations(5))
    assert len(refines.asked) == 3
    assert refines.is_closed
    assert rehearsal.kept_s == pytest.approx(2 * (3 * 1.0 + 20 * 0.2))
    assert not rehearsal.is_due


def test_never_more_than_the_share_is_kept() -> None:
    rehearsal = a_rehearsal(Refines(Clock(), [won(4.0, 5.0)], takes_s=8.0))
    rehearsal.rehearse(evaluations(5))
    assert rehearsal.kept_s == KEPT_S


@pytest.mark.parametrize(("now", "seconds"), [(0.0, KEPT_S / 2), (90.0, 5.0)])
def test_candidates_take_half_of_what_is_kept_at_most_and_no_more_than_there_is(now: float, seconds: float) -> None:
    refines = Refines(Clock(now=now), [won(1.0)], takes_s=6.0)
    a_rehearsal(refines).rehearse(evaluations(5))
    assert refines.begun_s == seconds
    assert len(refines.asked) == 1


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        ([0.2, -9.0, 0.4], "won 0.2 dB by it on average (3 tried), with time for 100% of"),
        ([-1.0], "won 0.0 dB by it on average (1 tried)"),
    ],
)
def test_nothing_is_kept_where_too_little_is_won(gains: list[float], said: str) -> None:
    rehearsal, notes = a_rehearsal(Refines(Clock(), [won(gain) for gain in gains])), list[str]()
    rehearsal.rehearse(evaluations(len(gains)))
    assert (rehearsal.kept_s, rehearsal.is_wanted) == (0, False)
    assert rehearsal.for_finalists(KEPT_S - 1, lambda: False, notes) is None
    assert len(notes) == 1
    assert said in notes[0]


def test_finalists_are_refined_all_the_same_where_the_search_left_the_time_for_it() -> None:
    refines, notes = Refines(Clock(), [won(0.0)]), list[str]()
    rehearsal = a_rehearsal(refines)
    rehearsal.rehearse(evaluations(1))
    assert rehearsal.for_finalists(KEPT_S, lambda: False, notes) is refines
    assert refines.begun_s == KEPT_S
    assert notes == []


def test_what_few_finalists_would_win_is_little() -> None:
    rehearsal, notes = a_rehearsal(Refines(Clock(), [won(0.9, 1.9)], takes_s=6.0)), list[str]()
    rehearsal.rehearse(evaluations(1))
    assert rehearsal.covered == pytest.approx(KEPT_S / (6.0 + 20 * 1.9))
    assert not rehearsal.is_wanted
    assert rehearsal.for_finalists(0.0, lambda: False, notes) is None
    assert "won 0.9 dB by it on average (1 tried), with time for 45% of the finalists" in notes[0]


def test_what_is_lost_is_not_set_against_what_is_won() -> None:
    rehearsal = a_rehearsal(Refines(Clock(), [won(-20.0), won(1.0)]))
    rehearsal.rehearse(evaluations(2))
    assert rehearsal.is_wanted


def test_snrs_beyond_what_anybody_asks_for_win_nothing() -> None:
    assert Rehearsed(seconds=1.0, plain_db=61.0, refined_db=80.0).gain_db == 0
    assert Rehearsed(seconds=1.0, plain_db=58.0, refined_db=float("inf")).gain_db == 2
    assert Rehearsed(seconds=1.0, plain_db=float("inf"), refined_db=float("inf")).gain_db == 0


@pytest.mark.parametrize("answer", [None, won(0.0, is_whole=False), won(5.0, is_whole=False)])
def test_where_it_fails_or_is_cut_off_nothing_is_known(answer: Rehearsed | None) -> None:
    refines = Refines(Clock(), [answer], takes_s=12.0, is_over=answer is None)
    rehearsal = a_rehearsal(refines)
    rehearsal.rehearse(evaluations(5))
    assert (rehearsal.kept_s, rehearsal.is_wanted, rehearsal.is_due) == (KEPT_S, True, False)
    assert rehearsal.for_finalists(0.0, lambda: False, []) is refines
    assert refines.begun_s == KEPT_S


def test_candidates_that_cannot_be_refined_are_passed_over() -> None:
    rehearsal = a_rehearsal(Refines(Clock(), [None, None, won(1.0)], takes_s=0.0))
    rehearsal.rehearse(evaluations(3))
    assert rehearsal.kept_s == pytest.approx(2 * 20 * 0.2)


def test_a_user_who_wants_no_more_trials_decides_nothing() -> None:
    refines = Refines(Clock(), [won(0.0)])
    rehearsal = a_rehearsal(refines, is_ended=lambda: bool(refines.asked))
    rehearsal.rehearse(evaluations(1))
    assert rehearsal.is_wanted
    assert rehearsal.kept_s == KEPT_S


@pytest.mark.parametrize(
    ("now", "kept_s", "spare_s", "expected_s"),
    [(70.0, 4.0, 3.0, 7.0), (20.0, 4.0, 50.0, KEPT_S), (90.0, 20.0, 0.0, 5.0)],
)
def test_finalists_get_what_is_kept_and_what_is_left_beyond_it(
    now: float, kept_s: float, spare_s: float, expected_s: float
) -> None:
    refines = Refines(Clock(now=now), [])
    rehearsal = a_rehearsal(refines)
    rehearsal.kept_s = kept_s
    rehearsal.for_finalists(spare_s, lambda: False, [])
    assert refines.begun_s == expected_s


def test_without_a_budget_of_time_nothing_is_rehearsed(tmp_path: Path) -> None:
    rehearsal = a_rehearsal(Refines(Clock(seconds=None), []))
    trials = some_trials(tmp_path, Answers(), is_structured=False)
    trials.rehearsal = rehearsal
    assert trials.run(15) == "trials"
    assert rehearsal.is_wanted
    assert trials.left == float("inf")


class Slow(Answers):
    """Every trial takes a second."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def evaluate(self, *arguments: Any, **options: Any) -> Any:
        self.clock.now += 1.0
        return super().evaluate(*arguments, **options)


def test_candidates_are_refined_once_half_of_the_time_for_trials_is_over(tmp_path: Path) -> None:
    clock, seen = Clock(), list[tuple[float, float]]()
    rehearsal = a_rehearsal(Refines(clock, [won(0.0)] * 3))

    def choose(found: Sequence[Evaluation]) -> Sequence[Evaluation]:
        seen.append((clock.now, trials.left))
        return found[:3]

    rehearsal.choose = choose
    trials = some_trials(tmp_path, Slow(clock), is_structured=False)
    phases: list[str] = []
    trials.deadline, trials.rehearsal = clock, rehearsal
    trials.on_progress = lambda progress: phases.append(progress.phase)
    assert trials.run(90) in ("time", "exhausted", "trials")
    ((now, left),) = seen
    assert left <= now < left + 5
    assert phases.count("refine") == 1


def test_a_user_who_ends_it_there_gets_no_further_trial(tmp_path: Path) -> None:
    clock = Clock()
    refines = Refines(clock, [won(0.0)] * 3)
    trials = some_trials(tmp_path, Slow(clock), is_structured=False)
    trials.deadline, trials.rehearsal = clock, a_rehearsal(refines, is_ended=lambda: bool(refines.asked))

    def on_progress(progress: SearchProgress) -> None:
        if refines.asked:
            raise KeyboardInterrupt

    trials.on_progress = on_progress
    n_before: list[int] = []

    def choose(found: Sequence[Evaluation]) -> Sequence[Evaluation]:
        n_before.append(len(found))
        return list(found)

    trials.rehearsal.choose = choose
    assert trials.run(None) == "interrupted"
    assert n_before == [len(trials.study.evaluations)]


def test_a_search_without_time_for_another_trial_is_not_kept_up(tmp_path: Path) -> None:
    clock = Clock(now=BUDGET_S - KEPT_S)
    refines = Refines(clock, [])
    trials = some_trials(tmp_path, Slow(clock), is_structured=False)
    trials.deadline, trials.rehearsal = clock, a_rehearsal(refines)
    assert trials.run(None) == "time"
    assert refines.begun_s is None
