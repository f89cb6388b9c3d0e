"""Let another tool quantize models, within a time and in an environment of its own.

``python -m experiments.peers.make ZOO OUT MODEL [MODEL ...] --tool NAME [--time 180s] [--python PATH]`` runs the tool
in the interpreter PATH, which needs nothing of autoquant, and ends it when the time is over. MODEL is the name of a
folder in ZOO. What it made is in ``OUT/MODEL/NAME``: the models, ``manifest.jsonl`` with a line for each (file, tool,
variant, seconds) and for each variant that failed, ``run.json`` and ``log.txt``. Exit code 1: the tool made nothing of
a model; 2: bad input.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.believe.subjects import Subject, subject_of
from experiments.peers.manifest import RUN, VERSIONS, read_entries
from experiments.results import run_python, seconds_of

__all__ = ["TOOLS", "main", "run_tool"]

TOOLS = ("recipes", "optuna-loop", "nncf", "inc")


def run_tool(subject: Subject, out: Path, *, tool: str, python: str, seconds: float) -> dict[str, Any]:
    """Run a tool on a model; an older run in ``out`` is replaced.

    Args:
        subject: The model.
        out: Folder of this tool and model.
        tool: One of ``TOOLS``.
        python: Interpreter that has it.
        seconds: After which it is ended.

    Returns:
        What ``run.json`` says: ``error`` is empty where it came to its end or was ended, and ``is_ended`` tells which.
    """
    shutil.rmtree(out, ignore_errors=True)
    work = out / "work"
    work.mkdir(parents=True)
    load_before, start = os.getloadavg()[0], time.perf_counter()
    files = [str(path) for path in (subject.model, subject.calibration, subject.evaluation, out, work)]
    error = run_python(
        ["-m", "experiments.peers.tools", tool, *files, str(seconds)],
        out / "log.txt",
        timeout_s=seconds,
        environment={"TMPDIR": str(work)},
        python=python,
    )
    spent_s = time.perf_counter() - start
    is_ended = spent_s >= seconds
    shutil.rmtree(work)
    run = {
        "tool": tool,
        "model": subject.name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "limit_s": seconds,
        "seconds": round(spent_s, 1),
        "is_ended": is_ended,
        "error": "" if is_ended else error,
        "load": [round(load, 2) for load in (load_before, os.getloadavg()[0])],
        "versions": _read_versions(out),
    }
    _drop_unlisted(out)
    (out / RUN).write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    return run


def _read_versions(out: Path) -> dict[str, str]:
    file = out / VERSIONS
    versions: dict[str, str] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.unlink(missing_ok=True)
    return versions


def _drop_unlisted(out: Path) -> None:
    """Delete models that the manifest lacks, such as one that was being written when the time was over."""
    listed = {entry.file for entry in read_entries(out)}
    for file in out.glob("*.onnx"):
        if file.name not in listed:
            file.unlink()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.peers.make", description=__doc__)
    parser.add_argument("zoo", type=Path, help="folder that experiments.zoo made")
    parser.add_argument("out", type=Path, help="folder for what the tools make")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="folders in ZOO")
    parser.add_argument("--tool", required=True, choices=TOOLS)
    parser.add_argument("--time", default="180s", help="that it has for each model (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="interpreter that has the tool")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool on one model after the other."""
    asked = _parse(arguments)
    try:
        subjects = [subject_of(str(asked.zoo / name)) for name in asked.models]
        seconds = seconds_of(asked.time)
    except (argparse.ArgumentTypeError, ValueError) as error:
        print(f"experiments.peers.make: {error}", file=sys.stderr)
        return 2
    if shutil.which(asked.python) is None:
        print(f"experiments.peers.make: --python {asked.python} is no interpreter.", file=sys.stderr)
        return 2
    has_failed = False
    for subject in subjects:
        out = asked.out.expanduser().resolve() / subject.name / asked.tool
        run = run_tool(subject, out, tool=asked.tool, python=asked.python, seconds=seconds)
        entries = read_entries(out)
        n_files, n_failed = sum(bool(entry.file) for entry in entries), sum(bool(entry.error) for entry in entries)
        print(f"{subject.name}, {asked.tool}: {n_files} files, {n_failed} failures, {run['seconds']:.0f} s", end="")
        print(f"; {run['error']}" if run["error"] else "", flush=True)
        has_failed |= n_files == 0
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
