from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoquant.api.result import SearchResult
from autoquant.domain.target import Target
from autoquant.errors import UsageError
from tests.records import a_front, a_latency, a_member, a_record

TARGETS = (Target(), Target(threads=4))


@pytest.fixture
def result() -> SearchResult:
    front = a_front(
        a_member("fast", ratio=0.4, snr_db=25, targets=TARGETS),
        a_member("good", ratio=0.6, snr_db=45, targets=TARGETS),
        targets=TARGETS,
    )
    return SearchResult(Path("run"), a_record(front))


def test_the_fastest_member_that_keeps_an_snr_is_chosen_with_its_file(result: SearchResult) -> None:
    assert result.best(min_snr_db=20).member.id == "fast"
    choice = result.best(min_snr_db=40, target="cpu-4t")
    assert choice.member.id == "good"
    assert choice.path == Path("run/models/good.onnx")


def test_the_most_accurate_member_within_a_ratio_is_chosen(result: SearchResult) -> None:
    assert result.best(max_latency_ratio=0.7).member.id == "good"
    assert result.best(max_latency_ratio=0.5).member.id == "fast"


def test_a_demand_that_nothing_meets_gives_the_float_model(result: SearchResult) -> None:
    assert result.best(min_snr_db=90).member.id == "float"
    assert result.best(max_latency_ratio=0.1).member.id == "float"


def test_one_demand_is_needed(result: SearchResult) -> None:
    for demands in ({}, {"min_snr_db": 40.0, "max_latency_ratio": 0.5}):
        with pytest.raises(UsageError, match="give either min_snr_db, max_latency_ratio or max_drop"):
            result.best(**demands)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["min_snr_db", "max_latency_ratio"])
def test_a_demand_of_no_number_is_refused(result: SearchResult, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is nan, give a number"):
        result.best(**{name: float("nan")})  # type: ignore[arg-type]


@pytest.mark.parametrize("demands", [{"min_snr_db": 40.0}, {"max_latency_ratio": 0.5}])
def test_a_target_that_was_not_measured_is_an_error_that_names_those_that_were(
    result: SearchResult, demands: dict[str, float]
) -> None:
    with pytest.raises(UsageError, match=r"'gpu'.* cpu-1t, cpu-4t"):
        result.best(target="gpu", **demands)


def test_front_and_trials_are_tables(result: SearchResult) -> None:
    assert list(result.front["id"]) == ["fast", "good", "float"]
    assert len(result.trials) == len(result.record.evaluations)


def test_notes_are_those_of_the_record(result: SearchResult) -> None:
    noted = SearchResult(result.folder, replace(result.record, notes=("the time budget ended the search",)))
    assert noted.notes == ("the time budget ended the search",)


def test_the_fastest_member_whose_metrics_hardly_drop_is_chosen() -> None:
    front = a_front(
        a_member("fast", ratio=0.4, drops={"top1": 0.02, "cosine": 0.001}),
        a_member("good", ratio=0.6, drops={"top1": 0.005, "cosine": 0.01}),
    )
    result = SearchResult(Path("run"), a_record(front))
    assert result.best(max_drop=0.02).member.id == "fast"
    assert result.best(max_drop=0.01).member.id == "good"
    assert result.best(max_drop=0.001).member.id == "float"
    assert result.best(max_drop={"top1": 0.01}).path == Path("run/models/good.onnx")
    assert result.best(max_drop={"cosine": 0.001}).member.id == "fast"
    with pytest.raises(UsageError, match="for top5, but the metrics of this search are: top1, cosine"):
        result.best(max_drop={"top5": 0.1})
    with pytest.raises(UsageError, match="'gpu'"):
        result.best(max_drop=0.1, target="gpu")


@pytest.mark.parametrize("drop", [-0.01, float("nan")])
def test_a_drop_that_float_does_not_keep_is_refused(drop: float) -> None:
    result = SearchResult(Path("run"), a_record(a_front(a_member("fast", drops={"top1": -0.1}))))
    with pytest.raises(UsageError, match=f"the largest drop is {drop}, it must be at least 0"):
        result.best(max_drop=drop)
    with pytest.raises(UsageError, match="must be at least 0"):
        result.best(max_drop={"top1": drop})


@pytest.mark.parametrize("demand", [{"min_snr_db": 20}, {"max_latency_ratio": 0.5}, {"max_drop": 0.1}])
def test_the_latency_that_counts_is_that_of_the_target(demand: dict[str, Any]) -> None:
    members = [
        replace(
            a_member(name, drops={"top1": 0.01}, targets=TARGETS),
            latency={target.name: a_latency(ratio) for target, ratio in zip(TARGETS, ratios, strict=True)},
        )
        for name, ratios in {"narrow": (0.4, 0.8), "wide": (0.8, 0.4)}.items()
    ]
    result = SearchResult(Path("run"), a_record(a_front(*members, targets=TARGETS)))
    found = [result.best(**demand, target=target).member.id for target in (None, "cpu-1t", "cpu-4t")]
    assert found == ["narrow", "narrow", "wide"]


def test_without_metrics_there_is_no_drop_to_keep(result: SearchResult) -> None:
    with pytest.raises(UsageError, match="every metric, but the metrics of this search are: none"):
        result.best(max_drop=0.01)
