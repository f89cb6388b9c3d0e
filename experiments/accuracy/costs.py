"""Time and memory of algorithms that change numbers and not kernels, and what roundings leave of their own objective.

``python -m experiments.accuracy.costs OUT.json [MODEL ...] [--scheme u8s8-channel-mse]`` runs each algorithm for one
scheme wherever it is allowed, on the calibration samples and in a process of its own, whose model is read, prepared and
calibrated before. Seconds are those of the processor, mostly one thread's; memory is how far the peak of the resident
set is above where it began. The objective is the mean squared error of an operator's output for float inputs, each
output channel in comparison with its nearest integers: the geometric mean over all channels, and the largest.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from autoquant.api import steps
from autoquant.api.steps.rounding import rounder_of
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.feed import Samples
from autoquant.domain.region import Assignment, Region, TensorName
from autoquant.domain.scheme import BiasCorrection, DType, Rounding, Scheme
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import Statistics
from autoquant.domain.target import Target
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder
from autoquant.qdq.ports import Rounder
from autoquant.rounding.moments import readers_of
from autoquant.rounding.products import as_columns
from autoquant.rounding.rounded import Integers, Rounded
from autoquant.rounding.rounder import WeightRounder
from autoquant.space.resolve import resolve
from autoquant.space.schema import read_space
from experiments.accuracy.algorithms import rounded_by
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.believe.subjects import Subject, subject_of

__all__ = ["ALGORITHMS", "main", "measure", "render_costs"]

Floats = npt.NDArray[np.float32]
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESETS_PEAK = "5"


@dataclass(frozen=True, slots=True)
class Task:
    """A calibrated model and one scheme wherever it is allowed."""

    calibration: Samples
    prepared: PreparedModel
    regions: tuple[Region, ...]
    statistics: Statistics
    definition: SpaceDefinition

    @classmethod
    def of(cls, subject: Subject, scheme: str, cache: Path) -> "Task":
        """Prepare and calibrate."""
        space = steps.fitted(read_space("default", ep="cpu", accuracy=Accuracy.NONE), [Target()])
        definition = replace(space, schemes=tuple(each for each in space.schemes if each.name == scheme))
        calibration = steps.read_data(subject.model, subject.calibration)
        prepared = steps.prepare(subject.model, calibration)
        statistics = steps.calibrate(prepared, calibration, space=definition, cache_folder=cache)
        return cls(calibration, prepared, steps.find_regions(prepared, space=definition), statistics, definition)

    @property
    def assignment(self) -> Assignment:
        """The uniform one."""
        (scheme,) = self.definition.schemes
        return resolve(self.definition, self.regions).uniform(scheme.name)

    def builder(
        self, changed: Callable[[Scheme], Scheme] = lambda scheme: scheme, *, rounder: Rounder | None = None
    ) -> Builder:
        """Of candidates with a changed scheme."""
        space = replace(self.definition, schemes=tuple(map(changed, self.definition.schemes)))
        return steps.builder_of(self.prepared, self.regions, self.statistics, space=space, rounder=rounder)


@dataclass(slots=True)
class _Judge:
    """Gives what a rounder found before, and notes what is left of the objective."""

    rounder: WeightRounder
    ratios: list[npt.NDArray[np.float64]] = field(default_factory=list)
    n_lost: int = 0

    def __call__(
        self, weight: TensorName, scale: Floats, zero_point: Integers, dtype: DType, rounding: Rounding
    ) -> Rounded | None:
        found = self.rounder(weight, scale, zero_point, dtype, rounding)
        if found is not None:
            problem = self.rounder.problem(weight, scale, zero_point, dtype)
            rescaled = self.rounder.problem(weight, found[1], zero_point, dtype)
            columns = as_columns(found[0].astype(np.float32), readers_of(weight, self.rounder.graph)[0])
            nearest = problem.over_parts(problem.errors(problem.nearest(problem.weight))).ravel()
            rounded = rescaled.over_parts(rescaled.errors(columns)).ravel()
            self.ratios.append(rounded[nearest > 0] / nearest[nearest > 0])
            self.n_lost += int((rounded[nearest == 0] > 0).sum())
        return found


def _round(rounding: Rounding, task: Task) -> Callable[[], dict[str, float]]:
    rounder, rounded = rounder_of(task.prepared, task.calibration), partial(rounded_by, rounding)
    task.builder(rounded, rounder=rounder).build(task.assignment)

    def judged() -> dict[str, float]:
        judge = _Judge(rounder)
        task.builder(rounded, rounder=judge).build(task.assignment)
        ratios = np.concatenate(judge.ratios)
        mean = float(np.exp(np.mean(np.log(np.maximum(ratios, np.finfo(np.float32).tiny)))))
        return {"objective": mean, "largest_objective": float(ratios.max()), "n_exact_lost": judge.n_lost}

    return judged


def _correct(task: Task) -> None:
    task.builder(lambda scheme: replace(scheme, bias=BiasCorrection.MEAN)).build(task.assignment)


def _observe(task: Task) -> None:
    steps.observe_shifts(task.prepared, task.builder(), task.assignment, task.calibration)


ALGORITHMS: Mapping[str, Callable[[Task], Any]] = {
    "build": lambda task: task.builder().build(task.assignment) and None,
    "equalised": lambda task: steps.equalise(task.prepared, task.statistics) and None,
    "bias mean": _correct,
    "bias observed": _observe,
    "gptq": lambda task: _round(Rounding.GPTQ, task),
    "adaround": lambda task: _round(Rounding.ADAROUND, task),
    "adaquant": lambda task: _round(Rounding.ADAQUANT, task),
}
"""Each builds a candidate too, apart from equalisation; what they return says more of them afterwards."""


def measure(subject: Subject, scheme: str, algorithm: str, cache: Path) -> dict[str, Any]:
    """Costs of an algorithm, in this process."""
    with threadpool_limits(limits=1):
        task = Task.of(subject, scheme, cache)
        _CLEAR.write_text(_RESETS_PEAK)
        before_mb, start = _peak_mb(), time.process_time()
        judged = ALGORITHMS[algorithm](task)
        cpu_s, peak_mb = (
            time.process_time() - start,
            max(before_mb, _peak_mb()),
        )  # counted late, by some pages
        found = {"algorithm": algorithm, "cpu_s": cpu_s, "peak_mb": peak_mb - before_mb}
        return {**found, "before_mb": before_mb, **(judged() if judged else {})}


def _peak_mb() -> float:
    """Of the resident set, since it was reset."""
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def render_costs(document: Mapping[str, Any]) -> str:
    """For each model a line with seconds and megabytes, and behind it what roundings leave."""
    headings = ["model", *(f"{name}: CPU s, MB" for name in ALGORITHMS), "objective: gptq", "adaround", "adaquant"]
    return markdown(headings, [_line(model, part["costs"]) for model, part in document.get("parts", {}).items()])


def _line(model: str, costs: Sequence[Mapping[str, Any]]) -> list[str]:
    by_name = {each["algorithm"]: each for each in costs}
    cells = [f"{by_name[n]['cpu_s']:.1f}, {by_name[n]['peak_mb']:.0f}" if n in by_name else "" for n in ALGORITHMS]
    left = [each for each in (by_name.get(str(rounding)) for rounding in list(Rounding)[1:]) if each is not None]
    return [model, *cells, *map(_left, left)]


def _left(found: Mapping[str, Any]) -> str:
    """Of the objective; channels that the nearest integers meet exactly are in no ratio."""
    lost = f"; {found['n_exact_lost']} exact channels lost" if found.get("n_exact_lost") else ""
    return f"{found['objective']:.3f}, at most {found['largest_objective']:.3f}{lost}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write after each model, and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.accuracy.costs", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file, with a part for each model")
    parser.add_argument("models", type=subject_of, nargs="*", help="example:digits, or folders of the zoo")
    parser.add_argument("--scheme", default="u8s8-channel-mse", help="of the default space (default: %(default)s)")
    asked = parser.parse_args(arguments)
    for subject in asked.models or [subject_of("example:digits")]:
        part = new_part("experiments.accuracy.costs", scheme=asked.scheme)
        with (
            TemporaryDirectory(prefix="costs-") as cache,
            ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool,
        ):
            Task.of(subject, asked.scheme, Path(cache))  # fills the cache
            part["costs"] = [
                pool.submit(measure, subject, asked.scheme, algorithm, Path(cache)).result() for algorithm in ALGORITHMS
            ]
        write_part(asked.out, subject.name, part)
        print(f"{subject.name}: measured", file=sys.stderr)
    print(render_costs(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
