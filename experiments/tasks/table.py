"""Metrics of the float model and of the members of a front, as a table."""

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoquant import AutoquantError, read_data
from autoquant.api.steps import model_path
from autoquant.domain.metric import MetricResult, MetricValue
from autoquant.examples import EXAMPLES, example
from autoquant.metrics.evaluator import MetricEvaluator
from autoquant.metrics.grammar import parse_metrics
from experiments.zoo.inputs import open_session

__all__ = ["Row", "Task", "evaluate_files", "main", "render"]

FLOAT = "float"


@dataclass(frozen=True, slots=True)
class Task:
    """What a module of this package measures.

    Attributes:
        models: Metrics by the name of a model of the zoo, or of an embedded example.
    """

    models: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A model of the table.

    Attributes:
        name: ``float``, the member's id or the file's name.
        ratio: Latency against float as the front says, None where it says nothing.
        results: By the name of the metric.
    """

    name: str
    ratio: float | None
    results: Mapping[str, MetricResult]


def main(task: Task, arguments: Sequence[str] | None = None) -> int:
    """Print a table for each model of a task; 2 on bad input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("zoo", type=Path, help="folder that experiments.zoo made")
    parser.add_argument(
        "run", nargs="?", type=Path, help="folder of a search, or of one for each model; or an .onnx file"
    )
    parser.add_argument("--only", choices=list(task.models), help="only this model")
    parsed = parser.parse_args(arguments)
    for name in [parsed.only] if parsed.only else task.models:
        model, data = _files(name, parsed.zoo)
        try:
            files = dict(_members(parsed.run, name, model)) if parsed.run else {}
            rows = evaluate_files(model, data, task.models[name], files)
        except (AutoquantError, OSError) as error:
            print(f"{name}: {error}")
            return 2
        print(f"## {name}\n\n{render(rows)}\n")
    return 0


def evaluate_files(
    model: Path, data: Path, metrics: Sequence[str], files: Mapping[str, tuple[Path, float | None]]
) -> list[Row]:
    """The metrics of the float model and of other files over the same samples.

    Args:
        model: The float model.
        data: Samples and labels.
        metrics: As ``autoquant.metrics.grammar`` spells them.
        files: Models and their latency ratios by name.

    Raises:
        AutoquantError: The data do not fit the model, or a metric does not fit the data.
    """
    samples = read_data(model, data, role="evaluation")
    session = open_session(model)
    evaluator = MetricEvaluator(
        metrics=parse_metrics(metrics),
        names=[output.name for output in session.get_outputs()],
        reference=[session.run(None, feed) for feed in samples.feeds],
        feeds=samples.feeds,
        labels=samples.labels,
    )
    rows = [Row(name=FLOAT, ratio=1.0, results=evaluator.evaluate(evaluator.reference))]
    for name, (path, ratio) in files.items():
        other = open_session(path)
        results = evaluator.evaluate(_outputs(other, samples.feeds))
        rows.append(Row(name=name, ratio=ratio, results=results))
    return rows


def render(rows: Sequence[Row]) -> str:
    """Markdown: of each metric the value and the drop in %, with 95 % intervals."""
    names = list(rows[0].results)
    lines = [["model", "ratio", *(title for name in names for title in (name, "drop, %"))]]
    for row in rows:
        cells = [row.name, "" if row.ratio is None else f"{row.ratio:.2f}"]
        for name in names:
            result = row.results[name]
            cells += [_cell(result.candidate, 1, 4), "" if row.name == FLOAT else _cell(result.drop, 100, 2)]
        lines.append(cells)
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(value: MetricValue, scale: float, digits: int) -> str:
    numbers = [f"{scale * number + 0.0:.{digits}f}" for number in (value.value, value.low, value.high)]
    return f"{numbers[0]} [{numbers[1]}, {numbers[2]}]" if value.has_interval else numbers[0]


def _outputs(session: Any, feeds: Sequence[Mapping[str, np.ndarray]]) -> Iterator[list[np.ndarray]]:
    return (session.run(None, feed) for feed in feeds)


def _files(name: str, zoo: Path) -> tuple[Path, Path]:
    if name in EXAMPLES:
        return model_path(f"example:{name}"), example(name).evaluation
    return zoo / name / "model.onnx", zoo / name / "eval.npz"


def _members(run: Path, name: str, model: Path) -> Iterator[tuple[str, tuple[Path, float | None]]]:
    """Name, file and latency ratio of each model to compare."""
    if run.suffix == ".onnx":
        yield run.stem, (run, None)
        return
    sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
    for folder in (run / name / "search", run / name, run):
        front = json.loads((folder / "front.json").read_text("utf-8")) if (folder / "front.json").exists() else None
        if front and front["model"]["sha256"] == sha256:
            for member in front["members"]:
                if member["id"] != FLOAT:
                    ratio = next(iter(member["latency"].values()))["ratio"]
                    yield member["id"], (folder / member["path"], ratio)
            return
    raise FileNotFoundError(f"{run} holds no front.json of {model}, search it first")
