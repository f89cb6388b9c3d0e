import json
from pathlib import Path
from typing import Any

import pytest

from experiments.believe.reproducibility import are_inside, main, render_reproducibility


def a_member(ratio: float, measured: float, snr_db: float = 40.0, error_db: float = 0.0) -> dict[str, Any]:
    return {
        "id": "t0001",
        "claimed": {"snr_db": snr_db, "ratio": ratio, "ratio_low": ratio - 0.01, "ratio_high": ratio + 0.01},
        "measured": {"snr_db": snr_db + error_db, "ratio": measured},
    }


def test_a_ratio_is_inside_or_not_and_a_file_that_does_not_run_is_not() -> None:
    assert are_inside(a_member(0.5, 0.505)) == [True]
    assert are_inside(a_member(0.5, 0.52)) == [False]
    assert are_inside(a_member(0.5, 0.5) | {"measured": None}) == [False] * 3


def test_each_process_is_compared_with_the_interval_of_one() -> None:
    """The median of three varies less: it says nothing of an interval for one."""
    member = a_member(0.5, 0.5)
    member["measured"]["process_ratios"] = [0.45, 0.5, 0.52]
    assert are_inside(member) == [False, True, False]


def test_spread_and_shares_are_told_for_each_model_and_for_all() -> None:
    runs = [
        {"error": "", "members": [a_member(0.5, 0.505)]},
        {"error": "", "members": [a_member(0.5, 0.55, error_db=1.0)]},
        {"error": "exit code 1", "seed": 2},
    ]
    lines = render_reproducibility({"parts": {"digits": {"runs": runs}}}).splitlines()
    saving = [0.495 * 7 / 11, 0.45 * 7 / 11]
    assert "| digits | 2 of 3 | 0.318 |" in lines[2]
    assert f"| {saving[0] - saving[1]:.3f} |" in lines[2]
    assert "| 2 | 50% | 9% to 91% | 50% |" in lines[2]
    assert lines[3].startswith("| all |")


def test_a_model_whose_searches_failed_has_a_line() -> None:
    text = render_reproducibility({"parts": {"digits": {"runs": [{"error": "exit code 1"}]}}})
    assert "| digits | 0 of 1 |" in text


@pytest.mark.slow
def test_it_searches_and_measures_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    assert main([str(out), str(tmp_path / "runs"), "example:digits", "--quick"]) == 0
    runs = json.loads(out.read_text(encoding="utf-8"))["parts"]["digits"]["runs"]
    assert [run["seed"] for run in runs] == [0, 1]
    assert "| digits | 2 of 2 |" in capsys.readouterr().out
