"""The README's code runs as it stands, with a smaller budget."""

import re
import shutil
from pathlib import Path

import pytest
from optuna.trial import TrialState
from typer.testing import CliRunner

from autoquant.cli import app
from autoquant.examples import example
from autoquant.report.front_json import front_from_json

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own = example("digits")
    for source, name in ((own.model, "model.onnx"), (own.calibration, "calib.npz"), (own.evaluation, "eval.npz")):
        shutil.copyfile(source, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_search_of_the_readme_delivers_a_file(files: Path) -> None:
    code = blocks("python")[0]
    assert "Budget(seconds=120)" in code
    names: dict[str, object] = {}
    exec(code.replace("Budget(seconds=120)", "Budget(trials=12)"), names)
    assert (files / "run" / "front.json").exists()
    assert names["result"].best(min_snr_db=20).path.exists()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("files")
def test_the_steps_of_the_readme_build_a_candidate() -> None:
    names: dict[str, object] = {}
    exec(blocks("python")[1], names)
    assert names["measurement"].quality.worst_db > 10  # type: ignore[attr-defined]


@pytest.mark.usefixtures("files")
def test_the_study_of_the_readme_is_optimized() -> None:
    names: dict[str, object] = {}
    steps, own = blocks("python")[1:3]
    assert "n_trials=50" in own
    exec(steps + own.replace("n_trials=50", "n_trials=6"), names)
    trials = names["study"].trials  # type: ignore[attr-defined]
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 6
    assert len({tuple(trial.params.values()) for trial in trials}) == 6
    assert {trial.number for trial in names["front"]} <= set(range(6))  # type: ignore[attr-defined]
    assert all(trial.user_attrs["effective"] for trial in trials)


def test_the_metric_of_the_readme_is_searched_with(files: Path) -> None:
    (files / "my_metrics.py").write_text(next(block for block in blocks("python") if "my_metrics" in block))
    command = next(block for block in blocks("sh") if "my_metrics" in block).split()
    assert command.pop(0) == "autoquant"
    result = CliRunner().invoke(app, [*command, "--trials", "4"])
    assert result.exit_code == 0, result.output
    assert set(front_from_json((files / "run" / "front.json").read_text()).members[0].metrics) == {"hits", "cosine"}


@pytest.mark.usefixtures("files")
def test_the_objectives_of_the_readme_are_searched_with() -> None:
    command = next(block for block in blocks("sh") if "--out smallest" in block).split()
    assert command.pop(0) == "autoquant"
    result = CliRunner().invoke(app, [*command, "--trials", "4"])
    assert result.exit_code == 0, result.output
    assert list(front_from_json(Path("smallest/front.json").read_text()).objectives) == ["accuracy", "latency", "size"]


def test_every_option_of_the_readme_is_one_of_the_command() -> None:
    usage = next(block for block in blocks("sh") if "--min-snr" in block)
    wanted = set(re.findall(r"--[\w-]+", usage.split("autoquant regions")[0]))
    shown = CliRunner().invoke(app, ["search", "--help"], env={"COLUMNS": "300", "TERM": "dumb"}).output
    assert wanted <= set(re.findall(r"--[\w-]+", shown))


def test_the_tests_of_the_readme_are_what_ci_runs() -> None:
    ci = (README.parent / ".ci" / "run").read_text(encoding="utf-8")
    assert "pip install -e '.[dev]' && pytest" in README.read_text(encoding="utf-8")
    assert "pip install -q -e '.[dev]'" in ci
    assert re.search(r"^pytest", ci, flags=re.MULTILINE)
