import json
from pathlib import Path

import numpy as np
import pytest

from experiments.believe.protocols import PROTOCOLS, compare_by, main
from tests.models import a_convnet, floats, saved


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    np.savez(tmp_path / "eval.npz", x=floats(4, 3, 8, 8))
    return saved(a_convnet(), tmp_path / "model.onnx"), tmp_path / "eval.npz"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_gives_a_number_for_each_model(
    protocol: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = map(str, files)
    assert main([protocol, data, model, model]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first > 0
    assert second > 0


def test_two_models_are_compared_in_a_fresh_process(files: tuple[Path, Path]) -> None:
    model, data = files
    found = compare_by("best50", data, [model, model])
    assert found["ratio"] == found["ms"][1] / found["ms"][0]
