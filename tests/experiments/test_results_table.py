"""Verdicts are computed from measured points, and the table shows them."""

from typing import Any

import pytest

from experiments.results_table import best_ratio, render_results, verdict

Point = dict[str, Any]


def point(snr_db: float, ratio: float, *, is_float: bool = False) -> Point:
    return {"snr_db": snr_db, "ratio": ratio, "ratio_high": ratio + 0.01, "is_float": is_float}


@pytest.mark.parametrize(
    ("members", "recipes", "expected"),
    [
        ([point(42, 0.5)], [point(32, 0.5)], "beats"),  # at 35 and 40 dB
        ([point(33, 0.5)], [point(31, 0.5)], "beats"),  # more SNR at equal latency, between two demands
        ([point(32, 0.5)], [point(32, 0.5)], "level"),
        ([point(22, 0.6)], [point(32, 0.5)], "behind at 10, 15, 20, 25, 30 dB"),
        ([], [point(12, 0.5)], "behind at 10 dB"),
        ([], [point(8, 0.5)], "nothing pays"),
        ([point(200, 0.95, is_float=True)], [point(30, 1.4)], "nothing pays"),
        ([point(30, 0.995)], [], "level"),  # not beyond its interval
    ],
)
def test_the_verdict_follows_from_the_points(members: list[Point], recipes: list[Point], expected: str) -> None:
    assert verdict(members, recipes) == expected


def test_float_meets_every_demand_at_a_ratio_of_one() -> None:
    assert best_ratio([point(25, 0.4), point(60, 1.5)], 40) == 1


def test_each_model_has_one_row_and_a_failure_is_said() -> None:
    search = {"seconds": 119.6, "error": "", "n_evaluations": 321}
    measured = {"search": search, "float_ms": 20.1, "members": [point(44, 0.35)], "recipes": [point(24, 0.36)]}
    failed = measured | {"search": search | {"error": "exit code 2: a|b"}, "members": []}
    environment = {"cpu": "Some CPU", "n_cpus": 2, "system": "Linux", "versions": {"numpy": "2.4"}}
    models = {"good": measured, "bad": failed, "ugly": {"error": "OSError: no room"}}
    lines = render_results({"models": models, "environments": {"x": environment}}).splitlines()
    bad, good, ugly = lines[2:5]
    assert good == (
        "| good | 20.10 |  | 321 | 120 | 0.175 | 0.414 | 0.35 / 0.36 | 0.35 / 1 | 0.35 / 1 | 1 / 1 | beats |"
    )
    assert bad.endswith("| search failed: exit code 2: a\\|b |")
    assert ugly.endswith("| not measured: OSError: no room |")
    assert len({line.replace("\\|", "").count("|") for line in lines[:5]}) == 1
    assert lines[-1] == "Some CPU, 2 processors, Linux; numpy 2.4."
