import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnxruntime.quantization import QuantFormat, QuantType
from rich.text import Text
from typer.testing import CliRunner

from autoquant import Budget, Demands, Target
from autoquant.cli import app
from autoquant.errors import DiskFullError
from tests.models import a_convnet, a_quantized_chain, saved
from tests.quantized import quantized_by_recipe

HEAVY = ("onnxruntime", "onnx", "optuna", "numpy", "pandas", "plotly")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['autoquant', '--help']\n"
        "from autoquant.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        f"print('loaded:', [name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stdout.rstrip().endswith("loaded: []")


def test_without_arguments_the_help_is_shown() -> None:
    result = CliRunner().invoke(app, [])
    assert "search" in result.output
    assert "regions" in result.output


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"autoquant {version('autoquant')}\n")


def test_defaults_that_depend_on_something_are_in_the_help() -> None:
    shown = CliRunner().invoke(app, ["search", "--help"], env={"COLUMNS": "300"}).output
    help_text = Text.from_ansi(shown).plain
    for option, default in {
        "--accuracy": "what the space says, else fast.",
        "--maximize": "snr, none where a metric is minimized.",
        "--trial-time": "many times the usual one.",
        "--trial-memory": "most of what is available.",
    }.items():
        assert re.search(rf"{option} .* Default {re.escape(default)}", help_text)


def test_what_is_easily_taken_otherwise_is_in_the_help() -> None:
    shown = CliRunner().invoke(app, ["search", "--help"], env={"COLUMNS": "300"}).output
    help_text = Text.from_ansi(shown).plain
    several = dict.fromkeys(("--metric", "--max-drop", "--dim"), "may be given several times")
    for option, said in {
        **several,
        "--threads": "onnxruntime's own default is all cores",
        "--trial-memory": "the last measurement may have more",
        "--warm-start": "right after the uniform recipes",
    }.items():
        assert re.search(rf"{option} .* {said}", help_text)


def test_an_unknown_command_is_refused() -> None:
    assert CliRunner().invoke(app, ["serch"]).exit_code == 2


def test_regions_are_printed() -> None:
    result = CliRunner().invoke(app, ["regions", "example:digits", "--regions", "4"])
    assert result.exit_code == 0, result.output
    *rows, last = result.stdout.splitlines()
    assert 1 <= len(rows) <= 4
    assert last.startswith(f"{len(rows)} regions, ")


def test_regions_are_printed_as_json() -> None:
    result = CliRunner().invoke(app, ["regions", "example:digits", "--json"])
    content = json.loads(result.stdout)
    assert content.keys() == {"schema_version", "regions"}
    rows = content["regions"]
    assert all(set(row) == {"id", "work", "op_types", "nodes"} for row in rows)
    assert sum(row["work"] for row in rows) == pytest.approx(1)


def test_what_runs_is_printed_with_causes(tmp_path: Path) -> None:
    path = str(saved(a_quantized_chain(middle_is_float=True), tmp_path / "model.onnx"))
    result = CliRunner().invoke(app, ["inspect", path, "--threads", "2"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert re.search(r"integer kernels +3 +3 QLinearConv", result.stdout)
    assert "1 of 5 nodes do not run as the file says:" in result.stdout
    assert re.search(r"1 +Conv +float +integer +onnxruntime quantizes its float weight itself", result.stdout)


def test_a_model_that_runs_as_written_is_said_to(tmp_path: Path) -> None:
    path = str(saved(a_quantized_chain(), tmp_path / "model.onnx"))
    result = CliRunner().invoke(app, ["inspect", path])
    assert result.exit_code == 0, result.output
    assert "All 5 nodes run as the file says." in result.stdout
    assert "why" not in result.stdout


def test_what_became_of_the_float_model_is_printed(tmp_path: Path) -> None:
    path = str(saved(a_convnet(), tmp_path / "model.onnx"))
    result = CliRunner().invoke(app, ["inspect", path, "--against", path], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "in the float model" in result.stdout


def test_what_runs_is_printed_as_json(tmp_path: Path) -> None:
    path = str(saved(a_quantized_chain(middle_is_float=True), tmp_path / "model.onnx"))
    result = CliRunner().invoke(app, ["inspect", path, "--json"])
    content = json.loads(result.stdout)
    assert [node["name"] for node in content["nodes"] if not node["is_as_written"]] == ["b"]
    assert set(content) == {
        *("schema_version", "model", "target", "environment"),
        *("nodes", "kernels", "dequantized", "remarks", "against"),
    }
    assert content["environment"]["versions"]["onnxruntime"] == onnxruntime.__version__


def test_where_nodes_are_left_out_it_is_said_where_they_are(tmp_path: Path) -> None:
    recipe = quantized_by_recipe(a_convnet(), tmp_path, QuantFormat.QDQ, QuantType.QUInt16)
    shortened = CliRunner().invoke(app, ["inspect", str(saved(recipe, tmp_path / "wide.onnx"))])
    assert shortened.stdout.splitlines()[-1] == "All nodes, with causes and remarks in full: --json"
    whole = CliRunner().invoke(app, ["inspect", str(saved(a_quantized_chain(), tmp_path / "model.onnx"))])
    assert "--json" not in whole.stdout


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["gone.onnx"], "gone.onnx: there is no such file"),
        (["example:digits", "--ep", "nowhere"], "'nowhere' is not installed"),
        (["example:digits", "--against", "gone.onnx"], "gone.onnx: there is no such file"),
    ],
)
def test_what_cannot_be_inspected_is_refused_in_one_sentence(arguments: list[str], phrase: str) -> None:
    result = CliRunner().invoke(app, ["inspect", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith("autoquant: ")
    assert phrase in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "example:digits"],
        ["regions", "example:digits"],
        ["bench", "example:digits", "example:digits", "--data", "d.npz"],
    ],
)
def test_without_a_place_for_temporary_files_one_sentence_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("d.npz", image=np.random.default_rng(0).random((4, 1, 8, 8), np.float32))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert re.fullmatch(r"autoquant: temporary files cannot be written .* set TMPDIR to .*\n", result.stderr)


