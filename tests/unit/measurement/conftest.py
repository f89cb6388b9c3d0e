from pathlib import Path

import pytest

from tests.models import a_convnet, floats, saved


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
