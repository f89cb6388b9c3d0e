import json
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoquant.api.configuration import Budget, Configuration, Demands, check_targets
from autoquant.domain.objective import Bounds
from autoquant.domain.sampler import MAX_SEED
from autoquant.domain.target import MAX_THREADS, Target
from autoquant.errors import UsageError
from autoquant.metrics.grammar import parse_metrics

VALID: Mapping[str, Any] = {
    "model": Path("model.onnx"),
    "calibration": Path("calib.npz"),
    "evaluation": None,
    "targets": (Target(), Target(threads=2)),
    "budget": Budget(seconds=60),
    "demands": Demands(min_snr_db=30),
    "out": Path("run"),
    "space": "default",
    "n_regions": 40,
}


@pytest.mark.parametrize("seconds", [0, -1.0, math.inf, math.nan])
def test_a_budget_of_no_or_endless_time_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match=r"the time budget is .* it must be positive"):
        Budget(seconds=seconds)


@pytest.mark.parametrize("trials", [0, -5, 2.5, math.nan, math.inf])
def test_a_budget_without_a_whole_number_of_trials_is_refused(trials: Any) -> None:
    with pytest.raises(UsageError, match="it must be a whole number of at least 1"):
        Budget(trials=trials)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Budget(seconds="60"), "Budget.seconds is of type 'str', give a number"),  # type: ignore[arg-type]
        (lambda: Budget(trials={"a": 3}), "Budget.trials is of type 'dict', give a number"),  # type: ignore[arg-type]
        (lambda: Demands(min_snr_db="40"), "Demands.min_snr_db is of type 'str', give a number"),  # type: ignore[arg-type]
        (lambda: Budget(trials=True), "Budget.trials is of type 'bool', give a number"),
        (lambda: Demands(max_drop={"top1": None}), "Demands.max_drop is of type 'NoneType', give a number"),  # type: ignore[dict-item]
        (lambda: Demands(max_drop={"top1": "1 %"}), "Demands.max_drop is of type 'str', give a number"),  # type: ignore[dict-item]
    ],
)
def test_what_is_no_number_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.01, math.nan])
def test_a_latency_ratio_that_is_no_share_is_refused(ratio: float) -> None:
    with pytest.raises(UsageError, match=r"it must lie in \(0, 1\]"):
        Demands(max_latency_ratio=ratio)


