import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.believe.coverage import RULES, common_to_own, draw, main, render_shown


@pytest.mark.parametrize("ratio", [0.0, 1.0, 10.0])
def test_draws_have_one_spread_and_common_effects_in_the_ratio_asked_for(ratio: float) -> None:
    logs = draw(np.random.default_rng(0), 200, 5000, ratio)
    assert np.std(logs) == pytest.approx(0.01, rel=0.15)
    assert np.std(logs.mean(axis=0)) / np.std(logs - logs.mean(axis=0)) == pytest.approx(ratio, rel=0.15, abs=0.1)


def test_rules_agree_on_one_file_and_differ_where_files_have_their_sessions_in_common() -> None:
    alone, together = (draw(np.random.default_rng(1), n_files, 3, 100.0) for n_files in (1, 10))
    assert len({round(float(rule(alone)[0][0]), 9) for rule in RULES.values()}) == 1
    halves = {name: float(np.mean(rule(together)[0])) for name, rule in RULES.items()}
    assert halves["ours"] == pytest.approx(halves["each alone"], rel=1e-2)
    assert halves["as if independent"] < 0.6 * halves["ours"]


def a_measurement(ratios: list[float], n_sessions: int = 4) -> dict[str, Any]:
    return {"model": "digits", "n_sessions": n_sessions, "comparisons": [{"ratio": ratio} for ratio in ratios]}


def test_effects_of_copies_are_those_of_one_session() -> None:
    rng = np.random.default_rng(2)
    ratios = [np.exp((0.02 * rng.standard_normal() + 0.01 * rng.standard_normal(4)) / 2) for _ in range(4000)]
    found = common_to_own([a_measurement(list(each)) for each in ratios])
    assert found == pytest.approx((0.02, 0.01), rel=0.05)
    assert common_to_own([a_measurement([1.01, 0.99, 1.01, 0.99])])[0] == 0.0


def test_equal_models_are_hardly_ever_told_apart() -> None:
    lines = render_shown(20, seed=0, n_files=4).splitlines()[2:]
    shares = [float(cell.strip(" %")) for line in lines for cell in line.split("|")[3:5]]
    assert len(shares) == 36
    assert np.mean(shares) < 5


def test_it_prints_three_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "aa.json"
    parts = {"idle": {"measurements": [a_measurement([1.01, 1.02, 0.99, 1.0]), a_measurement([1.01] * 4)]}}
    path.write_text(json.dumps({"parts": parts}))
    assert main(["--draws", "3", "--aa", str(path)]) == 0
    tables = capsys.readouterr().out.split("\n\n")
    assert [len(table.splitlines()) for table in tables] == [2 + 75, 2 + 18, 2 + 1]
    assert tables[2].splitlines()[2].startswith("| idle | digits | 2 |")
