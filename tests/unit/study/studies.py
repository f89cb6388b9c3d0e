"""Studies of two regions."""

import dataclasses
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from autoquant.domain.measurement import Evaluation, Failure, Measurement, Trial
from autoquant.domain.objective import Objectives
from autoquant.domain.region import RegionId
from autoquant.domain.space import SearchSpace
from autoquant.metrics.grammar import parse_metrics
from autoquant.study.study import Study
from tests.records import a_measured

R0, R1 = RegionId("r0"), RegionId("r1")
SPACE = SearchSpace(choices={R0: ("float", "u8s8", "u8u8"), R1: ("float", "u8s8")}, schemes={})
ALL = Objectives(metrics=parse_metrics(["top1"]), has_size=True)
WITHOUT_SNR = Objectives(has_snr=False, metrics=parse_metrics(["top1"]))


def a_study(path: Path, space: SearchSpace = SPACE, seed: int = 0, n_targets: int = 1) -> Study:
    return Study(path, space, optuna.samplers.RandomSampler(seed=seed), n_targets)


def evaluated(trial: Trial, *, snr_db: float = 40.0, ratio: float = 0.5, is_complete: bool = True) -> Evaluation:
    outcome = a_measured(snr_db=snr_db, ratio=ratio, is_complete=is_complete).outcome
    assert isinstance(outcome, Measurement)
    return Evaluation(trial=trial, outcome=dataclasses.replace(outcome, effective=dict(trial.assignment)))


def failed(trial: Trial) -> Evaluation:
    return Evaluation(trial=trial, outcome=Failure(stage="open", reason="the kernel does not exist"))


def loaded(path: Path) -> optuna.Study:
    return optuna.load_study(study_name="autoquant", storage=JournalStorage(JournalFileBackend(str(path))))


def scored(trial: Trial, **fields: Any) -> Evaluation:
    outcome = a_measured(snr_db=33.0, ratio=0.7, size_bytes=5000, drops={"top1": 0.02}).outcome
    assert isinstance(outcome, Measurement)
    return Evaluation(trial=trial, outcome=dataclasses.replace(outcome, effective=dict(trial.assignment), **fields))
