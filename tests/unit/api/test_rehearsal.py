from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoquant.api.deadline import Deadline
from autoquant.api.finalists import Refined
from autoquant.api.rehearsal import Rehearsal, Rehearsed, Rehearses
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
    starting_s: float = 0.5
    once_s: float = 0.0
    is_over: bool = False
    is_closed: bool = False
    asked: list[Assignment] = field(default_factory=list)

    def __call__(self, assignment: Assignment) -> Refined | None:
        raise NotImplementedError

    def rehearse(self, assignment: Assignment) -> Rehearsed | None:
        self.asked.append(assignment)
        self.clock.now += self.takes_s
        return self.answers[len(self.asked) - 1]

    def close(self) -> None:
        self.is_closed = True


def won(gain_db: float, seconds: float = 0.2) -> Rehearsed:
    return Rehearsed(seconds=seconds, plain_db=30.0, refined_db=30.0 + gain_db)


def a_rehearsal(refines: Refines, *, is_ended: Callable[[], bool] = lambda: False) -> Rehearsal:
    begun: list[float] = []

    def begin(seconds: float, is_ended: Callable[[], bool], notes: list[str]) -> Rehearses:
        begun.append(seconds)
        refines.asked.clear()
        refines.is_closed = False
        return refines

    def choose(evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        return evaluations

    return Rehearsal(deadline=refines.clock, begin=begin, choose=choose, is_ended=is_ended, notes=[])


def evaluations(n: int) -> list[Evaluation]:
    return [a_measured(number=number) for number in range(n)]


def test_a_share_of_the_budget_is_kept_as_long_as_nothing_is_known() -> None:
    rehearsal = a_rehearsal(Refines(Clock(), []))
    assert rehearsal.kept_s == KEPT_S
    assert rehearsal.is_due
    assert rehearsal.is_wanted


def test_what_finalists_should_take_is_kept_once_some_were_refined() -> None:
    refines = Refines(Clock(), [won(1.0, 0.1), won(0.0, 0.3), won(2.0, 0.2)])
    rehearsal = a_rehearsal(refines)
    rehearsal.rehearse(evaluations(5))
    assert len(refines.asked) == 3
    assert refines.is_closed
    assert rehearsal.kept_s == pytest.approx(0.5 + 20 * 0.2)
    assert not rehearsal.is_due
    assert not rehearsal.notes


def test_never_more_than_the_share_is_kept() -> None:
    rehearsal = a_rehearsal(Refines(Clock(), [won(1.0, 5.0)], takes_s=8.0))
    rehearsal.rehearse(evaluations(5))
    assert rehearsal.kept_s == KEPT_S - 8.0


def test_what_takes_a_third_of_the_time_is_done_once() -> None:
    refines = Refines(Clock(), [won(1.0)], takes_s=7.0)
    a_rehearsal(refines).rehearse(evaluations(5))
    assert len(refines.asked) == 1


@pytest.mark.parametrize(
    ("gains", "said"),
    [([0.2, -9.0, 0.4], "won 0.2 dB by it on average (3 tried)"), ([-1.0], "won 0.0 dB by it on average (1 tried)")],
)
def test_nothing_is_kept_where_too_little_is_won(gains: list[float], said: str) -> None:
    rehearsal = a_rehearsal(Refines(Clock(), [won(gain) for gain in gains]))
    rehearsal.rehearse(evaluations(len(gains)))
    assert rehearsal.kept_s == 0
    assert rehearsal.for_finalists(10.0, lambda: False, []) is None
    assert len(rehearsal.notes) == 1
    assert said in rehearsal.notes[0]


def test_what_is_lost_is_not_set_against_what_is_won() -> None:
    rehearsal = a_rehearsal(Refines(Clock(), [won(-20.0), won(1.0)]))
    rehearsal.rehearse(evaluations(2))
    assert rehearsal.is_wanted


def test_snrs_beyond_what_anybody_asks_for_win_nothing() -> None:
    assert Rehearsed(seconds=1.0, plain_db=61.0, refined_db=80.0).gain_db == 0
    assert Rehearsed(seconds=1.0, plain_db=58.0, refined_db=float("inf")).gain_db == 2
    assert Rehearsed(seconds=1.0, plain_db=float("inf"), refined_db=float("inf")).gain_db == 0


def test_where_it_fails_the_finalists_will_tell_why() -> None:
    refines = Refines(Clock(), [None], takes_s=3.0, is_over=True)
    rehearsal = a_rehearsal(refines)
    rehearsal.rehearse(evaluations(5))
    assert rehearsal.kept_s == KEPT_S - 3.0
    assert not rehearsal.notes
    assert rehearsal.for_finalists(0.0, lambda: False, []) is refines


def test_candidates_that_cannot_be_refined_are_passed_over() -> None:
    rehearsal = a_rehearsal(Refines(Clock(), [None, None, won(1.0)], takes_s=0.0))
    rehearsal.rehearse(evaluations(3))
    assert rehearsal.kept_s == pytest.approx(0.5 + 20 * 0.2)


def test_a_user_who_wants_no_more_trials_decides_nothing() -> None:
    refines = Refines(Clock(), [won(0.0)])
    rehearsal = a_rehearsal(refines, is_ended=lambda: bool(refines.asked))
    rehearsal.rehearse(evaluations(1))
    assert rehearsal.is_wanted
    assert not rehearsal.notes


def test_finalists_get_what_is_kept_and_what_is_left_beyond_it() -> None:
    def seconds_of(now: float, kept_s: float, spare_s: float) -> float:
        begun: list[float] = []

        def begin(seconds: float, *_: Any) -> Rehearses:
            begun.append(seconds)
            return Refines(clock, [])

        clock = Clock()
        rehearsal = a_rehearsal(Refines(clock, []))
        rehearsal.begin, rehearsal.kept_s, clock.now = begin, kept_s, now
        rehearsal.for_finalists(spare_s, lambda: False, [])
        return begun[0]

    assert seconds_of(70.0, 4.0, 3.0) == 7.0
    assert seconds_of(20.0, 4.0, 50.0) == KEPT_S
    assert seconds_of(90.0, 20.0, 0.0) == 5.0


def test_without_a_budget_of_time_nothing_is_rehearsed(tmp_path: Path) -> None:
    rehearsal = a_rehearsal(Refines(Clock(seconds=None), []))
    trials = some_trials(tmp_path, Answers(), is_structured=False)
    trials.rehearsal = rehearsal
    assert trials.run(15) == "trials"
    assert rehearsal.is_wanted
    assert trials.left == float("inf")


def test_candidates_are_refined_once_half_of_the_time_for_trials_is_over(tmp_path: Path) -> None:
    class Slow(Answers):
        def evaluate(self, *arguments: Any, **options: Any) -> Any:
            clock.now += 1.0
            return super().evaluate(*arguments, **options)

    clock, left = Clock(), list[float]()
    refines = Refines(clock, [won(0.0)] * 3)
    rehearsal = a_rehearsal(refines)

    def choose(found: Sequence[Evaluation]) -> Sequence[Evaluation]:
        left.append(trials.left)
        return found[:3]

    rehearsal.choose = choose
    trials = some_trials(tmp_path, Slow(), is_structured=False)
    trials.deadline, trials.rehearsal = clock, rehearsal
    before_s = trials.left
    assert trials.run(90) in ("time", "exhausted", "trials")
    assert len(left) == 1
    assert before_s / 2 - 2 < left[0] < before_s / 2
