import json
from pathlib import Path
from typing import Any

import pytest

from autoquant.api.comparison import Verdict
from experiments.believe.aa import holds, main, render_aa


def a_measurement(*ratios: float, verdict: Verdict = Verdict.SAME) -> dict[str, Any]:
    comparisons = [{"verdict": verdict, "ratio": r, "ratio_low": r - 0.01, "ratio_high": r + 0.01} for r in ratios]
    return {"model": "digits", "seconds": 3.0, "n_sessions": 5, "n_rounds": 60, "comparisons": comparisons}


def a_part(n_shown: int, n_same: int, ratio: float = 1.012) -> dict[str, Any]:
    shown = a_measurement(*[ratio] * n_shown, verdict=Verdict.SLOWER)
    return {"measurements": [shown, a_measurement(*[1.0] * n_same)]}


@pytest.mark.parametrize(
    ("part", "expected"), [(a_part(1, 19), True), (a_part(2, 18), False), (a_part(1, 99, 1.03), False)]
)
def test_few_and_small_differences_may_be_shown(part: dict[str, Any], expected: bool) -> None:
    assert holds(part) is expected


def test_comparisons_without_an_interval_are_no_answers() -> None:
    unknown = {"verdict": Verdict.UNKNOWN, "ratio": 1.5, "ratio_low": None, "ratio_high": None}
    part = a_part(1, 19)
    part["measurements"][1]["comparisons"].append(unknown)
    assert "| 20 in 2 | 1 | 5.0% |" in render_aa({"parts": {"idle": part}})


def test_what_was_hardly_decided_does_not_hold() -> None:
    part = a_part(1, 19)
    part["measurements"].append(a_measurement(*[1.0] * 5, verdict=Verdict.UNKNOWN))
    assert not holds(part)


def test_models_have_lines_and_one_together() -> None:
    part = a_part(1, 9)
    part["measurements"].append(a_measurement(1.001) | {"model": "other"})
    lines = render_aa({"parts": {"busy": part}}).splitlines()
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["digits", "other", "all"]
    assert "1.20%" in lines[2]


@pytest.mark.slow
def test_it_measures_copies_and_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "aa.json"
    assert main([str(out), "example:digits", "--quick", "--comparisons", "2", "--busy"]) in (0, 1)
    (found,) = json.loads(out.read_text(encoding="utf-8"))["parts"]["busy"]["measurements"]
    assert len(found["comparisons"]) == 2
    n_known = sum(comparison["ratio_low"] is not None for comparison in found["comparisons"])
    assert f"| busy | digits | {n_known} in 1 |" in capsys.readouterr().out
