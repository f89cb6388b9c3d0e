import json
from dataclasses import replace
from typing import Any, cast

import pytest

from autoquant.api.result import SearchResult
from autoquant.domain.target import Target
from tests.records import a_front, a_latency, a_member, a_record
from tests.unit.experiment.jobs import BROKEN, DEMAND, GONE, TINY, Run, rows_of


@pytest.mark.parametrize("model", [TINY, BROKEN, GONE])
def test_a_missed_demand_is_told(run: Run, model: str) -> None:
    outcome = run(model, DEMAND)
    assert outcome.is_missed
    assert "0.001 was demanded" in outcome.summary_path.read_text()


def test_demands_are_judged_on_each_target(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = (Target(threads=1), Target(threads=4))
    latency = {"cpu-1t": a_latency(0.5), "cpu-4t": a_latency(0.9)}
    front = a_front(replace(a_member(targets=targets), latency=latency), targets=targets)

    def found(*arguments: Any, **options: Any) -> SearchResult:
        options["out"].mkdir(parents=True)
        (options["out"] / "front.csv").touch()
        return SearchResult(options["out"], a_record(front))

    monkeypatch.setattr("autoquant.experiment.run.search", found)
    lines: list[str] = []
    outcome = run(TINY, "targets = [{ threads = 1 }, { threads = 4 }]\n", 'demands = { "40" = 0.8 }\n', lines=lines)
    rows = json.loads(outcome.summary_path.with_name("summary.json").read_text())["rows"]
    sentence = "At 40 dB the ratio on cpu-4t is 0.900, 0.800 was demanded."
    assert outcome.is_missed
    assert [(row["target"], row["best_ratio"]["40"]) for row in rows] == [("cpu-1t", 0.5), ("cpu-4t", 0.9)]
    assert [row["missed"] for row in rows] == [[], [sentence]]
    assert [" on cpu-1t; " in lines[0], lines[1].endswith(sentence), len(lines)] == [True, True, 2]


@pytest.mark.usefixtures("searches")
def test_a_demand_that_is_kept_is_not_told(run: Run) -> None:
    """The float model keeps every SNR at a ratio of 1."""
    outcome = run(TINY, 'demands = { "40" = 0.5, "50" = 1.0 }\n')
    assert not outcome.is_missed
    assert "was demanded" not in outcome.summary_path.read_text()


@pytest.mark.usefixtures("searches")
def test_each_demand_of_a_model_is_judged_by_itself(run: Run) -> None:
    (row,) = rows_of(run(TINY, 'demands = { "30" = 0.001, "40" = 0.6, "50" = 0.9 }\n')).values()
    missed = cast("list[str]", row["missed"])
    assert [sentence[:8] for sentence in missed] == ["At 30 dB", "At 50 dB"]


@pytest.mark.usefixtures("searches")
def test_a_smoke_run_judges_no_demand_and_is_compared_with_nothing_else(run: Run) -> None:
    outcome = run(TINY, DEMAND, GONE, smoke=True)
    assert outcome.summary_path.parent.name.endswith("-smoke")
    assert not outcome.is_missed
    assert rows_of(run(TINY))["tiny"]["previous"] is None
