"""Data that do not fit the model are one sentence and exit code 2."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.integration.conftest import OVERFLOWING, Command, assert_refused
from tests.models import Array, floats, model_of

SAMPLES = floats(6, 8, seed=3)


def with_value(value: float) -> np.ndarray:
    samples = SAMPLES.copy()
    samples[4, 2] = value
    return samples


@pytest.mark.parametrize(
    ("arrays", "phrases"),
    [
        ({"z": SAMPLES}, ["array 'z'", "wants x"]),
        ({"x": SAMPLES, "y": SAMPLES}, ["array 'y'", "leave it out"]),
        ({}, ["there is no array 'x'"]),
        ({"x": SAMPLES[:, :5]}, ["sample 0, array 'x'", "(1, 5)", "(N, 8)"]),
        ({"x": SAMPLES.astype(np.float64)}, ["float64", "float32"]),
        ({"x": with_value(np.nan)}, ["sample 4", "NaN"]),
        ({"x": with_value(-np.inf)}, ["sample 4", "infinity"]),
        ({"x": SAMPLES[:0]}, ["no samples"]),
        ({"x": SAMPLES, "label": np.arange(5)}, ["'x' holds 6 samples", "'label' holds 5"]),
    ],
)
@pytest.mark.parametrize("role", ["calibration", "evaluation"])
def test_data_that_do_not_fit_are_refused(
    search: Command, role: str, arrays: dict[str, np.ndarray], phrases: list[str]
) -> None:
    np.savez("bad.npz", allow_pickle=True, **arrays)
    assert_refused(search(**{role: "bad.npz"}), f"{role} data bad.npz", *phrases)


def test_a_text_file_is_no_data(search: Command) -> None:
    Path("text.npz").write_text("hello")
    assert_refused(
        search(calibration="text.npz"),
        "text.npz",
        "cannot be read as arrays",
        "(it holds something else than an .npz or an .npy)",
    )


def test_missing_data_are_refused(search: Command) -> None:
    assert_refused(search(evaluation="gone.npz"), "gone.npz", "no such file")


def test_a_search_without_calibration_data_is_refused(command: Command) -> None:
    message = "there are no calibration data; give some as calibration, e.g. an .npz file with samples of 'x'"
    assert_refused(command("search", "model.onnx", "--out", "run"), message)
    assert_refused(command("search", "gone.onnx", "--out", "run"), "gone.onnx: there is no such file")


def test_evaluation_data_that_calibrate_too_are_refused(search: Command) -> None:
    assert_refused(search(evaluation="calib.npz"), "12 of the 12 evaluation samples are calibration samples too")


def test_data_that_the_model_cannot_run_on_are_refused(search: Command) -> None:
    onnx.save(
        model_of("(int64[N,4] ids) => (float[N,4,2] y)", "y = Gather(w, ids)", {"w": floats(5, 2)}), "gather.onnx"
    )
    ids = np.arange(48).reshape(12, 4) % [4, 5, 3, 5]
    np.savez("good.npz", ids=ids[:4])
    np.savez("bad.npz", ids=np.vstack([ids[4:11], [[0, 0, 0, 9]]]))
    for calibration, evaluation in (("bad.npz", "good.npz"), ("good.npz", "bad.npz")):
        refused = search(model="gather.onnx", calibration=calibration, evaluation=evaluation)
        assert_refused(refused, "data bad.npz, sample 7: onnxruntime cannot run")


def test_outputs_that_overflow_are_refused(search: Command) -> None:
    model = model_of("(float[N,8] x) => (float[N,4] y)", OVERFLOWING, {"big": 1e38, "w": floats(8, 4)})
    onnx.save(model, "inf.onnx")
    assert_refused(search(model="inf.onnx"), "NaN or infinity")


def test_what_overflows_inside_stays_float_and_is_named(search: Command) -> None:
    body = "a = Mul(x, big) b = Mul(a, big) c = Clip(b, low, high) y = MatMul(c, w)"
    constants: dict[str, Array | float] = {"big": 1e38, "low": -1.0, "high": 1.0, "w": floats(8, 4)}
    onnx.save(model_of("(float[N,8] x) => (float[N,4] y)", body, constants), "inside.onnx")
    result = search(model="inside.onnx", trials="3")
    assert result.exit_code == 0, result.stderr
    assert "what reads or writes a, b stays float: it holds infinities, NaN" in result.stdout


def test_the_file_of_another_size_is_named(search: Command) -> None:
    model = model_of("(float[1,M] x) => (float[1,M] y)", "y = Relu(x)", {})
    onnx.save(model, "dynamic.onnx")
    np.savez("four.npz", x=floats(3, 4, seed=1))
    np.savez("five.npz", x=floats(3, 5, seed=2))
    refused = search("--dim", "M=4", model="dynamic.onnx", calibration="four.npz", evaluation="five.npz")
    assert_refused(
        refused, "the dimension M shall be 4, but 'x' has the shape (1, 5) in evaluation data five.npz, sample 0"
    )


@pytest.mark.usefixtures("workplace")
def test_held_out_samples_that_the_float_model_cannot_take_are_told_before_the_search(search: Command) -> None:
    model = model_of("(int64[N,1] x) => (float[N,1,4] y)", "y = Gather(w, x)", {"w": floats(8, 4)})
    onnx.save(model, "gather.onnx")
    np.savez("ids.npz", x=np.arange(4).reshape(4, 1))
    np.savez("more.npz", x=np.arange(4, 8).reshape(4, 1))
    np.savez("wrong.npz", x=np.array([[99]]))
    result = search(model="gather.onnx", calibration="ids.npz", evaluation="more.npz", held_out="wrong.npz", trials="3")
    assert result.exit_code == 2
    assert "data wrong.npz, sample 0: onnxruntime cannot run the float model on it" in result.stderr
    assert not Path("run").exists()


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("bad", [2, 8, 9, 13, 16])
@pytest.mark.parametrize("role", ["calibration", "evaluation"])
def test_a_sample_for_which_the_float_model_gives_no_number_is_named_as_the_user_finds_it(
    command: Command, role: str, bad: int
) -> None:
    """Also where the data are divided: what calibrates and evaluates, or what guides the search and is held out."""
    data = floats(20, 8, seed=3)
    data[bad] = 3e38
    np.savez("twenty.npz", x=data)
    others = [] if role == "calibration" else ["--calibration", "calib.npz"]
    result = command("search", "model.onnx", *others, f"--{role}", "twenty.npz", "--trials", "3", "--out", "run")
    assert_refused(result, f"{role} data twenty.npz, sample {bad}", "'y' holds NaN or infinity")


@pytest.mark.usefixtures("workplace")
def test_a_float_model_that_gives_no_number_for_a_held_out_sample_is_told_before_the_search(search: Command) -> None:
    np.savez("huge.npz", x=np.full((1, 8), 3e38, np.float32))
    result = search(held_out="huge.npz", trials="3")
    assert result.exit_code == 2
    assert "held-out data huge.npz, sample 0: the float model's output 'y' holds NaN or infinity" in result.stderr
