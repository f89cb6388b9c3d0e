"""Every demand on autoquant's speed, measured on one model of the zoo.

``python -m experiments.bench.speed ZOO_DIR OUT.json [--part NAME ...] [--seconds 180]`` prints a Markdown table and
writes it with the raw numbers and the environment into OUT.json, each part once it is measured; parts that are measured
again replace what OUT.json holds of them. What is compared is measured in turns within one run; on a loaded machine the
intervals say how far to trust it.
"""

import argparse
import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments.bench.evaluations import measure_evaluations
from experiments.bench.floor import measure_floor
from experiments.bench.isolation import measure_isolation, measure_leaks
from experiments.bench.lines import Line, line_from, render_table
from experiments.bench.opening import measure_opening
from experiments.bench.overhead import measure_overhead
from experiments.bench.passes import measure_memory, measure_pass
from experiments.bench.subject import Subject, open_subject
from experiments.environment import read_environment

__all__ = ["PARTS", "lines_of", "merge"]

MODEL = "opennsfw"
PARTS = ("overhead", "floor", "opening", "pass", "memory", "isolation", "leaks", "evaluations")

Found = tuple[list[Line], dict[str, Any]]


def measure(folder: Path, parts: Sequence[str], *, seconds: float, work: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure parts of the benchmark.

    Args:
        folder: Of the model.
        parts: Names from ``PARTS``.
        seconds: For each side of ``evaluations``.
        work: An empty folder.

    Yields:
        Each part, once it is measured, with its date, environment, load of the machine, lines and raw numbers.
    """

    @cache
    def subject() -> Subject:
        return open_subject(folder, work)

    calls: Mapping[str, Callable[[], Found]] = {
        "overhead": lambda: measure_overhead(subject()),
        "floor": lambda: measure_floor(folder, work),
        "opening": lambda: measure_opening(subject()),
        "pass": lambda: measure_pass(subject()),
        "memory": lambda: measure_memory(folder),
        "isolation": lambda: measure_isolation(subject()),
        "leaks": measure_leaks,
        "evaluations": lambda: measure_evaluations(folder, seconds=seconds),
    }
    environment = read_environment()
    for part in parts:
        load = os.getloadavg()[0]
        lines, raw = calls[part]()
        record = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": environment["id"],
            "load_before": load,
            "lines": [asdict(line) for line in lines],
            "raw": raw,
        }
        print(f"{part}: measured", file=sys.stderr, flush=True)
        yield part, record


def merge(document: Mapping[str, Any], parts: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """The document with new parts in place of the old ones, in the order of ``PARTS``."""
    everything = {**document.get("parts", {}), **parts}
    return {
        "schema_version": 1,
        "model": document.get("model", {}),
        "environments": {**document.get("environments", {}), environment["id"]: dict(environment)},
        "parts": {name: everything[name] for name in PARTS if name in everything},
    }


def lines_of(document: Mapping[str, Any]) -> list[Line]:
    """Every line of the document, in its order."""
    return [line_from(record) for part in document["parts"].values() for record in part["lines"]]


def main() -> int:
    """Measure, write and print; 1 where a demand is missed, 2 on bad input."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench.speed", description=__doc__)
    parser.add_argument("zoo", type=Path, help="folder that experiments.zoo made")
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="measure only these")
    parser.add_argument("--seconds", type=float, default=180, help="of each search and loop (default: %(default)s)")
    arguments = parser.parse_args()
    folder = arguments.zoo.expanduser().resolve() / MODEL
    if not (folder / "model.onnx").is_file():
        print(f"{folder} has no model.onnx: make it with python -m experiments.zoo {arguments.zoo}.", file=sys.stderr)
        return 2
    logging.getLogger().addHandler(logging.NullHandler())  # onnxruntime's tools would print everyone's messages
    digest, environment = hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest(), read_environment()
    document = _read(arguments.out) | {"model": {"name": MODEL, "sha256": digest}}
    with TemporaryDirectory(prefix="bench-") as work:
        for part, record in measure(folder, arguments.part, seconds=arguments.seconds, work=Path(work)):
            document = merge(document, {part: record}, environment)
            _write(arguments.out, json.dumps(document, indent=1, allow_nan=False))
    lines = lines_of(document)
    print(render_table(lines), end="")
    return 0 if all(line.holds for line in lines) else 1


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
