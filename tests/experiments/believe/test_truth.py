import json
from pathlib import Path
from typing import Any

import pytest

from experiments.believe.protocols import PROTOCOLS
from experiments.believe.truth import OURS, answer, main, render_truth


def a_decision(share: float, difference: float, protocol: str = OURS) -> dict[str, Any]:
    return {
        "share": share,
        "difference": difference,
        "ratio": 1 + difference,
        "protocol": protocol,
        "seconds": 2.0,
    }


@pytest.mark.parametrize(
    ("share", "difference", "expected"),
    [(0.05, 0.04, "right"), (0.05, -0.01, "wrong"), (0.05, 0.0, "none"), (0.0, 0.01, "wrong"), (0.0, 0.0, "none")],
)
def test_an_answer_is_right_where_more_work_is_slower(share: float, difference: float, expected: str) -> None:
    assert answer(a_decision(share, difference)) == expected


def test_each_protocol_has_a_line_for_each_pair() -> None:
    truth = [{"share": s, "ratio": 1 + s, "ratio_low": 1 + s - 0.002, "ratio_high": 1 + s + 0.002} for s in (0.0, 0.05)]
    found = [a_decision(0.0, 0.0), a_decision(0.0, 0.03, "mean20"), a_decision(0.05, 0.04), a_decision(0.05, 0.0)]
    lines = render_truth({"parts": {"digits": {"truth": truth, "decisions": found}}}).splitlines()[2:]
    assert len(lines) == 3
    assert "| autoquant | 1 |  | 0% | 100% |" in lines[0]
    assert f"| {PROTOCOLS['mean20'].text} | 1 |  | 100% | 0% | 3.0% |" in lines[1]
    assert "| 5% | 5.0% (4.8% to 5.2%) | autoquant | 2 | 50% | 0% | 50% |" in lines[2]


@pytest.mark.slow
def test_it_measures_pairs_and_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "truth.json"
    assert main([str(out), "example:digits", "--quick"]) == 0
    part = json.loads(out.read_text(encoding="utf-8"))["parts"]["digits"]
    assert [true["share"] for true in part["truth"]] == [0.0, 0.1]
    assert len(part["decisions"]) == 2 * (1 + len(PROTOCOLS))
    assert "median of 50 runs" in capsys.readouterr().out
