import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autoquant.api.steps import model_path, read_data
from autoquant.domain.feed import Samples
from autoquant.errors import DataError, ModelError, UsageError
from tests.models import floats, model_of, saved


def test_a_model_is_a_path_or_an_example(tmp_path: Path) -> None:
    assert model_path("some/model.onnx") == Path("some/model.onnx")
    assert model_path("example:digits").is_file()
    with pytest.raises(ModelError, match="example 'letters' is unknown"):
        model_path("example:letters")


def test_a_path_that_onnxruntime_cannot_be_told_of_is_refused() -> None:
    with pytest.raises(ModelError, match="this name is not UTF-8, as onnxruntime wants it; rename the file"):
        model_path(os.fsdecode(b"m\xe9.onnx"))


@pytest.mark.parametrize("model", [onnx.ModelProto(), b"model.onnx", 7])
def test_what_is_no_path_is_refused(model: Any) -> None:
    with pytest.raises(UsageError, match=f"the model is of type {type(model).__name__}, give the path"):
        model_path(model)


def test_data_are_checked_against_the_model(model: Path, tmp_path: Path, samples: Samples) -> None:
    assert len(samples) == 6
    assert samples.feeds[0]["x"].shape == (1, 3, 8, 8)
    np.savez(tmp_path / "other.npz", z=floats(6, 3, 8, 8))
    with pytest.raises(DataError):
        read_data(model, tmp_path / "other.npz")


def test_an_example_brings_its_own_data(model: Path) -> None:
    calibration, evaluation = (
        {feed["image"].tobytes() for feed in read_data("example:digits", role=role).feeds}
        for role in ("calibration", "evaluation")
    )
    assert calibration
    assert evaluation
    assert not calibration & evaluation
    with pytest.raises(DataError, match=r"there are no evaluation data; give some as evaluation, .* samples of 'x'"):
        read_data(model, role="evaluation")
    with pytest.raises(DataError, match="there are no held-out data; give some as held-out"):
        read_data("example:digits", role="held-out")


def test_a_model_without_inputs_has_nothing_to_measure(tmp_path: Path) -> None:
    path = saved(model_of("() => (float[2] y)", "y = Relu(c)", {"c": floats(2)}), tmp_path / "constant.onnx")
    with pytest.raises(ModelError, match="the model has no inputs"):
        read_data(path, tmp_path / "data.npz")
