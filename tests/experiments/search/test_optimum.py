import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.search.optimum import SHARES, holds, main, measure_sampler, render_optimum
from experiments.search.table import save_table
from tests.experiments.search.synthetic import a_table


def a_part(*hypervolumes: float) -> dict[str, Any]:
    """One seed each, at 2 %."""
    found = {
        "hypervolume": [[0.5, 0.6, value, 1.0] for value in hypervolumes],
        "without_luck": [[0.5, 0.6, value, 1.0] for value in hypervolumes],
        "saving": [[0.5, 0.6, value, 1.0] for value in hypervolumes],
        "n_evaluated": [50] * len(hypervolumes),
        "n_to_99": [20 if value >= 0.99 else None for value in hypervolumes],
        "seconds": 2.0 * len(hypervolumes),
    }
    luck = {"order": 2, "error": 0.01, "said": 0.005}
    return {"settings": {"shares": list(SHARES)}, "luck": luck, "samplers": {"structure": found}}


@pytest.mark.parametrize(("values", "expected"), [((0.98, 0.995, 0.999), True), ((0.98, 0.985, 1.0), False)])
def test_the_demand_is_on_the_median_over_seeds(values: tuple[float, ...], expected: bool) -> None:
    assert holds(a_part(*values)) is expected


def test_without_ours_nothing_is_demanded() -> None:
    assert holds({"samplers": {}})


def test_a_line_has_quartiles_and_how_many_evaluations_it_took() -> None:
    text = render_optimum({"parts": {"digits": a_part(0.9, 0.995, 0.999)}})
    assert "| digits | structure | 50.0% (50.0% to 50.0%) |" in text
    assert "| 20 | 2.0 | 0.0100, 0.0050 |" in text
    assert "more than 50" in render_optimum({"parts": {"digits": a_part(0.9)}})


def test_more_evaluations_are_never_worse_and_all_of_them_are_the_optimum() -> None:
    found = measure_sampler(a_table(4), "random", seeds=3)
    for row in (*found["hypervolume"], *found["without_luck"], *found["saving"]):
        assert row == sorted(row)
        assert 0 <= row[0] <= row[-1] <= 1


def test_ours_is_nearer_to_the_optimum_than_random_on_a_problem_like_its_model() -> None:
    table = a_table(6, error=0.0)
    ours, random = (measure_sampler(table, name, seeds=2)["hypervolume"] for name in ("structure", "random"))
    assert min(row[-1] for row in ours) > max(row[-1] for row in random)


def test_it_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_table(tmp_path / "chain.npz", a_table(5))
    out = tmp_path / "optimum.json"
    assert main([str(tmp_path / "chain.npz"), str(out), "--seeds", "2", "--samplers", "random", "greedy"]) == 0
    part = json.loads(out.read_text(encoding="utf-8"))["parts"]["chain"]
    assert part["n_assignments"] == 162
    assert part["reference"] == {"snr_db": 0.0, "ratio": 1.0, "snr_ceiling_db": 60.0}
    assert len(part["samplers"]["greedy"]["hypervolume"]) == 2
    assert "| chain | greedy |" in capsys.readouterr().out


def test_a_fitted_table_has_no_luck_and_is_a_part_of_its_own(tmp_path: Path) -> None:
    save_table(tmp_path / "chain.npz", a_table(6, error=0.01))
    out, arguments = tmp_path / "optimum.json", ["--seeds", "1", "--samplers", "greedy"]
    for more in ([], ["--fitted"]):
        assert main([str(tmp_path / "chain.npz"), str(out), *arguments, *more]) == 0
    parts = json.loads(out.read_text(encoding="utf-8"))["parts"]
    assert list(parts) == ["chain", "chain, fitted"]
    assert parts["chain, fitted"]["luck"]["error"] < 0.1 * parts["chain"]["luck"]["error"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_table_that_cannot_be_searched_is_one_sentence(
    tmp_path: Path, is_there: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if is_there:
        table = a_table(3)
        save_table(tmp_path / "t.npz", replace(table, codes=table.codes[:5]))
    assert main([str(tmp_path / "t.npz"), str(tmp_path / "out.json"), "--seeds", "1"]) == 2
    assert capsys.readouterr().err.startswith("experiments.search.optimum: ")
