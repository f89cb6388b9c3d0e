from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import autoquant
from autoquant.domain.measurement import Evaluation, Measurement
from experiments.search.believed import session_ratios
from experiments.search.trial_intervals import main, measure_intervals, render_intervals


def test_ratios_in_processes_are_counted_in_the_intervals_of_the_table(run: Path) -> None:
    found, trials = measure_intervals(run), pd.read_csv(run / "trials.csv").set_index("number")
    rows = [(trials.loc[int(name[1:])], ratios) for name, ratios in session_ratios(run).items()]
    assert found["n_ratios"] == sum(len(ratios) for _, ratios in rows)
    inside = [row["ratio_low"] <= ratio <= row["ratio_high"] for row, ratios in rows for ratio in ratios]
    assert found["n_in_trial"] == sum(inside) >= found["n_in_repetition"]
    assert (found["n_finalists"], found["process_error"] > 0) == (len(rows), True)


def test_a_trial_far_from_its_file_holds_none_of_its_ratios(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = autoquant.load_result(run)
    far = replace(result.record, evaluations=tuple(map(_moved, result.record.evaluations)))
    monkeypatch.setattr("experiments.search.trial_intervals.load_result", lambda _: replace(result, record=far))
    found = measure_intervals(run)
    assert found["n_ratios"] > found["n_in_trial"] == found["n_in_repetition"] == 0


def _moved(evaluation: Evaluation) -> Evaluation:
    if not isinstance(evaluation.outcome, Measurement):
        return evaluation
    latency = {name: found.moved_to(found.ratio + 100) for name, found in evaluation.outcome.latency.items()}
    return replace(evaluation, outcome=replace(evaluation.outcome, latency=latency))


def test_a_line_for_each_run_and_one_of_all(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "out.json"), str(run), str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[2] == lines[3]


def test_shares_are_of_all_ratios() -> None:
    one = {"model": "m", "n_finalists": 2, "process_error": 0.03, "n_ratios": 10}
    runs = [one | {"n_in_repetition": 5, "n_in_trial": 9}, one | {"n_in_repetition": 1, "n_in_trial": 10}]
    rows = render_intervals({"parts": {"trial_intervals": {"runs": runs}}}).splitlines()
    assert rows[2] == "| m | 2 | 3.0% | 10 | 50% | 90% | 60% to 98% |"
    assert rows[4].startswith("| all | 4 |  | 20 | 30% | 95% |")


def test_what_is_no_run_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "out.json"), str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
