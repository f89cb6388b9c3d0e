import json
from pathlib import Path
from typing import Any

import pytest

from experiments.search.ablation import (
    main,
    render_real,
    render_replayed,
    search_blocks_without,
    shares_of_blocks,
    shares_of_table,
)
from experiments.search.blocks import FAMILIES, make_blocks
from experiments.search.parts import Part
from experiments.search.table import save_table
from tests.experiments.search.synthetic import a_table

BLOCKS = make_blocks(16, FAMILIES["alike"], seed=1)
ENVIRONMENT = {"cpu": "A CPU", "n_cores": 2, "system": "Linux", "versions": {"optuna": "5.0.0"}}


@pytest.mark.parametrize("part", [None, *Part])
def test_a_search_lasts_as_long_whatever_is_off_and_is_the_same_again(part: Part | None) -> None:
    first, again = (search_blocks_without(BLOCKS, part, n_evaluations=14, seed=0) for _ in range(2))
    assert 13 <= first.budget.elapsed <= 14.25
    assert first.points == again.points


def test_what_is_not_timed_leaves_time_for_other_evaluations() -> None:
    whole, untold = (search_blocks_without(BLOCKS, part, n_evaluations=20, seed=0) for part in (None, Part.RACING))
    assert len(untold.points) == untold.budget.elapsed
    assert len(whole.points) < whole.budget.elapsed


def test_without_ranges_only_schemes_with_extremes_are_asked_for() -> None:
    whole, narrow = (search_blocks_without(BLOCKS, part, n_evaluations=8, seed=0) for part in (None, Part.RANGES))
    assert whole.points[:2] == narrow.points[:2]  # float, and the first recipe
    assert whole.points[2] != narrow.points[2]


def test_shares_grow_with_evaluations_up_to_the_front_of_the_table() -> None:
    table = a_table(4)
    for part in (None, Part.PROBES, Part.BORDERS):
        (shares,) = shares_of_table(table, part, [5, 20, 200], seeds=1)
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(1.0)


def test_shares_of_synthetic_problems_have_a_row_for_each_seed() -> None:
    found = shares_of_blocks("unlike", 16, None, [10, 14], seeds=2)
    assert [len(row) for row in found] == [2, 2]
    assert all(0 < share < 1.5 for row in found for share in row)


def test_a_line_has_the_difference_from_the_whole_paired_by_seed() -> None:
    shares = {"structure": [[0.5, 0.8], [0.6, 0.9]], "without-probes": [[0.5, 0.7], [0.5, 0.7]]}
    part = {"settings": {"evaluations": [20, 40]}, "shares": shares}
    lines = render_replayed({"parts": {"alike, 40 regions": part}}).splitlines()
    assert lines[2] == "| alike, 40 regions | structure | 55.0% | 85.0% |  |"
    assert lines[3] == "| alike, 40 regions | without-probes | 50.0% | 70.0% | -15.0% (5.0%) |"


def a_run(sampler: str, seed: int, saving: float, area: float) -> dict[str, Any]:
    return {"sampler": sampler, "seed": seed, "error": "", "n_trials": 40, "saving": saving, "hypervolume": area}


def test_differences_of_models_are_put_together_and_failures_left_out() -> None:
    runs = [
        a_run("structure", 0, 0.30, 20.0),
        a_run("structure", 1, 0.20, 10.0),
        a_run("without-borders", 0, 0.25, 18.0),
        {"sampler": "without-borders", "seed": 1, "error": "exit code 2"},
    ]
    settings = {"samplers": ["structure", "without-borders"]}
    part = {"settings": settings, "environment": ENVIRONMENT, "runs": runs}
    lines = render_real({"parts": {"a": part, "b": part}}).splitlines()
    assert lines[2] == "| a | structure | 40 | 0.250 | 15.0 |  |  |"
    assert lines[3] == "| a | without-borders | 40 | 0.250 | 18.0 | -5.0% | -10.0% |"
    assert lines[6] == "| all | without-borders |  |  |  | -5.0% (0.0%) | -10.0% (0.0%) |"
    assert lines[-1] == "A CPU, 2 cores, Linux; optuna 5.0.0."


def test_it_writes_tables_and_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_table(tmp_path / "chain.npz", a_table(4))
    out, few = tmp_path / "out.json", ["--evaluations", "10", "12", "--seeds", "1", "--regions", "16"]
    table = ["--tables", str(tmp_path / "chain.npz"), "--families", "alike"]
    assert main(["replayed", str(out), *table, *few]) == 0
    parts = json.loads(out.read_text(encoding="utf-8"))["parts"]
    assert list(parts["chain"]["shares"]) == ["structure", "without-probes", "without-borders"]
    assert len(parts["alike, 16 regions"]["shares"]) == 7
    assert "| chain | without-borders |" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["real", "zoo", "out", "nowhere"], ["replayed", "o", "--tables", "gone.npz"]])
def test_bad_input_is_one_sentence(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("experiments.search.ablation: ")


@pytest.mark.slow
def test_searches_of_a_model_are_measured_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--time", "8s", "--seeds", "1", "--searches", "without-probes"]
    assert main(["real", str(tmp_path), str(tmp_path / "out"), "example:digits", *options]) == 0
    part = json.loads((tmp_path / "out" / "ablation.json").read_text(encoding="utf-8"))["parts"]["digits"]
    assert {run["sampler"] for run in part["runs"]} == {"structure", "without-probes"}
    assert all(run["saving"] >= 0 for run in part["runs"])
    assert (tmp_path / "out" / "ablation.md").read_text(encoding="utf-8") == capsys.readouterr().out