@pytest.mark.parametrize(
    ("arguments", "function", "advice"),
    [
        (["search", "m.onnx"], "autoquant.api.search.search", "; a search that has trials goes on with --resume"),
        (["bench", "m.onnx", "--data", "d.npz"], "autoquant.compare", ""),
        (["inspect", "m.onnx"], "autoquant.inspect_model", ""),
        (["regions", "m.onnx"], "autoquant.api.steps.prepare_without_data", ""),
    ],
)
def test_only_a_search_that_is_interrupted_is_said_to_go_on(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], function: str, advice: str
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(function, interrupted)
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (130, f"autoquant: interrupted{advice}\n")


CORE = min(os.sched_getaffinity(0))
ON = f"--ep cuda --threads 2 --affinity {CORE} --batch 3 --streams 4"
TARGETS = [Target("cuda", 2, affinity=(CORE,), batch=3, streams=4)]
DATA = "--calibration c.npz --evaluation e.npz --held-out h.npz --labels l.npz"
SOURCES = {"calibration": "c.npz", "evaluation": "e.npz", "held_out": "h.npz", "labels": "l.npz"}


@pytest.mark.parametrize(
    ("command", "function", "arguments", "options"),
    [
        (
            f"search m.onnx {DATA} {ON} --metric top1 --max-drop 2% --minimize latency,size --maximize snr,top1"
            " --out new --time 5m --trials 6 --trial-time 7s --trial-memory 8 --space quick --accuracy full"
            " --min-snr 40 --max-latency-ratio 0.9 --max-size 4MB --regions 10 --dim N=11 --seed 12 --sampler random"
            " --resume --warm-start old",
            "autoquant.api.search.search",
            ("m.onnx",),
            {
                **SOURCES,
                "metrics": ["top1"],
                "objectives": ("latency", "size", "snr", "top1"),
                "targets": TARGETS,
                "budget": Budget(seconds=300, trials=6, trial_seconds=7, trial_memory_mb=8),
                "demands": Demands(40, 0.9, 4_000_000, {"top1": 0.02}),
                "out": Path("new"),
                "space": "quick",
                "accuracy": "full",
                "n_regions": 10,
                "dims": {"N": 11},
                "seed": 12,
                "sampler": "random",
                "resume": True,
                "warm_start": Path("old"),
            },
        ),
        (
            f"resolve old {DATA} --min-snr 40 --max-latency-ratio 0.9 --out new --model m.onnx --space s.toml"
            " --time 5m",
            "autoquant.api.resolve.resolve",
            (Path("old"),),
            {
                **SOURCES,
                "min_snr_db": 40,
                "max_latency_ratio": 0.9,
                "out": Path("new"),
                "seconds": 300,
                "model": "m.onnx",
                "space": "s.toml",
            },
        ),
        (
            f"bench m.onnx n.onnx --data d.npz {ON} --time 5m --precision 0.1 --seed 12",
            "autoquant.compare",
            (["m.onnx", "n.onnx"], "d.npz"),
            {"targets": TARGETS, "seconds": 300, "precision": 0.1, "seed": 12},
        ),
    ],
    ids=["search", "resolve", "bench"],
)
def test_every_option_of_a_command_reaches_what_it_calls(
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    function: str,
    arguments: tuple[object, ...],
    options: dict[str, object],
) -> None:
    asked: list[tuple[tuple[object, ...], dict[str, object]]] = []

    def interrupted(*arguments: object, spent_s: float = 0.0, on_progress: object = None, **options: object) -> None:
        asked.append((arguments, options))
        raise KeyboardInterrupt

    monkeypatch.setattr(function, interrupted)
    CliRunner().invoke(app, command.split())
    assert asked == [(arguments, options)]


