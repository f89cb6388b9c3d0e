"""What a user can get wrong is one sentence and exit code 2, and nothing is left behind."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import Result

from tests.integration.conftest import Command
from tests.models import Array, a_classifier, floats, model_of


def assert_refused(result: Result, *phrases: str, out: str = "run") -> None:
    assert result.exit_code == 2, result.output
    sentences = [line for line in result.stderr.splitlines() if line]
    assert len(sentences) == 1, result.stderr
    assert sentences[0].startswith("autoquant: ")
    for phrase in phrases:
        assert phrase in sentences[0]
    assert not Path(out).exists()


@pytest.mark.parametrize("content", [b"hello", bytes(range(256)) * 8])
def test_a_file_that_is_no_model_is_refused(search: Command, content: bytes) -> None:
    Path("bad.onnx").write_bytes(content)
    assert_refused(search(model="bad.onnx"), "bad.onnx", "not an ONNX model")


def test_an_empty_file_is_refused(search: Command) -> None:
    Path("empty.onnx").touch()
    assert_refused(search(model="empty.onnx"), "empty.onnx", "no nodes")


def test_a_model_that_was_cut_off_is_refused(search: Command) -> None:
    content = Path("model.onnx").read_bytes()
    Path("half.onnx").write_bytes(content[: len(content) // 2])
    assert_refused(search(model="half.onnx"), "half.onnx", "not an ONNX model")


def test_a_missing_model_is_refused(search: Command) -> None:
    assert_refused(search(model="gone.onnx"), "gone.onnx", "no such file")


@pytest.mark.parametrize(
    ("option", "suffix", "phrase"),
    [
        ("model", ".onnx", "no such file"),
        ("calibration", ".npz", "no such file"),
        ("calibration", "", "no such file or folder"),
        ("labels", ".npy", "no such file"),
        ("space", ".toml", "no search space file has this path"),
        ("warm_start", "", "give the folder of a run"),
        ("out", "", "cannot be written"),
    ],
)
def test_a_name_that_is_too_long_for_any_file_is_refused(
    search: Command, option: str, suffix: str, phrase: str
) -> None:
    result = search(**{option: 300 * "a" + suffix})
    assert result.exit_code == 2, result.output
    assert phrase in result.stderr
    assert not Path("run").exists()


def test_an_unknown_example_is_refused(search: Command) -> None:
    assert_refused(search(model="example:digit"), "'digit' is unknown, there is: digits")


def test_a_model_without_its_external_data_is_refused(search: Command) -> None:
    model = onnx.load("model.onnx")
    onnx.save(model, "external.onnx", save_as_external_data=True, location="external.bin", size_threshold=0)
    Path("external.bin").unlink()
    assert_refused(search(model="external.onnx"), "external.onnx", "external data")


def test_a_model_that_onnxruntime_refuses_is_refused(search: Command) -> None:
    onnx.save(model_of("(float[N,8] x) => (float[N,8] y)", "y = com.microsoft.NoSuchOperator(x)"), "odd.onnx")
    assert_refused(search(model="odd.onnx"), "odd.onnx", "onnxruntime cannot open it")


def test_a_model_that_is_quantized_already_is_refused(search: Command) -> None:
    model = model_of(
        "(float[N,8] x) => (float[N,8] y)",
        "q = QuantizeLinear(x, s) y = DequantizeLinear(q, s)",
        {"s": 0.1},
    )
    onnx.save(model, "quantized.onnx")
    assert_refused(search(model="quantized.onnx"), "quantized.onnx", "already quantized", "QuantizeLinear")


@pytest.mark.parametrize(
    ("signature", "body", "phrase"),
    [
        ("(float[N,8] x) => (seq(float[N,8]) y)", "y = SequenceConstruct(x, x)", "'y' is no tensor"),
        ("(seq(float[8]) x) => (float[K] y)", "y = ConcatFromSequence<axis=0>(x)", "'x' is no tensor"),
        ("() => (float[8] y)", "y = Relu(c)", "no inputs"),
    ],
)
def test_a_model_without_tensors_to_feed_is_refused(search: Command, signature: str, body: str, phrase: str) -> None:
    onnx.save(model_of(signature, body, {"c": floats(8)}), "odd.onnx")
    assert_refused(search(model="odd.onnx"), phrase)


def test_a_model_that_gives_maps_is_refused(search: Command) -> None:
    onnx.save(a_classifier(), "odd.onnx")
    assert_refused(search(model="odd.onnx"), "odd.onnx", "'p' is no tensor", "cut the model")


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
    assert_refused(search(calibration="text.npz"), "text.npz", "cannot be read as arrays")


def test_missing_data_are_refused(search: Command) -> None:
    assert_refused(search(evaluation="gone.npz"), "gone.npz", "no such file")


def test_a_search_without_calibration_data_is_refused(command: Command) -> None:
    assert_refused(command("search", "model.onnx", "--out", "run"), "--calibration")


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


OVERFLOWING = "a = Mul(x, big) b = Mul(a, big) y = MatMul(b, w)"


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


SPACE = """
schema = 1
[ep.cpu]
schemes = ["u8s9"]
op_types = ["Gemm"]
[schemes.u8s8]
activation = "u8:tensor:asym"
weight = "s8:tensor:sym"
ranges = "min-max"
"""


def test_a_space_with_an_unknown_scheme_is_refused(search: Command) -> None:
    Path("mine.toml").write_text(SPACE)
    assert_refused(search(space="mine.toml"), "mine.toml, ep.cpu.schemes", "'u8s9'", "did you mean 'u8s8'?")


def test_a_misspelt_space_is_refused(search: Command) -> None:
    assert_refused(search(space="defautl"), "did you mean 'default'?")


def test_an_execution_provider_that_is_not_installed_is_refused(search: Command) -> None:
    assert_refused(search(ep="tensorrt"), "'tensorrt' is not installed", "this onnxruntime has:", "cpu")


@pytest.mark.parametrize(
    ("option", "value", "phrase"),
    [
        ("time", "soon", "--time soon"),
        ("time", "0s", "must be positive"),
        ("time", "-3s", "--time -3s"),
        ("min_snr", "nan", "finite"),
        ("min_snr", "inf", "finite"),
        ("max_latency_ratio", "0", "(0, 1]"),
        ("max_latency_ratio", "1.5", "(0, 1]"),
        ("max_latency_ratio", "nan", "(0, 1]"),
        ("dim", "N", "--dim N"),
        ("dim", "N=0", "--dim N=0"),
        ("dim", "N=x", "--dim N=x"),
        ("dim", "M=1", "--dim M: there is no such dynamic dimension, the model has: N"),
        ("dim", "N=2", "--dim N=2: but 'x' has the shape"),
    ],
)
def test_an_option_out_of_its_range_is_refused(search: Command, option: str, value: str, phrase: str) -> None:
    assert_refused(search(**{option: value}), phrase)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("trials", "0"),
        ("trials", "many"),
        ("regions", "0"),
        ("threads", "0"),
        ("threads", "99999999999"),
        ("seed", "-1"),
        ("seed", "99999999999999999999"),
        ("min_snr", "high"),
    ],
)
def test_a_number_out_of_its_range_is_refused_with_the_usage(search: Command, option: str, value: str) -> None:
    result = search(**{option: value})
    assert result.exit_code == 2
    assert f"--{option.replace('_', '-')}" in result.stderr
    assert not Path("run").exists()


def test_an_output_folder_with_something_in_it_is_refused_and_kept(search: Command) -> None:
    Path("run").mkdir()
    Path("run/mine.txt").write_text("precious")
    result = search()
    assert result.exit_code == 2
    assert "not empty; use --resume" in result.stderr
    assert [path.name for path in Path("run").iterdir()] == ["mine.txt"]


def test_an_output_folder_that_is_a_file_is_refused(search: Command) -> None:
    result = search(out="calib.npz")
    assert result.exit_code == 2
    assert "this is a file; choose a folder" in result.stderr


def test_an_empty_output_folder_survives_a_search_that_cannot_begin(search: Command) -> None:
    Path("run").mkdir()
    model = model_of("(float[N,8] x) => (float[N,4] y)", OVERFLOWING, {"big": 1e38, "w": floats(8, 4)})
    onnx.save(model, "inf.onnx")
    assert search(model="inf.onnx").exit_code == 2
    assert list(Path("run").iterdir()) == []


def test_folders_that_were_made_for_a_search_that_cannot_begin_are_removed(search: Command) -> None:
    result = search(out="new/deep/run", dim="N=3")
    assert result.exit_code == 2
    assert not Path("new").exists()


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """A folder of its own file system; tests say how large."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=False).returncode:
        pytest.skip("only root may mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def test_a_folder_that_cannot_be_written_is_refused(search: Command, mount: Path) -> None:
    remount(mount, "ro")
    assert_refused(search(out=str(mount / "run")), "Read-only file system", out=str(mount / "run"))


@pytest.mark.parametrize("size", ["8k", "64k", "128k"])
def test_a_full_disk_leaves_no_front(search: Command, mount: Path, size: str) -> None:
    remount(mount, f"size={size}")
    result = search(out=str(mount / "run"), trials="6")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "free some room" in result.stderr
    left = {path.name for path in mount.rglob("*") if path.is_file()}
    assert left <= {"log.txt", "run.json", "study.journal", "prepared.onnx"}


def test_a_disk_that_fills_up_keeps_the_earlier_front(search: Command, mount: Path) -> None:
    out = mount / "run"
    assert search(out=str(out), trials="6").exit_code == 0
    before = {path: path.read_bytes() for path in (out / "front.json", out / "front.csv", *out.glob("models/*"))}
    used = sum(path.stat().st_size // 4096 * 4 + 4 for path in mount.rglob("*"))
    remount(mount, f"size={used + 24}k")
    result = search("--resume", out=str(out), trials="2")
    assert result.exit_code == 2, result.output
    assert "free some room" in result.stderr
    assert before == {path: path.read_bytes() for path in before}
    assert not list(mount.rglob("*.part"))
    remount(mount, "size=20m")
    assert search("--resume", out=str(out), trials="1").exit_code == 0


def test_a_cache_that_cannot_be_written_is_done_without(search: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOQUANT_CACHE", "/dev/null")
    assert search(trials="2").exit_code == 0
    assert "results are not kept: [Errno 20]" in Path("run/log.txt").read_text()


def test_too_little_memory_is_one_sentence(search: Command, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr("autoquant.api.steps.calibration.collect", no_room)
    assert_refused(search(), "not enough memory")


@pytest.mark.parametrize(
    "arguments",
    [
        ["regions", "gone.onnx"],
        ["regions", "model.onnx", "--dim", "M=3"],
        ["regions", "model.onnx", "--calibration", "calib.npz", "--dim", "N=3"],
    ],
)
def test_regions_refuses_what_search_refuses(command: Command, arguments: list[str]) -> None:
    assert_refused(command(*arguments))


def test_the_file_of_another_size_is_named(search: Command) -> None:
    model = model_of("(float[1,M] x) => (float[1,M] y)", "y = Relu(x)", {})
    onnx.save(model, "dynamic.onnx")
    np.savez("four.npz", x=floats(3, 4, seed=1))
    np.savez("five.npz", x=floats(3, 5, seed=2))
    refused = search("--dim", "M=4", model="dynamic.onnx", calibration="four.npz", evaluation="five.npz")
    assert_refused(refused, "--dim M=4: but 'x' has the shape (1, 5) in evaluation data five.npz, sample 0")


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
