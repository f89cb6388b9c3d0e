from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.experiments.test_bench import CLASSIFIER


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    rng, folder = np.random.default_rng(0), tmp_path / "zoo" / "classifier"
    folder.mkdir(parents=True)
    model = onnx.parser.parse_model(CLASSIFIER)
    model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=(8, 4)).astype(np.float32), "w"))
    onnx.save(model, folder / "model.onnx")
    for name in ("calib", "eval"):
        np.savez(folder / f"{name}.npz", x=rng.normal(size=(4, 8)).astype(np.float32))
    return folder.parent
