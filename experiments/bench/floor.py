"""Seconds of a trial against its floor: opening the session once and the inferences of the measurement."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import onnxruntime

from autoquant import Budget, Target, search
from autoquant.api import isolated
from autoquant.api.trials import SearchProgress
from autoquant.measurement import opening
from autoquant.runtime.session import open_session
from experiments.bench.direct import DirectWorker
from experiments.bench.lines import Line, milliseconds, ratio_of_sums

__all__ = ["floor_lines", "measure_floor"]


class _EnoughError(Exception):
    """Ends a search from its progress report: nothing is delivered."""


@dataclass(slots=True)
class _Stopwatch:
    """Watches trials from outside: their wall-clock, their inferences, and what opening their model takes alone.

    Attributes:
        n_trials: After how many it ends the search.
        trials_s: Wall-clock of each trial, the loop around it included.
        inference_s: Time inside ``InferenceSession.run`` during each.
        n_inferences: Calls of it.
        opening_s: Plain opening of each trial's model in the same form, afterwards.
    """

    n_trials: int
    trials_s: list[float] = field(default_factory=list)
    inference_s: list[float] = field(default_factory=list)
    n_inferences: list[int] = field(default_factory=list)
    opening_s: list[float] = field(default_factory=list)
    _start: float | None = None
    _running: list[float] = field(default_factory=list)
    _opened: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def on_progress(self, progress: SearchProgress) -> None:
        """After every trial; the time in here belongs to none."""
        now = time.perf_counter()
        if progress.phase != "search":
            return
        if self._start is not None and self._opened is not None:
            self._close_trial(now - self._start)
        if len(self.trials_s) >= self.n_trials:
            raise _EnoughError
        self._running, self._opened = [], None
        self._start = time.perf_counter()

    def _close_trial(self, seconds: float) -> None:
        assert self._opened is not None
        self.trials_s.append(seconds)
        self.inference_s.append(sum(self._running))
        self.n_inferences.append(len(self._running))
        positional, named = self._opened
        start = time.perf_counter()
        session = open_session(*positional, **{**named, "optimized_path": None})
        self.opening_s.append(time.perf_counter() - start)
        del session

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count every inference and remember what was opened last."""
        run = onnxruntime.InferenceSession.run

        def timed_run(*positional: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return run(*positional, **named)
            finally:
                self._running.append(time.perf_counter() - start)

        with (
            patch.object(onnxruntime.InferenceSession, "run", timed_run),
            patch.object(opening, "open_session", self._remembering(open_session)),
            patch.object(isolated, "Worker", DirectWorker),
        ):
            yield

    def _remembering(self, opening: Callable[..., Any]) -> Callable[..., Any]:
        def remembered(*positional: Any, **named: Any) -> Any:
            self._opened = positional, named
            return opening(*positional, **named)

        return remembered


def measure_floor(folder: Path, cache: Path, *, n_trials: int = 120) -> tuple[list[Line], dict[str, Any]]:
    """Watch the trials of a search: recipes that quantize weights for the first time, probes, then the sampler's.

    They run in this process for once.

    Args:
        folder: Of the model.
        cache: Calibration results.
        n_trials: How many.

    Returns:
        The lines and the raw seconds.
    """
    watch = _Stopwatch(n_trials)
    with TemporaryDirectory(prefix="bench-") as out, watch.watching(), suppress(_EnoughError):
        search(
            folder / "model.onnx",
            calibration=folder / "calib.npz",
            evaluation=folder / "eval.npz",
            targets=[Target("cpu", threads=1)],
            budget=Budget(trials=10 * n_trials),
            out=Path(out) / "run",
            cache=cache,
            on_progress=watch.on_progress,
        )
    raw: dict[str, Sequence[float]] = {
        "trials_s": watch.trials_s,
        "inference_s": watch.inference_s,
        "n_inferences": watch.n_inferences,
        "opening_s": watch.opening_s,
    }
    return floor_lines(raw), raw


def floor_lines(raw: Mapping[str, Sequence[float]]) -> list[Line]:
    """The lines of all trials and of each half of them: those that need no proposal are mostly in the first one.

    Args:
        raw: Of each trial its seconds, those of its inferences, their number, and seconds of opening.
    """
    half = len(raw["trials_s"]) // 2
    return [
        _line("floor", "", raw),
        _line("floor/first half", ", first half of the trials", {key: values[:half] for key, values in raw.items()}),
        _line("floor/second half", ", second half", {key: values[half:] for key, values in raw.items()}),
    ]


def _line(name: str, which: str, raw: Mapping[str, Sequence[float]]) -> Line:
    trials_s, inference_s, opening_s = raw["trials_s"], raw["inference_s"], raw["opening_s"]
    floors = [a + b for a, b in zip(inference_s, opening_s, strict=True)]
    rest_s = [seconds - floor for seconds, floor in zip(trials_s, floors, strict=True)]
    n_inferences = np.median(raw["n_inferences"])
    return Line(
        name=name,
        text=f"seconds of a trial against opening its session once and its inferences{which}",
        bound=1.3,
        at_most=True,
        measured=ratio_of_sums(trials_s, floors),
        unit="x",
        note=f"{milliseconds(trials_s)} a trial, {milliseconds(opening_s)} opening, {milliseconds(inference_s)} in"
        f" {n_inferences:.0f} inferences, {milliseconds(rest_s)} everything else;"
        f" {len(floors)} trials of one search",
    )
