from pathlib import Path

import numpy as np
import pytest

from experiments.bench.filled import main
from tests.models import floats, model_of, saved


def test_each_filling_is_measured_in_float_and_in_8_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(
        "(float[1,3,8,8] x) => (float[1,2,8,8] y)",
        "c = Conv(x, w) r = Relu(c) y = Conv(r, z)",
        {"w": floats(5, 3, 1, 1), "z": floats(2, 5, 1, 1)},
    )
    folder = tmp_path / "small"
    folder.mkdir()
    saved(model, folder / "model.onnx")
    for name in ("calib", "eval"):
        np.savez(folder / f"{name}.npz", x=floats(4, 3, 8, 8))
    assert main([str(tmp_path / "out.json"), str(folder), "--time", "3s"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[1] for line in lines[2:]] == ["as it is", "16", "8"]
