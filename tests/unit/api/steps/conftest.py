from pathlib import Path

import numpy as np
import pytest

from autoquant.api.steps import read_data
from autoquant.domain.feed import Samples
from tests.models import a_convnet, floats, saved


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(a_convnet(), tmp_path / "model.onnx")


@pytest.fixture
def samples(model: Path, tmp_path: Path) -> Samples:
    np.savez(tmp_path / "data.npz", x=floats(6, 3, 8, 8))
    return read_data(model, tmp_path / "data.npz")
