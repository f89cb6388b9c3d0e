"""What a tool is asked for, and how it hands over what it makes."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from experiments.peers.manifest import Entry, append
from experiments.recipes import Feed, first_line, prepare, read_feeds
from experiments.remeasure import DEMANDS_DB, open_session, worst_snr_db

__all__ = ["ENOUGH_DB", "FLOAT_DB", "Score", "Task", "TimeIsOverError", "each_within"]

FLOAT_DB = 100.0
"""Stands for the SNR of the float model, as tools want a finite score."""
ENOUGH_DB = float(DEMANDS_DB[-1])
"""A tool that looks for one score goes on until the highest demand, and its candidates on the way meet the others."""
OPSET = 17
"""Neural Compressor wants models of this opset, and what NNCF makes of those at 21 does not load."""


class TimeIsOverError(Exception):
    """The time of a variant is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One tool on one model.

    Attributes:
        tool: Its name.
        model: Float model.
        calibration: ``.npz`` with one array an input, samples along axis 0.
        evaluation: The same, to score candidates with.
        out: Folder for models and manifest.
        work: Folder for anything else.
        seconds: That the tool has; what it makes later is not counted.
        start: Of the tool, by ``time.perf_counter``.
    """

    tool: str
    model: Path
    calibration: Path
    evaluation: Path
    out: Path
    work: Path
    seconds: float
    start: float = field(default_factory=time.perf_counter)

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    def add(self, variant: str, file: Path) -> None:
        """Tell of a file that lies complete in ``out``."""
        append(self.out, Entry(tool=self.tool, variant=variant, seconds=self.spent_s, file=file.name))

    def save(self, variant: str, model: onnx.ModelProto) -> None:
        """Write a candidate and tell of it."""
        file = self.out / f"{variant}.onnx"
        onnx.save(model, file)
        self.add(variant, file)

    def fail(self, variant: str, error: str) -> None:
        """Tell that a variant made nothing, or nothing more."""
        append(self.out, Entry(tool=self.tool, variant=variant, seconds=self.spent_s, error=error))

    def prepared(self) -> tuple[Path, list[Feed]]:
        """The model at opset 17 or later as onnxruntime advises to prepare it, and the feeds that calibrate."""
        feeds = read_feeds(self.calibration, onnx.load(self.model, load_external_data=False))
        return prepare(self.model, feeds[0], self.work, opset=OPSET), feeds


class Score:
    """SNR of candidates on the evaluation samples, as tools take it.

    Attributes:
        feeds: The samples.
    """

    def __init__(self, task: Task, prepared: Path) -> None:
        self.feeds = read_feeds(task.evaluation, onnx.load(prepared, load_external_data=False))
        session = open_session(prepared, 1)
        self._reference = [session.run(None, feed) for feed in self.feeds]
        self._file = task.work / "scored.onnx"
        self._opened: tuple[onnx.ModelProto | None, Any] = None, None

    def __call__(self, model: onnx.ModelProto) -> float:
        """Decibels of the worst output over all samples, 100 at most."""
        return self.of_samples(model, range(len(self.feeds)))[0]

    def of_samples(self, model: onnx.ModelProto, indices: Sequence[int]) -> tuple[float, list[float]]:
        """Over these samples together, and over each of them; the same object is opened once."""
        if model is not self._opened[0]:
            onnx.save(model, self._file)
            self._opened = model, open_session(self._file, 1)
        found = [self._opened[1].run(None, self.feeds[i]) for i in indices]
        each = [self._db([i], [outputs]) for i, outputs in zip(indices, found, strict=True)]
        return self._db(indices, found), each

    def _db(self, indices: Sequence[int], outputs: Sequence[Sequence[np.ndarray]]) -> float:
        return max(-FLOAT_DB, min(FLOAT_DB, worst_snr_db([self._reference[i] for i in indices], outputs)))


def each_within(task: Task, variants: Mapping[str, Callable[[float], object]]) -> None:
    """Call one variant after the other, each with the second of the task until which it may go on.

    The time that is left is shared evenly by those that are left. A variant that fails is told of, and the next begins.
    """
    names = list(variants)
    for position, name in enumerate(names):
        left_s = task.seconds - task.spent_s
        try:
            variants[name](task.spent_s + left_s / (len(names) - position))
        except TimeIsOverError:
            continue
        except Exception as error:  # what a tool cannot do is a result
            task.fail(name, f"{type(error).__name__}: {first_line(error)}")
