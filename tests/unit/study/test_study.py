import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue

import optuna
import pytest
from optuna.trial import TrialState

from autoquant.study.study import quiet
from tests.unit.study.studies import R0, R1, SPACE, a_study, evaluated, failed


def test_a_trial_names_one_of_its_choices_for_every_region(path: Path) -> None:
    trial = a_study(path).ask()
    assert trial.assignment.keys() == {R0, R1}
    assert all(name in SPACE.choices[region] for region, name in trial.assignment.items())


@pytest.fixture
def loud() -> Iterator[int]:
    """Optuna tells of all; its verbosity then."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    yield optuna.logging.INFO
    optuna.logging.set_verbosity(before)


def a_study_is_told_of() -> bool:
    """Whether Optuna logs that a study begins in this thread."""
    logger, heard = logging.getLogger("optuna"), SimpleQueue[logging.LogRecord]()
    handler = QueueHandler(heard)
    logger.addHandler(handler)
    try:
        optuna.create_study()
    finally:
        logger.removeHandler(handler)
    return not heard.empty() and heard.get().thread == threading.get_ident()


@pytest.mark.usefixtures("loud")
def test_optuna_is_silent_in_the_thread_of_a_search_alone() -> None:
    assert a_study_is_told_of()
    with ThreadPoolExecutor(1) as other, quiet():
        assert not a_study_is_told_of()
        assert other.submit(a_study_is_told_of).result()
    assert a_study_is_told_of()


def test_searches_in_several_threads_leave_optuna_as_loud_as_it_was(loud: int) -> None:
    """The one that began first ends first: its verbosity of before was restored, and then that of the other."""
    first, second = ExitStack(), ExitStack()
    with ThreadPoolExecutor(1) as other:
        first.enter_context(quiet())
        other.submit(second.enter_context, quiet()).result()
        first.close()
        assert a_study_is_told_of()
        assert not other.submit(a_study_is_told_of).result()
        other.submit(second.close).result()
        assert other.submit(a_study_is_told_of).result()
    assert optuna.logging.get_verbosity() == loud


def test_an_assignment_that_was_evaluated_can_be_asked_for(path: Path) -> None:
    study = a_study(path)
    first = study.ask()
    study.tell(evaluated(first))
    again = study.ask_for(first.assignment)
    assert (again.number, again.assignment) == (1, first.assignment)
    study.tell(failed(again))
    assert [trial.state for trial in study.told] == [TrialState.COMPLETE, TrialState.FAIL]


def test_enqueued_assignments_come_first_in_their_order_and_what_they_leave_out_is_float(path: Path) -> None:
    study = a_study(path)
    study.enqueue({R0: "u8u8"})
    study.enqueue({R1: "u8s8"})
    assert study.n_enqueued == 2
    found = []
    for _ in range(2):
        found.append(study.ask())
        study.tell(evaluated(found[-1]))
    assert [dict(t.assignment) for t in found] == [{R0: "u8u8", R1: "float"}, {R0: "float", R1: "u8s8"}]
    assert [t.number for t in found] == [0, 1]
    assert study.n_enqueued == 0


def test_an_assignment_that_waits_was_evaluated_or_is_not_allowed_is_not_enqueued(path: Path) -> None:
    study, waited = a_study(path), False
    for assignment in ({R0: "u8s8"}, {R0: "u8s8", R1: "float"}, {R0: "u8s8"}, {R1: "u8u8"}, {R0: "unknown"}):
        assert study.enqueue(assignment) is (study.n_enqueued == 1 and not waited)
        waited = study.n_enqueued == 1
    assert study.n_enqueued == 1
    study.tell(evaluated(study.ask()))
    study.enqueue({R0: "u8s8"})
    assert study.n_enqueued == 0


def test_a_trial_is_told_once(path: Path) -> None:
    study = a_study(path)
    evaluation = evaluated(study.ask())
    study.tell(evaluation)
    with pytest.raises(KeyError):
        study.tell(evaluation)
