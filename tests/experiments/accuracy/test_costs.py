import json
from pathlib import Path

import pytest

from experiments.accuracy.costs import ALGORITHMS, Task, main, render_costs
from experiments.believe.subjects import subject_of

ROUNDINGS = ("gptq", "adaround", "adaquant")


@pytest.mark.slow
def test_every_algorithm_has_its_costs_and_no_rounding_is_above_the_nearest_integers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "costs.json"
    assert main([str(out), "example:digits", "--scheme", "u8s8-tensor-minmax"]) == 0
    found = {each["algorithm"]: each for each in json.loads(out.read_text())["parts"]["digits"]["costs"]}
    assert list(found) == list(ALGORITHMS)
    for name in ALGORITHMS:
        assert found[name]["cpu_s"] > 0
        assert found[name]["peak_mb"] >= 0
    for name in ROUNDINGS[:2]:  # learned scales of a tensor let single channels lose
        assert found[name]["largest_objective"] <= 1
        assert found[name]["n_exact_lost"] == 0
    assert all(found[name]["objective"] < 0.9 for name in ROUNDINGS)
    assert "| digits |" in capsys.readouterr().out


def test_where_kernels_saturate_gptq_takes_the_place_of_adaquant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.api.steps.preparation.is_saturating", lambda _: True)
    task = Task.of(subject_of("example:digits"), "u8s8-tensor-minmax", tmp_path)
    gptq, adaquant = (ALGORITHMS[name](task)() for name in ("gptq", "adaquant"))
    assert adaquant == gptq
    assert adaquant["objective"] < 0.9


def test_a_line_says_seconds_megabytes_and_what_is_left() -> None:
    costs = [{"algorithm": name, "cpu_s": 1.25, "peak_mb": 10.4} for name in ("build", "bias mean")]
    costs += [
        {"algorithm": n, "cpu_s": 2.0, "peak_mb": 3.0, "objective": 0.5, "largest_objective": 1.0} for n in ROUNDINGS
    ]
    line = render_costs({"parts": {"m": {"costs": costs}}}).splitlines()[2]
    cell = "2.0, 3"
    left = "0.500, at most 1.000"
    assert line == f"| m | 1.2, 10 |  | 1.2, 10 |  | {cell} | {cell} | {cell} | {left} | {left} | {left} |"
