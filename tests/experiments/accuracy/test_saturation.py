from pathlib import Path

import pytest

from autoquant.domain.target import Target
from autoquant.measurement.saturation import is_saturating
from experiments.accuracy.saturation import main
from experiments.believe.document import read_document


def test_each_way_to_keep_weights_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "saturation.json"
    assert main([str(out), "example:digits", "--ranges", "min-max"]) == 0
    part = read_document(out)["parts"]["digits"]
    assert part["is_saturating"] is is_saturating(Target())
    db = {record["weight"]: record["snr_db"] for record in part["candidates"]}
    assert list(db) == ["s8:channel:sym", "s8:channel:sym:unsaturated", "u8:channel:sym"]
    assert db["s8:channel:sym:unsaturated"] > 25
    assert all(record["ratio_low"] <= record["ratio"] <= record["ratio_high"] for record in part["candidates"])
    assert f"| digits | min-max | {'yes' if is_saturating(Target()) else 'no'} |" in capsys.readouterr().out
