"""What the levels of accuracy are worth to a search: the same search with each of them.

``python -m experiments.accuracy.levels ZOO OUT MODEL [MODEL ...] [--time 120s] [--levels none fast full] [--seed 0]``
searches each model with each level, in random order and with nothing calibrated before. Then ``experiments.remeasure``,
which has nothing of autoquant, measures the files of all levels together in fresh processes: mean savings come from
there. OUT gets ``levels.json`` with a part for each model and time, ``levels.md``, and the runs. Exit code 1: a search
failed; 2: a model is missing.
"""

import argparse
import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoquant.domain.accuracy import Accuracy
from experiments.believe.document import markdown, new_part, place, read_document, write_part
from experiments.believe.subjects import Subject, subject_of
from experiments.remeasure import mean_saving
from experiments.results import run_python, seconds_of
from experiments.search.versus import remeasured

__all__ = ["main", "measure", "render_levels"]

LEVELS = tuple(Accuracy)


def measure(subject: Subject, out: Path, levels: Sequence[str], *, time: str, seed: int) -> list[dict[str, Any]]:
    """One search a level, and all their files together."""
    runs = {
        level: _search(subject, out / level, level, time, seed)
        for level in random.Random(f"{subject.name} {seed}").sample(levels, len(levels))
    }
    folders = {level: out / level / "search" for level, run in runs.items() if not run["error"]}
    measured = remeasured(subject, folders) if folders else {}
    for level, points in measured.items():
        runs[level] |= {"members": points, "saving": mean_saving(points)}
    return [runs[level] for level in levels]


def _search(subject: Subject, out: Path, level: str, time: str, seed: int) -> dict[str, Any]:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    data = ["--calibration", str(subject.calibration), "--evaluation", str(subject.evaluation)]
    asked = ["--accuracy", level, "--time", time, "--seed", str(seed), "--out", str(out / "search")]
    error = run_python(
        ["-m", "autoquant", "search", str(subject.model), *data, *asked],
        out / "search.log",
        timeout_s=3 * seconds_of(time) + 300,
        environment={"AUTOQUANT_CACHE": str(out / "cache")},
    )
    shutil.rmtree(out / "cache", ignore_errors=True)
    print(f"{subject.name}, {level}: {error or 'searched'}", file=sys.stderr)
    return {"level": level, "error": error}


def render_levels(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model and time, the means over models, and where it was measured."""
    parts = document["parts"].values()
    levels = list(dict.fromkeys(run["level"] for part in parts for run in part["runs"]))
    savings = [(part, {run["level"]: run["saving"] for run in part["runs"] if not run["error"]}) for part in parts]
    rows = [
        [part["settings"]["model"], part["settings"]["time"], *(_cell(found.get(level)) for level in levels)]
        for part, found in savings
    ]
    for time in dict.fromkeys(part["settings"]["time"] for part in parts):
        whole = [found for part, found in savings if part["settings"]["time"] == time and len(found) == len(levels)]
        if whole:
            means = (_cell(float(np.mean([found[level] for found in whole]))) for level in levels)
            rows.append([f"mean of {len(whole)}", time, *means])
    places = sorted({place(part["environment"]) for part in parts})
    return markdown(["model", "time", *levels], rows) + "\n" + "\n".join(places) + "\n"


def _cell(saving: float | None) -> str:
    return "failed" if saving is None else f"{saving:.3f}"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.accuracy.levels", description=__doc__)
    parser.add_argument("zoo", type=Path, help="folder that experiments.zoo made")
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="folders in ZOO, or example:digits")
    parser.add_argument("--time", default="120s", help="of each search (default: %(default)s)")
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS), metavar="LEVEL")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search and measure, write after each model, and print."""
    asked = _parse(arguments)
    try:
        subjects = [subject_of(name if ":" in name else str(asked.zoo / name)) for name in asked.models]
        seconds_of(asked.time)
    except (argparse.ArgumentTypeError, ValueError) as error:
        print(f"experiments.accuracy.levels: {error}", file=sys.stderr)
        return 2
    out, has_failed = asked.out.expanduser().resolve(), False
    for subject in subjects:
        part = new_part("experiments.accuracy.levels", model=subject.name, time=asked.time, seed=asked.seed)
        part["runs"] = measure(subject, out / subject.name, asked.levels, time=asked.time, seed=asked.seed)
        write_part(out / "levels.json", f"{subject.name}, {asked.time}", part)
        has_failed |= any(run["error"] for run in part["runs"])
    text = render_levels(read_document(out / "levels.json"))
    (out / "levels.md").write_text(text, encoding="utf-8")
    print(text, end="")
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
