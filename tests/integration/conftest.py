"""A small model with its data, and the command run in this process."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner, Result

import autoquant
from autoquant import Budget
from autoquant.cli import app
from autoquant.domain.objective import Standing
from tests.models import floats, model_of
from tests.searches import end_after

Command = Callable[..., Result]


@pytest.fixture(scope="module", autouse=True)
def short_end() -> Iterator[None]:
    """Three processes are the last measurement: with two, what noise hides is much."""
    with pytest.MonkeyPatch.context() as patched:
        end_after(patched, n_processes=3)
        yield


def furnish(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it the current folder, with ``model.onnx`` of a dynamic batch, ``calib.npz`` with labels, ``eval.npz``."""
    model = model_of(
        "(float[N,8] x) => (float[N,4] y)",
        "a = Gemm(x, wa, ba) a_relu = Relu(a) b = Gemm(a_relu, wb, bb) b_relu = Relu(b) y = Gemm(b_relu, wy, by)",
        {
            "wa": floats(8, 16),
            "ba": floats(16),
            "wb": floats(16, 16, scale=0.3),
            "bb": floats(16),
            "wy": floats(16, 4),
            "by": floats(4),
        },
    )
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "calib.npz", x=floats(12, 8, seed=1), label=np.arange(12))
    np.savez(folder / "eval.npz", x=floats(10, 8, seed=2))
    monkeypatch.setenv("AUTOQUANT_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """See ``furnish``."""
    furnish(tmp_path, monkeypatch)
    return tmp_path


def deliver_all_finalists(monkeypatch: pytest.MonkeyPatch) -> None:
    """All models of the last measurement become members, whichever it shows to be faster; for tests of other things."""

    def chosen(measured: Mapping[str, Standing], *_: object, **__: object) -> list[str]:
        return sorted(measured, key=lambda name: next(iter(measured[name].latency.values())).ratio)

    monkeypatch.setattr("autoquant.api.delivery.choose_members", chosen)


@pytest.fixture
def all_finalists(monkeypatch: pytest.MonkeyPatch) -> None:
    """See ``deliver_all_finalists``."""
    deliver_all_finalists(monkeypatch)


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the example, whose quantized models are much faster than float: 4 regions, 14 trials.

    All its finalists are members.
    """
    folder = tmp_path_factory.mktemp("searched") / "digits"
    cache, budget = folder.parent / "cache", Budget(trials=14)
    with pytest.MonkeyPatch.context() as patched:
        end_after(patched, n_processes=3)
        deliver_all_finalists(patched)
        autoquant.search("example:digits", space="quick", n_regions=4, budget=budget, out=folder, cache=cache)
    return folder


@pytest.fixture
def digits(workplace: Path, searched: Path) -> dict[Path, bytes]:
    """The run of the example as ``digits`` in the current folder, with its cache: its files."""
    shutil.copytree(searched.parent, workplace, dirs_exist_ok=True)
    return contents("digits")


def contents(folder: str) -> dict[Path, bytes]:
    """The files of a folder."""
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def run_search(*arguments: str, **options: str) -> Result:
    asked = {"model": "model.onnx", "calibration": "calib.npz", "evaluation": "eval.npz", "out": "run"} | options
    model = asked.pop("model")
    flags = [text for name, value in asked.items() for text in (f"--{name.replace('_', '-')}", value)]
    return run_command("search", model, *flags, *arguments)


@pytest.fixture
def command(workplace: Path) -> Command:
    """Runs ``autoquant`` with the arguments."""
    return run_command


@pytest.fixture
def search(workplace: Path) -> Command:
    """Runs ``autoquant search`` on the small model; further arguments and ``key=value`` replace and add to its own."""
    return run_search


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like ``workplace`` with ``run``, a finished search of three trials."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patched:
        end_after(patched, n_processes=3)
        furnish(folder, patched)
        assert run_search(trials="3").exit_code == 0
    return folder


@pytest.fixture
def run(workplace: Path, finished: Path) -> dict[Path, bytes]:
    """That run in the current folder: its files."""
    for name in ("run", "cache"):
        shutil.copytree(finished / name, name)
    return contents("run")


OVERFLOWING = "a = Mul(x, big) b = Mul(a, big) y = MatMul(b, w)"


def assert_refused(result: Result, *phrases: str, out: str = "run") -> None:
    assert result.exit_code == 2, result.output
    sentences = [line for line in result.stderr.splitlines() if line]
    assert len(sentences) == 1, result.stderr
    assert sentences[0].startswith("autoquant: ")
    for phrase in phrases:
        assert phrase in sentences[0]
    assert not Path(out).exists()
