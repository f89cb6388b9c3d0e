"""A model against itself: how often a difference is shown where there is none, and how large it is.

``python -m experiments.believe.aa OUT.json [MODEL ...] [--comparisons 500] [--copies 4] [--seconds-each 20] [--busy]``
measures copies of one file with ``autoquant.compare``, as anybody would compare models. MODEL is ``example:digits`` or
a folder of the zoo. Copies of one measurement share their baseline, so their comparisons are not independent: a
baseline that has bad luck has it for all of them; many measurements of few copies each make up for that. ``--busy``
keeps one core busy beside it. OUT.json has a part for either condition. Exit code 1: more than 5 % are shown, or one
above 2 %.
"""

import argparse
import itertools
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from autoquant import compare
from autoquant.api.comparison import Verdict
from experiments.believe.busy import spinning
from experiments.believe.document import markdown, new_part, read_document, share_interval, write_part
from experiments.believe.subjects import Subject, subject_of

__all__ = ["holds", "main", "measure_copies", "render_aa"]

MOST_SHOWN = 0.05
LEAST_DECIDED = 0.95
LARGEST_SHOWN = 0.02
SHOWN = (Verdict.FASTER, Verdict.SLOWER)


def measure_copies(subject: Subject, *, n_copies: int, seconds: float, seed: int) -> dict[str, Any]:
    """One joint measurement of a baseline and copies of it.

    Args:
        subject: The model.
        n_copies: Comparisons.
        seconds: At most.
        seed: Of orders.

    Returns:
        Raw numbers.
    """
    with TemporaryDirectory(prefix="aa-") as folder:
        files = [Path(folder) / f"copy{i}.onnx" for i in range(n_copies + 1)]
        for file in files:
            shutil.copyfile(subject.model, file)
        start = time.perf_counter()
        found = compare(files, subject.evaluation, seconds=seconds, seed=seed).as_dict()
        wall_s = time.perf_counter() - start
    rows = found["rows"]
    assert isinstance(rows, list)
    keys = ("verdict", "ratio", "ratio_low", "ratio_high")
    return {
        "model": subject.name,
        "seed": seed,
        "seconds": wall_s,
        "n_sessions": rows[0]["n_sessions"],
        "n_rounds": rows[0]["n_rounds"],
        "baseline_ms": rows[0]["median_ms"],
        "comparisons": [{key: row[key] for key in keys} for row in rows[1:]],
        "notes": found["notes"],
    }


def render_aa(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model and condition, and one for all models of a condition."""
    rows = []
    for condition, part in document["parts"].items():
        found = part["measurements"]
        names = list(dict.fromkeys(each["model"] for each in found))
        rows += [_row(condition, name, [each for each in found if each["model"] == name]) for name in names]
        if len(names) > 1:
            rows.append(_row(condition, "all", found))
    headings = ("condition", "model", "comparisons", "shown", "share", "95 %", "largest shown", "largest of all")
    return markdown((*headings, "half interval", "processes", "seconds"), rows)


def holds(part: Mapping[str, Any]) -> bool:
    """Whether at most 5 % are shown, none above 2 %, and nearly all had the time to be decided."""
    comparisons = _comparisons(part["measurements"])
    n_all = sum(len(each["comparisons"]) for each in part["measurements"])
    shown = _sizes(comparisons, only_shown=True)
    is_decided = len(comparisons) >= LEAST_DECIDED * n_all
    return is_decided and len(shown) <= MOST_SHOWN * len(comparisons) and max(shown, default=0.0) <= LARGEST_SHOWN


def _row(condition: str, name: str, measurements: Sequence[Mapping[str, Any]]) -> list[str]:
    comparisons = _comparisons(measurements)
    shown = _sizes(comparisons, only_shown=True)
    low, high = share_interval(len(shown), len(comparisons))
    widths = [(c["ratio_high"] - c["ratio_low"]) / 2 for c in comparisons if c["ratio_low"] is not None]
    return [
        condition,
        name,
        f"{len(comparisons)} in {len(measurements)}",
        str(len(shown)),
        f"{len(shown) / max(len(comparisons), 1):.1%}",
        f"{low:.1%} to {high:.1%}",
        f"{max(shown):.2%}" if shown else "",
        f"{max(_sizes(comparisons, only_shown=False), default=0.0):.2%}",
        f"{np.median(widths):.2%}" if widths else "",
        f"{np.median([each['n_sessions'] for each in measurements]):.0f}",
        f"{np.median([each['seconds'] for each in measurements]):.1f}",
    ]


def _comparisons(measurements: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that were measured in several processes."""
    every = [comparison for each in measurements for comparison in each["comparisons"]]
    return [comparison for comparison in every if comparison["verdict"] != Verdict.UNKNOWN]


def _sizes(comparisons: Sequence[Mapping[str, Any]], *, only_shown: bool) -> list[float]:
    return [abs(c["ratio"] - 1) for c in comparisons if not only_shown or c["verdict"] in SHOWN]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.believe.aa", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("models", type=subject_of, nargs="*", help="example:digits, or folders of the zoo")
    parser.add_argument("--comparisons", type=int, default=500, help="over all models (default: %(default)s)")
    parser.add_argument("--copies", type=int, default=4, help="comparisons in one measurement (default: %(default)s)")
    parser.add_argument("--seconds-each", type=float, default=20, help="most, of a measurement (default: %(default)s)")
    parser.add_argument("--busy", action="store_true", help="beside a process that keeps one core busy")
    parser.add_argument("--seed", type=int, default=0, help="of the first measurement (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a few comparisons of a few seconds: does it work?")
    found = parser.parse_args(arguments)
    if found.quick:
        found.comparisons, found.copies, found.seconds_each = min(found.comparisons, 4), 2, 6.0
    found.models = found.models or [subject_of("example:digits")]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write after each measurement, and print; 1 where more is shown than may be."""
    asked = _parse(arguments)
    condition = "busy" if asked.busy else "idle"
    part = new_part("experiments.believe.aa", copies=asked.copies, seconds_each=asked.seconds_each, seed=asked.seed)
    part["measurements"] = []
    with spinning() if asked.busy else nullcontext():
        for number, subject in enumerate(itertools.cycle(asked.models)):
            n_left = asked.comparisons - sum(len(each["comparisons"]) for each in part["measurements"])
            if n_left < 1:
                break
            found = measure_copies(
                subject, n_copies=min(asked.copies, n_left), seconds=asked.seconds_each, seed=asked.seed + number
            )
            part["measurements"].append(found)
            write_part(asked.out, condition, part)
            shown = sum(comparison["verdict"] in SHOWN for comparison in found["comparisons"])
            print(f"{condition} {subject.name}: {shown} of {len(found['comparisons'])} shown", file=sys.stderr)
    print(render_aa(read_document(asked.out)), end="")
    return 0 if holds(part) else 1


if __name__ == "__main__":
    sys.exit(main())
