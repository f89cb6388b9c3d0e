"""The sampler beside threads, processes and other samplers."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna._typing import JSONSerializable
from optuna.samplers import PartialFixedSampler
from optuna.storages import InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from autoquant.domain.prior import LatencyPrior
from autoquant.study.layout import Layout
from autoquant.study.proposal import asked_for
from autoquant.study.sampler import StructureSampler
from autoquant.study.standing import Interest
from tests.unit.study.additive import CHOICES, REGIONS, a_layout, a_study, objectives, suggested, told
from tests.unit.study.layouts import SCHEMES


def test_threads_may_share_it() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=0))
    study.optimize(lambda trial: objectives(suggested(trial)), n_trials=60, n_jobs=4)
    proposed = [tuple(trial.params[region] for region in REGIONS) for trial in study.trials]
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    assert len(set(proposed)) == 60


def test_what_is_still_running_is_not_proposed_again() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=0))
    told(study, dict.fromkeys(REGIONS, "a"), TrialState.COMPLETE)
    open_trials = [study.ask() for _ in range(6)]  # none of them has said any parameter so far
    assert len({tuple(suggested(trial).values()) for trial in open_trials}) == 6


@pytest.mark.parametrize("generic_share", [0.0, 1.0])
def test_regions_can_be_fixed_by_another_sampler(monkeypatch: pytest.MonkeyPatch, generic_share: float) -> None:
    fixed = {str(REGIONS[0]): "b", str(REGIONS[5]): "float"}
    monkeypatch.setattr("autoquant.study.trust.Trust.generic_share", generic_share)
    study = a_study(PartialFixedSampler(fixed, StructureSampler(a_layout(), seed=0)), 20)
    assert all(fixed.items() <= trial.params.items() for trial in study.trials)


@pytest.mark.parametrize("is_enqueued", [False, True])
def test_what_is_left_beside_fixed_regions_is_proposed_without_repetition(is_enqueued: bool) -> None:
    fixed = {str(region): "b" for region in REGIONS[:5] + REGIONS[7:]}
    sampler = StructureSampler(a_layout(), seed=0)
    around = sampler if is_enqueued else PartialFixedSampler(fixed, sampler)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=around)
    for _ in range(9):
        if is_enqueued:
            study.enqueue_trial(fixed)
        params = suggested(trial := study.ask())
        assert fixed.items() <= params.items()
        study.tell(trial, objectives(params))
    assert len({(trial.params[REGIONS[5]], trial.params[REGIONS[6]]) for trial in study.trials}) == 9


@pytest.mark.parametrize("is_enqueued", [False, True])
@pytest.mark.parametrize("fixed", ["a", "float"])
def test_proposals_are_for_the_regions_that_are_fixed(fixed: str, is_enqueued: bool) -> None:
    """The middle one of three regions saves less than its two borders cost, where they are unlike."""
    first, middle, last = REGIONS[:3]
    edges, work = [(first, middle), (middle, last)], dict.fromkeys(REGIONS[:3], 1 / 3)
    layout = Layout.of(dict.fromkeys(REGIONS[:3], CHOICES), SCHEMES, edges, work)
    prior = LatencyPrior(
        base=1.0,
        change=np.array([[0.0, 0.0], [-0.05, -0.05], [0.0, 0.0]]),
        spread=np.full((3, 2), 1e-4),
        border=np.full(2, 0.04),
        border_spread=np.full(2, 1e-4),
    )
    ends = {str(first): fixed, str(last): fixed}
    for seed in range(5):
        sampler = StructureSampler(layout, Interest(min_snr_db=0.0), seed=seed, prior=prior)
        around = sampler if is_enqueued else PartialFixedSampler(ends, sampler)
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=around)
        if is_enqueued:
            study.enqueue_trial(ends)
        trial = study.ask()
        is_float = trial.suggest_categorical(middle, CHOICES) == "float"
        assert is_float == (fixed == "float")


def test_neighbours_of_earlier_trials_take_what_is_fixed_since() -> None:
    study = a_study(StructureSampler(a_layout(), seed=0), 20)
    study.sampler = PartialFixedSampler({REGIONS[0]: "b", REGIONS[5]: "float"}, StructureSampler(a_layout(), seed=0))
    for _ in range(10):
        trial = study.ask()
        trial.suggest_categorical(REGIONS[1], CHOICES)
        proposed = asked_for(a_layout(), study.trials[-1])
        assert proposed is not None
        assert (proposed[0], proposed[5]) == (2, 0)
        study.tell(trial, objectives(suggested(trial)))


def test_where_all_regions_are_fixed_other_parameters_are_sampled_still() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=0))
    study.enqueue_trial(dict.fromkeys(map(str, REGIONS), "a"))
    trial = study.ask()
    assert 0 <= trial.suggest_float("threshold", 0, 1) <= 1
    assert suggested(trial) == dict.fromkeys(REGIONS, "a")


def test_processes_that_share_a_storage_propose_different_assignments(tmp_path: Path) -> None:
    """Of equal seeds, each with a sampler and a storage of its own."""
    studies = [
        optuna.create_study(
            study_name="shared",
            storage=JournalStorage(JournalFileBackend(str(tmp_path / "study.journal"))),
            directions=["maximize", "minimize"],
            sampler=StructureSampler(a_layout(), seed=0),
            load_if_exists=True,
        )
        for _ in range(2)
    ]
    told(studies[0], dict.fromkeys(REGIONS, "a"), TrialState.COMPLETE)
    first, second = (study.ask() for study in studies)
    first.suggest_categorical(REGIONS[0], CHOICES)  # its other parameters are not stored yet
    assert suggested(second) != suggested(first)


@pytest.mark.parametrize(("waiting", "proposed"), [("a", "float"), ("float", "a")])
def test_what_waits_to_run_is_not_proposed(waiting: str, proposed: str) -> None:
    layout = Layout.of({REGIONS[0]: ("float", "a")}, SCHEMES, [], {REGIONS[0]: 1.0})
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(layout, seed=0))
    trial = study.ask()
    study.enqueue_trial({REGIONS[0]: waiting})
    assert trial.suggest_categorical(REGIONS[0], ("float", "a")) == proposed


class Meeting(InMemoryStorage):
    """Lets somebody else do something between a proposal and its publication, once."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Callable[[], None]] = []

    def set_trial_system_attr(self, trial_id: int, key: str, value: JSONSerializable) -> None:
        if self.others and key.startswith("autoquant"):
            self.others.pop()()
        super().set_trial_system_attr(trial_id, key, value)


