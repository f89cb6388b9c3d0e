from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from autoquant.errors import ModelError
from autoquant.examples import EXAMPLES, Example, example

WHEEL_LIMIT_BYTES = 1_000_000


@pytest.fixture(params=EXAMPLES)
def shipped(request: pytest.FixtureRequest) -> Example:
    return example(request.param)


def open_session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def load(path: Path) -> dict[str, NDArray[np.generic]]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def test_data_have_one_array_per_model_input_and_labels(shipped: Example) -> None:
    inputs = {i.name: i for i in open_session(shipped.model).get_inputs()}
    for path in (shipped.calibration, shipped.evaluation):
        arrays = load(path)
        label = arrays.pop("label")
        assert label.dtype == np.int64
        assert arrays.keys() == inputs.keys()
        for name, array in arrays.items():
            assert array.dtype == np.float32
            assert len(array) == len(label)
            assert list(array.shape[1:]) == inputs[name].shape[1:]


def test_evaluation_accuracy_is_that_of_a_trained_model(shipped: Example) -> None:
    arrays = load(shipped.evaluation)
    label = arrays.pop("label")
    (logits,) = open_session(shipped.model).run(None, arrays)
    assert np.mean(logits.argmax(1) == label) >= 0.97


def test_model_gives_the_same_logits_one_by_one_as_in_a_batch(shipped: Example) -> None:
    session = open_session(shipped.model)
    image = load(shipped.evaluation)["image"][:4]
    (batch,) = session.run(None, {"image": image})
    single = np.concatenate([session.run(None, {"image": image[i : i + 1]})[0] for i in range(len(image))])
    np.testing.assert_allclose(single, batch, rtol=1e-4, atol=1e-4)


def test_digits_data_are_images_between_zero_and_one_of_every_digit() -> None:
    digits = example("digits")
    for path in (digits.calibration, digits.evaluation):
        arrays = load(path)
        image = arrays["image"].astype(np.float32)
        assert image.shape[1:] == (1, 8, 8)
        assert image.min() == 0
        assert image.max() == 1
        assert set(arrays["label"].tolist()) == set(range(10))


def test_calibration_and_evaluation_share_no_sample(shipped: Example) -> None:
    calibration, evaluation = (
        {row.tobytes() for row in load(p)["image"]} for p in (shipped.calibration, shipped.evaluation)
    )
    assert len(calibration) == 64
    assert len(evaluation) == 128
    assert calibration.isdisjoint(evaluation)


def test_examples_fit_into_the_wheel_together() -> None:
    files = [
        path for name in EXAMPLES for path in (example(name).model, example(name).calibration, example(name).evaluation)
    ]
    assert sum(path.stat().st_size for path in files) < WHEEL_LIMIT_BYTES


@pytest.mark.parametrize("name", ["x", "", "Digits", "../digits"])
def test_unknown_example_is_an_error_that_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ModelError, match=r"^example '.*' is unknown, there is: digits$") as error:
        example(name)
    assert f"'{name}'" in str(error.value)
