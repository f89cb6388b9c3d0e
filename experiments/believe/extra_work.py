"""A model that does more than another one, by a share that is chosen and then measured."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from autoquant.calibration.batches import read_samples
from autoquant.domain.feed import Feed
from autoquant.domain.target import Target
from autoquant.measurement.latency import Timings, run_round
from autoquant.model.io import input_signatures
from autoquant.runtime.clocks import clock_of
from autoquant.runtime.session import open_session

__all__ = ["Work", "calibrate_work", "with_more_work"]

WIDTH = 64
N_PRODUCTS = 2
PREFIX = "believe_"
PROBES = (1, 400)
N_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Work:
    """What a row of extra work costs, from two amounts of it.

    Attributes:
        fixed: Share of the model's latency that the smallest amount takes.
        per_row: Share that each further row takes.
    """

    fixed: float
    per_row: float

    def rows_for(self, share: float) -> int:
        """How many rows take this share; at least 1."""
        return max(1, 1 + round((share - self.fixed) / max(self.per_row, 1e-9)))


def with_more_work(model: onnx.ModelProto, n_rows: int) -> onnx.ModelProto:
    """The model with products of matrices beside it, which have an output of their own.

    They begin at one element of the first input, so that nothing can be computed before a run. The other outputs stay
    what they are.

    Args:
        model: A float model; left as it is.
        n_rows: Of the matrices, proportional to the work.
    """
    found = onnx.ModelProto()
    found.CopyFrom(model)
    graph = found.graph
    known = {initializer.name for initializer in graph.initializer}
    given = next(value for value in graph.input if value.name not in known)
    factor = np.linalg.qr(np.random.default_rng(0).standard_normal((WIDTH, WIDTH)))[0].astype(np.float32)
    constants: dict[str, npt.NDArray[np.generic]] = {
        "flat": np.array([-1], np.int64),
        "first": np.array([0], np.int64),
        "start": np.ones((n_rows, WIDTH), np.float32),
        "factor": factor,
    }
    graph.initializer.extend(numpy_helper.from_array(array, PREFIX + name) for name, array in constants.items())
    steps: list[tuple[str, list[str], dict[str, Any]]] = [
        ("Reshape", [given.name, f"{PREFIX}flat"], {}),
        ("Gather", [f"{PREFIX}0", f"{PREFIX}first"], {}),
        ("Cast", [f"{PREFIX}1"], {"to": TensorProto.FLOAT}),
        ("Sigmoid", [f"{PREFIX}2"], {}),
        ("Add", [f"{PREFIX}start", f"{PREFIX}3"], {}),
        *(("MatMul", [f"{PREFIX}{i}", f"{PREFIX}factor"], {}) for i in range(4, 4 + N_PRODUCTS)),
    ]
    graph.node.extend(
        helper.make_node(op, inputs, [f"{PREFIX}{i}"], name=f"{PREFIX}{i}", **attributes)
        for i, (op, inputs, attributes) in enumerate(steps)
    )
    graph.output.append(helper.make_tensor_value_info(f"{PREFIX}{len(steps) - 1}", TensorProto.FLOAT, [n_rows, WIDTH]))
    return found


def calibrate_work(model: Path, data: Path, folder: Path, *, n_rounds: int = N_ROUNDS) -> Work:
    """Measure what extra work costs, roughly: latency grows linearly with its rows.

    Args:
        model: A float model.
        data: Samples.
        folder: For models with more work.
        n_rounds: Interleaved rounds.
    """
    proto = onnx.load(model)
    paths = {"0": model}
    for n_rows in PROBES:
        paths[str(n_rows)] = folder / f"rows{n_rows}.onnx"
        onnx.save(with_more_work(proto, n_rows), paths[str(n_rows)])
    target = Target("cpu", threads=1)
    sessions = {name: open_session(path, target) for name, path in paths.items()}
    feeds: list[Feed] = list(read_samples(data, input_signatures(proto), role="evaluation").feeds)
    rng, timings = random.Random(0), {name: Timings() for name in sessions}
    for i in range(n_rounds):
        seconds, _ = run_round(sessions, feeds[i % len(feeds)], 5, rng, clock_of(target))
        for name, timing in timings.items():
            timing.add(seconds[name], seconds["0"])
    little, much = (timings[str(n_rows)].ratio - 1 for n_rows in PROBES)
    return Work(fixed=little, per_row=(much - little) / (PROBES[1] - PROBES[0]))