def sharing(storage: InMemoryStorage) -> list[optuna.Study]:
    """One study as two processes have it, each with a sampler of the same seed."""
    return [
        optuna.create_study(
            directions=["maximize", "minimize"],
            study_name="shared",
            storage=storage,
            load_if_exists=True,
            sampler=StructureSampler(a_layout(), seed=0),
        )
        for _ in range(2)
    ]


def test_what_another_process_proposes_at_the_same_time_is_left_to_it() -> None:
    storage = Meeting()
    first, second = sharing(storage)
    theirs: list[dict[str, str]] = []
    storage.others.append(lambda: theirs.append(suggested(second.ask())))
    assert suggested(first.ask()) not in theirs
    assert len(theirs) == 1


class Lockstep(InMemoryStorage):
    """Lets nobody go on from a publication before another one has published as well."""

    def __init__(self) -> None:
        super().__init__()
        self._both = threading.Barrier(2)

    def set_trial_system_attr(self, trial_id: int, key: str, value: JSONSerializable) -> None:
        super().set_trial_system_attr(trial_id, key, value)
        if key.startswith("autoquant"):
            with suppress(threading.BrokenBarrierError):
                self._both.wait(10)


@pytest.mark.parametrize("generic_share", [0.0, 1.0])
def test_processes_that_give_way_at_once_do_not_meet_again(
    monkeypatch: pytest.MonkeyPatch, generic_share: float
) -> None:
    """With equal seeds they would propose the same for ever."""
    monkeypatch.setattr("autoquant.study.trust.Trust.generic_share", generic_share)
    studies = sharing(Lockstep())
    for name in ("float", "a"):
        told(studies[0], dict.fromkeys(REGIONS, name), TrialState.COMPLETE)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda study: suggested(study.ask()), studies)
    assert first != second


def test_trials_that_run_at_once_are_proposed_alike_by_equal_seeds_where_little_is_left() -> None:
    fixed = {str(region): "b" for region in REGIONS[:5] + REGIONS[7:]}
    found = []
    for _ in range(2):
        sampler = PartialFixedSampler(fixed, StructureSampler(a_layout(), seed=0))
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
        found.append([suggested(study.ask()) for _ in range(14)])
    assert found[0] == found[1]
