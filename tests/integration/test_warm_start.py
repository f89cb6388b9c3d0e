"""``--warm-start``: what is tried right after the uniform recipes."""

import json
from pathlib import Path
from typing import Any

import onnx
import pandas as pd
import pytest
from typer.testing import Result

from tests.integration.conftest import Command
from tests.models import floats, model_of


@pytest.fixture
def member(digits: dict[Path, bytes]) -> dict[str, Any]:
    """The fastest quantized one of the front of the run ``digits``."""
    document = json.loads(Path("digits/front.json").read_text())
    found: dict[str, Any] = next(member for member in document["members"] if member["assignment"])
    return found


@pytest.fixture
def warm(command: Command) -> Command:
    """Searches the example again, from a warm start, into ``warm``."""

    def run(path: str, *arguments: str, space: str = "quick", trials: str = "3") -> Result:
        asked = ("--space", space, "--regions", "4", "--trials", trials, "--out", "warm", "--warm-start", path)
        return command("search", "example:digits", *asked, *arguments)

    return run


def trial(number: int, folder: str = "warm") -> dict[str, str]:
    schemes = pd.read_csv(Path(folder) / "trials.csv").filter(like="scheme[").iloc[number]
    return {str(name)[7:-1]: str(scheme) for name, scheme in schemes.items() if scheme != "float"}


def test_members_of_an_earlier_run_come_right_after_the_recipes(warm: Command, member: dict[str, Any]) -> None:
    result = warm("digits", trials="6")
    assert result.exit_code == 0, result.output
    assert "warm start from digits: 4 of 4 regions are regions of its run too, its " in result.stdout
    tried = [trial(i) for i in range(len(pd.read_csv("warm/trials.csv")))]
    assert member["assignment"] in tried
    configuration = json.loads(Path("warm/run.json").read_text())["configuration"]
    assert configuration["warm_start"] == "digits"


def test_schemes_that_the_space_lacks_become_the_nearest(warm: Command, member: dict[str, Any]) -> None:
    text = "".join(
        line.replace("u8s8-channel-mse", "all").replace("u8s8-linear-mse", "products").replace('"mse"', '"min-max"')
        for line in (Path(__file__).parents[2] / "search_spaces" / "quick.toml").read_text().splitlines(keepends=True)
    )
    Path("mine.toml").write_text(text)
    result = warm("digits", space="mine.toml")
    assert result.exit_code == 0, result.output
    assert json.loads(Path("warm/run.json").read_text())["configuration"]["space"] == "mine.toml"
    assert "of its schemes u8s8-" in result.stdout
    assert " became all" in result.stdout or " became products" in result.stdout


@pytest.mark.parametrize("suffix", ["onnx", "overrides.json"])
def test_a_quantized_model_gives_its_assignment(warm: Command, member: dict[str, Any], suffix: str) -> None:
    path = f"digits/models/{member['id']}.{suffix}"
    result = warm(path)
    assert result.exit_code == 0, result.output
    assert f"warm start from {path}: {len(member['assignment'])} of 4 regions are quantized there" in result.stdout


def test_another_model_shares_nothing(search: Command, digits: dict[Path, bytes]) -> None:
    model = model_of("(float[N,8] x) => (float[N,9] out)", "out = Gemm(x, w)", {"w": floats(8, 9)})
    onnx.save(model, "other.onnx")
    result = search(model="other.onnx", trials="3", out="warm", warm_start="digits")
    assert result.exit_code == 2
    assert "digits: 0 of 1 regions are regions of its run too" in result.stderr
    assert "leave out the warm start" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not Path("warm").exists()


@pytest.mark.parametrize(
    ("path", "content", "phrase"),
    [
        ("model.txt", "", "give the folder of a run, a QDQ .onnx model or overrides"),
        ("gone.onnx", None, "there is no such file"),
        ("broken.json", "[", "these are no tensor overrides"),
        ("model.onnx", None, "0 of 3 regions are quantized there"),
    ],
)
def test_what_is_no_warm_start_is_one_sentence(search: Command, path: str, content: str | None, phrase: str) -> None:
    if content is not None:
        Path(path).write_text(content)
    result = search(trials="3", warm_start=path)
    assert result.exit_code == 2
    assert phrase in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not Path("run").exists()


def test_a_folder_that_is_no_run_is_refused(search: Command) -> None:
    Path("empty").mkdir()
    result = search(trials="3", warm_start="empty")
    assert result.exit_code == 2
    assert "empty/run.json: it is missing or damaged; give the folder of a finished run" in result.stderr
