"""What a user can get wrong is one sentence and exit code 2, and nothing is left behind."""

from pathlib import Path

import pytest

from tests.integration.conftest import Command, assert_refused


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
        ("dim", "M=1", "there is no dynamic dimension 'M' to give a size, the model has: N"),
        ("dim", "N=2", "the dimension N shall be 2, but 'x' has the shape"),
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
