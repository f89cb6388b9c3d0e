"""What a trial costs besides inference, against onnxruntime's ``quantize_static`` and a session."""

import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from autoquant.api import steps
from experiments.bench.lines import Line, milliseconds, ratio_of_medians
from experiments.bench.optuna_loop import WEIGHTED, plain_trial, prepare_plainly
from experiments.bench.subject import Subject, new_assignments

__all__ = ["measure_overhead"]

DEMANDS = {"MinMax": 20.0, "Percentile": 100.0}
N_SHARING = 500
"""Trials that share what is done once: fewer than a search of 180 s makes, see ``evaluations``."""


def measure_overhead(subject: Subject, *, n_turns: int = 8, n_trials: int = 10) -> tuple[list[Line], dict[str, Any]]:
    """In each turn a batch of our trials, each of a new assignment, then one of onnxruntime's with each method.

    onnxruntime's tool leaves a random half of the weighted operators in float, which spares it work.

    Args:
        subject: The model.
        n_turns: How often.
        n_trials: Ours in a turn.

    Returns:
        A line for each calibration method, and the raw seconds.
    """
    builder = subject.new_builder()
    once = {"calibration": _calibration_s(subject), "first builds": 0.0}
    for uniform in subject.uniform_assignments():
        start = time.perf_counter()
        builder.build(uniform)
        once["first builds"] += time.perf_counter() - start
    assignments, rng = new_assignments(subject.space), random.Random(0)
    ours: dict[str, list[float]] = {"build": [], "open": []}
    theirs: dict[str, list[float]] = {method: [] for method in DEMANDS}
    with TemporaryDirectory(prefix="bench-") as folder:
        prepared, feeds = prepare_plainly(subject.model, subject.folder / "calib.npz", Path(folder))
        nodes = [n.name for n in onnx.load(prepared).graph.node if n.op_type in WEIGHTED]
        for _ in range(n_turns):
            for _ in range(n_trials):
                start = time.perf_counter()
                candidate = builder.build(next(assignments))
                _ = candidate.digest
                built = time.perf_counter()
                subject.bench.opener.open(*candidate.parts)
                ours["open"].append(time.perf_counter() - built)
                ours["build"].append(built - start)
            for method, seconds in theirs.items():
                excluded = [name for name in nodes if rng.random() < 0.5]
                start = time.perf_counter()
                plain_trial(prepared, Path(folder) / "q.onnx", feeds, excluded=excluded, method=method)
                seconds.append(time.perf_counter() - start)
    share = sum(once.values()) / N_SHARING
    totals = [build + opening + share for build, opening in zip(ours["build"], ours["open"], strict=True)]
    lines = [_line(method, bound, theirs[method], totals, share) for method, bound in DEMANDS.items()]
    return lines, {"once_s": once, "n_sharing": N_SHARING, "ours_s": ours, "quantize_static_s": theirs}


def _line(method: str, bound: float, theirs: list[float], ours: list[float], share: float) -> Line:
    alone = [seconds - share for seconds in ours]
    return Line(
        name=f"overhead/{method}",
        text=f"a trial besides inference, against quantize_static with {method} and a session",
        bound=bound,
        at_most=False,
        measured=ratio_of_medians(theirs, ours),
        unit="x less",
        note=f"{milliseconds(ours)} against {milliseconds(theirs)}; ours is {milliseconds(alone)} to build and open"
        f" and 1/{N_SHARING} of the {share * N_SHARING:.1f} s that are spent once, on calibration and weights",
    )


def _calibration_s(subject: Subject) -> float:
    with TemporaryDirectory(prefix="bench-") as cache:
        start = time.perf_counter()
        steps.calibrate(subject.prepared, subject.calibration, space=subject.definition, cache_folder=Path(cache))
        return time.perf_counter() - start