@pytest.mark.parametrize("snr_db", [math.inf, math.nan])
def test_an_snr_that_is_not_finite_is_refused(snr_db: float) -> None:
    with pytest.raises(UsageError, match="finite"):
        Demands(min_snr_db=snr_db)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": ()}, "there is no target"),
        (
            {"targets": ("cpu",)},
            r"one of the targets is of type 'str', give a list of targets, e\.g\. \[Target\('cpu'\)\]",
        ),
        ({"targets": (Target(), Target(options={"a": "b"}))}, "two targets have the same name"),
        ({"targets": (Target(threads=MAX_THREADS + 1),)}, f"has 1025 threads, at most {MAX_THREADS}"),
        ({"targets": (Target(streams=MAX_THREADS + 1),)}, f"has 1025 streams, at most {MAX_THREADS}"),
        ({"n_regions": 0}, "number of regions is 0"),
        ({"seed": -1}, "the seed is -1"),
        ({"n_regions": 2.5}, "the number of regions is of type 'float', give a whole number"),
        ({"seed": "1"}, "the seed is of type 'str', give a whole number"),
        ({"seed": MAX_SEED + 1}, "it must lie in 0 to"),
    ],
)
def test_arguments_out_of_their_range_are_refused(change: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Configuration(**{**VALID, **change})


def test_a_configuration_is_spelled_in_plain_values() -> None:
    feeds = [{"x": np.zeros(3)}]
    plain = Configuration(**{**VALID, "evaluation": feeds, "dims": {"batch": 1}}).plain()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["calibration"] == "calib.npz"
    assert plain["evaluation"] == "<list>"
    common = {"ep": "cpu", "options": {}, "batch": 1, "streams": 1, "affinity": []}
    assert plain["targets"] == [{**common, "threads": 1}, {**common, "threads": 2}]
    assert (plain["seconds"], plain["trials"], plain["min_snr_db"], plain["dims"]) == (60, None, 30, {"batch": 1})


def test_numbers_of_numpy_become_plain_ones() -> None:
    given: dict[str, Any] = {"min_snr_db": np.float32(30), "max_size_bytes": np.int64(9)}
    limits: dict[str, Any] = {"trials": np.int64(5)}
    demands, budget = Demands(**given, max_drop={"top1": np.float64(0.5)}), Budget(**limits)
    change = {"budget": budget, "dims": {"batch": np.int64(1)}, "seed": np.int64(3), "n_regions": np.int32(4)}
    asked = Configuration(**{**VALID, **change})
    numbers = [asked.seed, asked.n_regions, asked.budget.trials, asked.dims["batch"], demands.max_size_bytes]
    assert [type(number) for number in numbers] == [int] * 5
    assert type(demands.min_snr_db) is float
    assert demands.max_drop == {"top1": 0.5}


def test_fractions_become_plain_numbers() -> None:
    half: Any = Fraction(1, 2)
    assert type(Demands(max_latency_ratio=half).max_latency_ratio) is float


def test_what_a_run_has_once_is_the_same_for_all_targets() -> None:
    with pytest.raises(UsageError, match="the targets differ in batch"):
        check_targets([Target(), Target(threads=2, batch=4)])
    with pytest.raises(UsageError, match="affinity: this process may use the cores"):
        check_targets([Target(affinity=(100000,))])


def asked(max_drop: float | Mapping[str, float] | None, *metrics: str) -> Configuration:
    return Configuration(**{**VALID, "demands": Demands(max_drop=max_drop), "metrics": parse_metrics(metrics)})


def test_a_drop_is_for_every_metric_or_for_those_with_a_name() -> None:
    assert asked(None, "top1").max_drops == {}
    assert asked(0.01, "top1", "cosine").max_drops == {"top1": 0.01, "cosine": 0.01}
    found = asked({"cosine": 0.01}, "top1", "cosine")
    assert found.max_drops == {"cosine": 0.01}
    assert found.plain()["max_drop"] == {"cosine": 0.01}
    assert found.plain()["metrics"] == ["top1", "cosine"]


def test_a_drop_needs_its_metric() -> None:
    with pytest.raises(UsageError, match="no metric, add one"):
        asked(0.01)
    with pytest.raises(UsageError, match="for 'top2', but the metrics are: top1"):
        asked({"top2": 0.01}, "top1")


@pytest.mark.parametrize("drop", [-0.1, 1.5, math.nan])
def test_a_drop_that_is_no_share_is_refused(drop: float) -> None:
    for demand in (drop, {"top1": drop}):
        with pytest.raises(UsageError, match="it must lie in 0 to 1"):
            Demands(max_drop=demand)


def test_metrics_are_of_single_samples() -> None:
    with pytest.raises(UsageError, match="leave the batch at 1"):
        Configuration(**{**VALID, "targets": (Target(batch=2),), "metrics": parse_metrics(["top1"])})


@pytest.mark.parametrize("size", [0, math.nan, math.inf])
def test_a_size_below_one_byte_or_without_end_is_refused(size: float) -> None:
    with pytest.raises(UsageError, match=f"the largest size is {size} bytes"):
        Demands(max_size_bytes=size)  # type: ignore[arg-type]


@pytest.mark.parametrize("memory", [0, math.nan, math.inf])
def test_the_memory_of_a_trial_is_finite(memory: float) -> None:
    with pytest.raises(UsageError, match=f"the memory of a trial is {memory} MB"):
        Budget(trials=1, trial_memory_mb=memory)  # type: ignore[arg-type]


def test_demands_are_bounds_by_metric() -> None:
    metrics = parse_metrics(["top1", "cosine"])
    asked = Configuration(**{**VALID, "metrics": metrics, "demands": Demands(max_size_bytes=9, max_drop=0.1)})
    assert asked.bounds == Bounds(max_size_bytes=9, max_drops={"top1": 0.1, "cosine": 0.1})
    assert asked.plain()["objectives"] == ["snr", "latency"]


def test_memory_cannot_be_limited_but_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert Budget(trials=1).trial_memory_mb is None
    with pytest.raises(UsageError, match="only Linux can limit that of a process; leave it out"):
        Budget(trials=1, trial_memory_mb=700)
