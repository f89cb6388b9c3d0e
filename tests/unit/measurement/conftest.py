from pathlib import Path

import pytest

from autoquant.domain.target import Target
from autoquant.measurement.bench import Bench
from tests.models import a_convnet, floats, saved
from tests.unit.measurement.benches import FEEDS, NAME


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    other = a_convnet()
    (bias,) = (t for t in other.graph.initializer if t.name == "by")
    bias.raw_data = (floats(5) + 0.1).tobytes()
    return {
        "baseline": saved(a_convnet(), tmp_path / "float.onnx"),
        "same": saved(a_convnet(), tmp_path / "same.onnx"),
        "other": saved(other, tmp_path / "other.onnx"),
    }


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    found = Bench(saved(a_convnet(), tmp_path / "model.onnx"), [Target()], FEEDS)
    found.float_s[NAME] = 1e-3  # however busy the machine is
    return found
