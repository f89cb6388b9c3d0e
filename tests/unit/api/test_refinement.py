import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autoquant.api.data import SearchData
from autoquant.api.deadline import Deadline
from autoquant.api.finalists import Refined
from autoquant.api.refinement import Refinement, refine_of
from autoquant.api.refiner import RefinerSetup
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.feed import Samples
from autoquant.domain.region import Assignment, RegionId
from autoquant.errors import ModelError
from autoquant.isolation.process import Worker
from autoquant.qdq.candidate import Candidate
from autoquant.space.schema import read_space
from tests.faults import crash, hang

ASSIGNMENT = {RegionId("r"): "s"}
REFINED = Refined(
    candidate=Candidate(skeleton=b"", constants={}, variants={}, integer_nodes=frozenset(), float_nodes=frozenset()),
    algorithms=("rounding gptq",),
)


def refuse() -> None:
    raise ModelError("no session for this")


def run_out_of_memory() -> None:
    raise MemoryError


@dataclass
class AFault:
    """Makes itself; the first call refines, the second one ends badly."""

    fault: Callable[[], None]
    n_calls: int = 0

    def __call__(self) -> "AFault":
        return self

    def refine(self, assignment: Assignment, left_s: float) -> tuple[Refined, Sequence[str]]:
        assert assignment == ASSIGNMENT
        assert left_s == math.inf
        self.n_calls += 1
        if self.n_calls > 1:
            self.fault()
        return REFINED, ["a sentence"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (run_out_of_memory, "there is not enough memory"),
        (crash, "its process was ended by SIGSEGV"),
    ],
)
def test_a_fault_costs_the_refinements_that_are_still_to_come(fault: Callable[[], None], reason: str) -> None:
    notes: list[str] = []
    refinement = Refinement(Worker(AFault(fault)), lambda: math.inf, notes)
    found = [refinement(ASSIGNMENT) for _ in range(3)]
    refinement.close()
    assert found == [REFINED, None, None]
    assert len(notes) == 2
    assert notes[0] == "a sentence"
    assert notes[1].startswith(f"refinement ended, the other finalists stay as they are: {reason}")


def test_a_finalist_that_cannot_be_opened_costs_its_own_refinement_alone() -> None:
    notes: list[str] = []
    fault = AFault(refuse)
    refinement = Refinement(Worker(fault), lambda: math.inf, notes)
    assert [refinement(ASSIGNMENT) for _ in range(3)] == [REFINED, None, None]
    assert not refinement.is_over
    assert notes == ["a sentence", "refinement: a finalist stays as it is: no session for this"]
    refinement.close()


@dataclass
class Slow:
    """Makes itself, which takes some time, as the first call does for what later ones need too."""

    def __call__(self) -> "Slow":
        time.sleep(0.2)
        return self

    def refine(self, assignment: Assignment, left_s: float) -> tuple[Refined, Sequence[str]]:
        assert assignment == ASSIGNMENT
        assert left_s > 0
        return replace(REFINED, once_s=10.0), []


def test_beginning_the_process_and_what_later_finalists_need_too_is_done_once() -> None:
    refinement = Refinement(Worker(Slow()), lambda: math.inf, [])
    assert refinement.once_s == 0
    assert refinement(ASSIGNMENT) is not None
    assert refinement.once_s > 10.2
    first_s = refinement.once_s
    assert refinement(ASSIGNMENT) is not None
    refinement.close()
    assert refinement.once_s == first_s + 10


def test_a_user_who_wants_no_more_of_it_does_not_wait_for_the_one_that_runs() -> None:
    start, notes = time.perf_counter(), list[str]()
    endless = AFault(hang, n_calls=1)
    refinement = Refinement(Worker(endless), lambda: math.inf, notes, lambda: time.perf_counter() > start + 1)
    assert refinement(ASSIGNMENT) is None
    assert 1 < time.perf_counter() - start < 60
    assert notes == ["refinement ended, the other finalists stay as they are: the user wanted no more of it"]
    assert not refinement.worker.is_running
    assert refinement(ASSIGNMENT) is None
    assert not refinement.worker.is_running


@pytest.mark.parametrize(("assignment", "left_s"), [({}, 60.0), (ASSIGNMENT, 0.0)])
def test_without_time_or_quantized_regions_no_process_is_begun(assignment: Assignment, left_s: float) -> None:
    worker = Worker(AFault(crash))
    assert Refinement(worker, lambda: left_s, [])(assignment) is None
    assert not worker.is_running


def test_where_the_time_is_over_once_the_process_is_there_nothing_is_refined() -> None:
    times = iter([60.0, 60.0])
    refinement = Refinement(Worker(AFault(crash, n_calls=1)), lambda: next(times, 0.0), [])
    assert refinement(ASSIGNMENT) is None
    assert refinement.worker.is_running
    assert not refinement.notes
    refinement.close()


def test_dynamic_regions_alone_are_not_refined() -> None:
    worker = Worker(AFault(refuse))
    refinement = Refinement(worker, lambda: math.inf, [], left_alone=frozenset({"s"}))
    assert refinement(ASSIGNMENT) is None
    assert not worker.is_running


def test_the_start_of_a_process_counts_once_where_its_first_call_fails() -> None:
    refinement = Refinement(Worker(AFault(refuse, n_calls=1)), lambda: math.inf, [])
    start = time.perf_counter()
    assert refinement(ASSIGNMENT) is None
    assert 0 < refinement.once_s <= time.perf_counter() - start
    refinement.close()


def numbered(*numbers: int) -> Samples:
    """A sample of each number."""
    feeds, digests = [{"x": np.array([number])} for number in numbers], [str(number) for number in numbers]
    return Samples(feeds=feeds, feed_digests=digests, names=digests, labels={}, digest="", source="")


def refined_on(calibration: Samples, n_calibration: int, search: Samples, folder: Path) -> tuple[list[int], list[int]]:
    """Samples that calibrate, and those that judge."""
    ingredients: Any = SimpleNamespace(
        definition=read_space("quick", ep="cpu", accuracy=Accuracy.FULL),
        statistics=SimpleNamespace(n_samples=n_calibration),
    )
    data = SearchData(
        calibration=calibration,
        search=search,
        held_out=numbered(-1, -2, -3),
        evaluation_digest="",
        is_pooled=True,
        unit="evaluation samples",
        notes=(),
    )
    found = refine_of(
        ingredients,
        data,
        Deadline(None),
        rewrites=frozenset(),
        memory_bytes=None,
        cache_folder=folder,
        is_ended=lambda: False,
        notes=[],
    )
    assert isinstance(found, Refinement)
    setup = found.worker.factory
    assert isinstance(setup, RefinerSetup)
    assert list(setup.judged_names) == [str(feed["x"].item()) for feed in setup.judged]
    return [feed["x"].item() for feed in setup.calibration.feeds], [feed["x"].item() for feed in setup.judged]


def test_held_out_samples_stay_new_to_refinement(tmp_path: Path) -> None:
    assert refined_on(numbered(1, 2, 3, 4), 3, numbered(5, 6), tmp_path) == ([1, 2, 3], [5, 6])


def test_of_many_samples_refinement_has_some_of_everywhere(tmp_path: Path) -> None:
    calibration, judged = refined_on(numbered(*range(1000)), 900, numbered(*range(200)), tmp_path)
    assert (len(calibration), len(judged)) == (256, 32)
    assert np.diff([-1, *calibration, 1000]).max() <= 16
    assert np.diff([-1, *judged, 200]).max() <= 25
