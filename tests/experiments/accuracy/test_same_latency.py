import json
from pathlib import Path

import pytest

from experiments.accuracy.same_latency import main, render_same_latency


@pytest.mark.slow
def test_recipes_of_all_levels_are_timed_together_against_the_plain_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "same.json"
    assert main([str(out), "example:digits", "--time", "4s"]) == 0
    part = json.loads(out.read_text())["parts"]["digits"]
    assert [row["model"] for row in part["rows"]] == ["none", "fast", "full"]
    assert part["rows"][0]["verdict"] == "baseline"
    assert all(row["snr_db"] > 10 for row in part["rows"][1:]), "it is the same model with other numbers"
    assert "| digits |" in capsys.readouterr().out


def _row(ratio: float, low: float | None = None, high: float | None = None) -> dict[str, object]:
    return {"median_ms": 2.5, "ratio": ratio, "ratio_low": low, "ratio_high": high}


def test_a_line_says_whether_1_is_in_both_intervals() -> None:
    parts = {
        "a": {"rows": [_row(1.0), _row(0.99, 0.97, 1.01), _row(1.01, 0.99, 1.02)]},
        "b": {"rows": [_row(1.0), _row(0.99, 0.97, 1.01), _row(1.02, 1.01, 1.03)]},
        "c": {"rows": [_row(1.0), _row(0.99), _row(1.02, 0.99, 1.03)]},
    }
    lines = render_same_latency({"parts": parts}).splitlines()[2:]
    assert lines == [
        "| a | 2.500 | 0.990 (0.970 to 1.010) | 1.010 (0.990 to 1.020) | yes |",
        "| b | 2.500 | 0.990 (0.970 to 1.010) | 1.020 (1.010 to 1.030) | no |",
        "| c | 2.500 | 0.990 | 1.020 (0.990 to 1.030) | not known |",
    ]
