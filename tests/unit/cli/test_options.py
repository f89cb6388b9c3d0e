import os
import re
from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner

from autoquant import Budget, Demands, Target
from autoquant.cli import app
from autoquant.cli.options import dims_of, target_of
from autoquant.errors import UsageError

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


def test_options_of_a_search_are_listed_by_what_they_are_about() -> None:
    shown = CliRunner().invoke(app, ["search", "--help"], env={"COLUMNS": "300"}).output
    headings = re.findall(r"╭─ (.*?) ─", Text.from_ansi(shown).plain)
    assert headings == ["Arguments", "Options", "Data", "What is wanted", "Target", "Budget", "How it searches"]


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


def test_sizes_of_dimensions_are_read_by_name() -> None:
    assert dims_of(["batch=1", "time=300"]) == {"batch": 1, "time": 300}
    assert dims_of([]) == {}


@pytest.mark.parametrize(
    "text", ["batch", "=1", "batch=0", "batch=-1", "batch=1.5", "batch=²", f"batch={2**31}", "batch=" + 5000 * "9"]
)
def test_a_size_that_is_no_positive_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--dim {text}: write NAME=N with a positive number")):
        dims_of(["time=300", text])


def test_two_sizes_of_one_dimension_are_refused() -> None:
    assert dims_of(["batch=1", "batch=1"]) == {"batch": 1}
    with pytest.raises(UsageError, match="--dim batch=2: there is another size of batch, 1; give one of them"):
        dims_of(["batch=1", "batch=2"])


def test_without_cores_a_target_may_use_all() -> None:
    assert target_of("cpu", 2, 3, 4, None) == Target("cpu", 2, batch=3, streams=4)


def test_cores_that_are_not_spelled_as_such_are_refused() -> None:
    with pytest.raises(UsageError, match="--affinity first: "):
        target_of("cpu", 1, 1, 1, "first")
