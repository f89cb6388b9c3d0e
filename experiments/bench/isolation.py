"""What it costs that trials run in a process of their own, and what that process keeps."""

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from autoquant.api import isolated, steps
from autoquant.api.evaluator_setup import EvaluatorSetup
from autoquant.api.ingredients import Ingredients
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.domain.measurement import Failure
from autoquant.domain.region import Assignment
from autoquant.domain.target import Target
from autoquant.examples import example
from autoquant.space.resolve import resolve
from experiments.bench.direct import DirectWorker
from experiments.bench.lines import Line, interval_of, milliseconds, paired_ratio
from experiments.bench.subject import SPACE, Subject, new_assignments

__all__ = ["measure_isolation", "measure_leaks"]

N_ROUNDS = 8
N_SETTLED, N_LEAKING = 200, 2000
ROOM = 1.1


def measure_isolation(subject: Subject, *, n_trials: int = 80) -> tuple[list[Line], dict[str, Any]]:
    """The same trials in turn in this process and in one of their own, each with its own builder and bench.

    Returns:
        The line and the raw seconds.
    """
    evaluation = steps.read_data(subject.model, subject.folder / "eval.npz", role="evaluation")
    setup = EvaluatorSetup(model=subject.model, samples=evaluation, targets=(Target(),), seed=0)
    ingredients = Ingredients(
        prepared=subject.prepared, regions=subject.regions, statistics=subject.statistics, definition=subject.definition
    )
    with patch.object(isolated, "Worker", DirectWorker):
        here = IsolatedEvaluator(setup)
    seconds: dict[str, list[float]] = {"here": [], "there": []}
    with closing(here), closing(IsolatedEvaluator(setup)) as there:
        for evaluator in (here, there):
            evaluator.load(ingredients, rewrites=frozenset())
            for assignment in (*subject.uniform_assignments(), *islice(new_assignments(subject.space, seed=1), 8)):
                evaluator.evaluate(assignment, N_ROUNDS, left_s=600)
        for turn, assignment in enumerate(islice(new_assignments(subject.space), n_trials)):
            pair = [("here", here), ("there", there)]
            for name, evaluator in pair if turn % 2 else reversed(pair):
                start = time.perf_counter()
                evaluator.evaluate(assignment, N_ROUNDS, left_s=600)
                seconds[name].append(time.perf_counter() - start)
    line = Line(
        name="isolation",
        text="a trial in a process of its own against one in the same process",
        bound=1.05,
        at_most=True,
        measured=paired_ratio(seconds["there"], seconds["here"]),
        unit="x",
        note=f"{milliseconds(seconds['there'])} against {milliseconds(seconds['here'])}; {n_trials} pairs",
    )
    return [line], {"seconds": seconds}


def measure_leaks(n_trials: int = N_LEAKING) -> tuple[list[Line], dict[str, Any]]:
    """Memory, files and threads of the process that measures, over many trials of the embedded example (Linux).

    Returns:
        A line for each and the raw numbers.
    """
    seen: list[dict[str, float]] = []
    with TemporaryDirectory(prefix="bench-") as cache, closing(_example(Path(cache))) as evaluator:
        for number, assignment in enumerate(_assignments(evaluator, n_trials), start=1):
            outcome = evaluator.evaluate(assignment, N_ROUNDS, left_s=600)
            assert not isinstance(outcome, Failure), outcome
            if number % min(N_SETTLED, n_trials // 2) == 0:
                assert evaluator.pid is not None
                seen.append({"n_trials": number, **_held(evaluator.pid)})
    first, last = seen[0], seen[-1]
    lines = [
        Line(
            name=f"leaks/{what}",
            text=f"{what} of the process that measures, {last['n_trials']:.0f} trials against {first['n_trials']:.0f}",
            bound=ROOM if what == "memory" else 1.0,
            at_most=True,
            measured=interval_of(last[what] / first[what]),
            unit="x",
            note=f"{last[what]:.0f} against {first[what]:.0f}{' MB' if what == 'memory' else ''}",
        )
        for what in ("memory", "files", "threads")
    ]
    return lines, {"seen": seen}


def _example(cache: Path) -> IsolatedEvaluator:
    own, definition = example("digits"), steps.definition_of(SPACE, "cpu")
    calibration = steps.read_data(own.model, own.calibration)
    evaluation = steps.read_data(own.model, own.evaluation, role="evaluation")
    prepared = steps.prepare(own.model, calibration)
    regions = steps.find_regions(prepared, space=definition)
    statistics = steps.calibrate(prepared, calibration, space=definition, cache_folder=cache)
    made = IsolatedEvaluator(EvaluatorSetup(model=own.model, samples=evaluation, targets=(Target(),), seed=0))
    ingredients = Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=definition)
    made.load(ingredients, rewrites=frozenset())
    return made


def _assignments(evaluator: IsolatedEvaluator, n: int) -> Iterator[Assignment]:
    ingredients = evaluator.ingredients
    return islice(new_assignments(resolve(ingredients.definition, ingredients.regions)), n)


def _held(pid: int) -> dict[str, float]:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    values = {line.split(":")[0]: line.split()[1] for line in status if len(line.split()) > 1}
    n_files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return {"memory": int(values["VmRSS"]) / 1024, "files": n_files, "threads": int(values["Threads"])}