@pytest.mark.parametrize(
    ("arguments", "function", "advice"),
    [
        (["search", "m.onnx"], "autoquant.api.search.search", "; a search that has trials goes on with --resume"),
        (["resolve", "r", "--min-snr", "20", "--out", "o"], "autoquant.api.resolve.resolve", ""),
        (["experiment", "run", "job.toml"], "autoquant.experiment.run.run_job", ""),
    ],
)
def test_only_a_search_that_fills_the_disk_is_said_to_go_on(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], function: str, advice: str
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise DiskFullError("run: the disk is full")

    monkeypatch.setattr(function, full)
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (2, f"autoquant: run: the disk is full{advice}\n")


@pytest.mark.parametrize(
    ("arguments", "function"),
    [
        (["search", "m.onnx"], "autoquant.api.search.search"),
        (["resolve", "r", "--min-snr", "20", "--out", "o"], "autoquant.api.resolve.resolve"),
        (["bench", "m.onnx", "--data", "d:samples"], "autoquant.compare"),
    ],
)
def test_what_the_users_own_code_prints_is_no_part_of_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], function: str
) -> None:
    (tmp_path / "front.json").write_text("{}")

    class Result:
        folder = tmp_path

        def as_dict(self) -> dict[str, object]:
            return {}

    def talkative(*arguments: object, **options: object) -> Result:
        print("100 images were read")
        return Result()

    monkeypatch.setattr(function, talkative)
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(result.stdout) == {}
    assert result.stderr == "100 images were read\n"


def test_regions_as_json_are_nothing_but_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "talkative_data.py").write_text(
        "import numpy\n\nprint('loading')\n\ndef samples():\n    return [{'image': numpy.zeros((1, 1, 8, 8), 'f')}]\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = ["regions", "example:digits", "--calibration", "talkative_data:samples", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert json.loads(result.stdout)["regions"]
    assert result.stderr == "loading\n"


def test_a_job_whose_model_is_not_there_fails_but_not_its_smoke_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    models = '[[models]]\nname = "m"\nmodel = "gone.onnx"\ncalibration = "gone.npz"\n'
    (tmp_path / "job.toml").write_text(f'schema = 1\nname = "j"\n{models}')
    assert CliRunner().invoke(app, ["experiment", "run", "job.toml", "--smoke"]).exit_code == 0
    result = CliRunner().invoke(app, ["experiment", "run", "job.toml"])
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].endswith("summary.md")


def test_a_job_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["experiment", "run", str(tmp_path / "gone.toml")])
    assert result.exit_code == 2
    assert result.stderr.startswith("autoquant: ")
