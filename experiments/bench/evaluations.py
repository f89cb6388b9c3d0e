"""Evaluations in the same time: ``autoquant search`` against the plain Optuna loop, one after the other."""

import csv
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments.bench.lines import Line, interval_of

__all__ = ["measure_evaluations"]

ROOT = Path(__file__).resolve().parents[2]


def measure_evaluations(folder: Path, *, seconds: float) -> tuple[list[Line], dict[str, Any]]:
    """Each in a process of its own, with nothing calibrated before; the plain loop runs in between two halves of ours.

    Args:
        folder: Of the model, 32 calibration and 32 evaluation samples.
        seconds: For each; two searches of this length are made, one before and one after the loop.

    Returns:
        The line and what each run told.
    """
    ours = [_search(folder, seconds)]
    theirs = _loop(folder, seconds)
    ours.append(_search(folder, seconds))
    counts = [run["n_evaluations"] - run["states"].get("untimed", 0) for run in ours]
    ratios = [count / max(theirs["n_trials"], 1) for count in counts]
    mean = interval_of(sum(ratios) / len(ratios))
    complete = "/".join(str(run["states"].get("complete", 0)) for run in ours)
    line = Line(
        name="evaluations",
        text=f"evaluations in {seconds:g} s against the plain Optuna loop",
        bound=10.0,
        at_most=False,
        measured=type(mean)(mean.value, min(ratios), max(ratios)),
        unit="x as many",
        note=f"{'/'.join(map(str, counts))} (before/after; not rejected early {complete}) against {theirs['n_trials']}"
        f" in {theirs['seconds']:.0f} s; the spread is that of our two runs",
    )
    return [line], {"search": ours, "loop": theirs, "seconds": seconds}


def _search(folder: Path, seconds: float) -> dict[str, Any]:
    with TemporaryDirectory(prefix="bench-") as work:
        out = Path(work) / "run"
        command = ["-m", "autoquant", "search", str(folder / "model.onnx"), "--quiet", "--out", str(out)]
        data = ["--calibration", str(folder / "calib.npz"), "--evaluation", str(folder / "eval.npz")]
        limits = ["--threads", "1", "--time", f"{seconds:g}s"]
        environment = {**os.environ, "AUTOQUANT_CACHE": str(Path(work) / "cache")}
        _run([*command, *data, *limits], environment)
        run = json.loads((out / "run.json").read_text(encoding="utf-8"))
        with (out / "trials.csv").open(encoding="utf-8", newline="") as file:
            states = Counter(row["state"] for row in csv.DictReader(file))
    told = {key: run[key] for key in ("n_evaluations", "seconds", "seconds_total")}
    return told | {"states": dict(states)}


def _loop(folder: Path, seconds: float) -> dict[str, Any]:
    with TemporaryDirectory(prefix="bench-") as out:
        files = [str(folder / name) for name in ("model.onnx", "calib.npz", "eval.npz")]
        command = ["-m", "experiments.bench.optuna_loop", *files, out, "--time", str(seconds)]
        found: dict[str, Any] = json.loads(_run(command, dict(os.environ)).splitlines()[-1])
    return found


def _run(command: list[str], environment: dict[str, str]) -> str:
    run = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} ended with {run.returncode}: {run.stderr.strip()[-500:]}")
    return run.stdout
