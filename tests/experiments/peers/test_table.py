from typing import Any

from experiments.peers.table import render_versus

ENVIRONMENT = {"cpu": "A CPU", "n_cores": 2, "system": "Linux", "versions": {"onnxruntime": "1.31.1"}}


def a_row(name: str, snr_db: float, ratio: float) -> dict[str, Any]:
    return {"name": name, "snr_db": snr_db, "ratio": ratio, "ratio_low": ratio - 0.01, "ratio_high": ratio + 0.01}


def a_part(*left: dict[str, Any], error: str = "") -> dict[str, Any]:
    run = {"seconds": 180.0, "limit_s": 180.0, "is_ended": True, "error": "", "load": [0.5, 1.25]}
    counts = {"n_files": 9, "n_different": 8, "failures": {"mixed-slow": "ValueError: a | b"}, "unmeasured": ["x"]}
    return {
        "settings": {"seconds": 180.0},
        "environment": ENVIRONMENT,
        "search": {"error": error},
        "rows": {"autoquant": [a_row("autoquant:t1", 40.0, 0.5)], "nncf": [a_row("nncf:mixed-fast", 30.0, 0.45)]},
        "savings": {"autoquant": 0.3, "nncf": 0.2, "union": 0.25},
        "left": list(left),
        "peers": {"nncf": {**run, **counts, "versions": {"nncf": "3.4.0"}}},
    }


def test_a_line_a_model_has_ours_the_union_and_each_tool() -> None:
    lines = render_versus({"parts": {"digits": a_part()}}).splitlines()
    assert lines[0] == "| model | autoquant, mean saving | union, mean saving | nncf | left undominated | seconds |"
    assert lines[2] == "| digits | 0.300 | 0.250 | 0.200 | 0 | 180 |"
    assert lines[-1] == "A CPU, 2 cores, Linux; onnxruntime 1.31.1."


def test_a_point_that_is_left_stands_beside_ours() -> None:
    text = render_versus(
        {"parts": {"digits": a_part(a_row("nncf:mixed-fast", 30.0, 0.45), a_row("nncf:x", 50.0, 0.8))}}
    )
    assert "| digits | nncf:mixed-fast | 30.0 | 0.450 | 0.440 to 0.460 | 0.500 (0.490 to 0.510) |" in text
    assert "| digits | nncf:x | 50.0 | 0.800 | 0.790 to 0.810 | float |" in text


def test_what_a_tool_could_not_do_is_told() -> None:
    text = render_versus({"parts": {"digits": a_part()}})
    failures = "mixed-slow: ValueError: a / b; 1 do not run"
    assert f"| digits | nncf (nncf 3.4.0) | 180, ended | 180 | 0.5 and 1.2 | 9 | 8 | 1 | {failures} |" in text


def test_a_search_that_failed_says_why_in_place_of_its_saving() -> None:
    assert "| digits | exit code 2: no | 0.250 |" in render_versus(
        {"parts": {"digits": a_part(error="exit code 2: no")}}
    )
