"""The calibration pass against running the float model, and its memory.

``python -m experiments.bench.passes MODEL_FOLDER N FORM`` calibrates with N samples and prints the process's peak.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from autoquant import Target
from autoquant.api import steps
from autoquant.calibration.collect import collect
from autoquant.domain.feed import Feed, Samples
from autoquant.domain.region import TensorName
from autoquant.model.copies import to_bytes
from autoquant.model.prepared import PreparedModel
from autoquant.model.rewrite import with_outputs
from autoquant.runtime.session import open_session
from experiments.bench.lines import Line, interval_of, milliseconds, paired_ratio
from experiments.bench.subject import SPACE, Subject

__all__ = ["measure_memory", "measure_pass"]

ROOT = Path(__file__).resolve().parents[2]
COUNTS = (32, 512)
FORMS = {"streamed": None, "read": "savez", "read compressed": "savez_compressed"}
"""What the function of numpy is called that writes the samples."""
ROOM = 1.1
"""How much more the larger count may take: the allocators' and the interpreter's own spread."""


def measure_pass(subject: Subject, *, n_turns: int = 4) -> tuple[list[Line], dict[str, Any]]:
    """In turn the float model runs with the tensors fetched, and ``collect`` observes it; one session of one thread.

    Returns:
        The line and the raw seconds.
    """
    tensors = tuple(subject.statistics.tensors)
    axes = {name: channels.axis for name, channels in subject.statistics.channels.items()}
    session = _open_observed(subject.prepared, tensors)
    fetched = [name for name in tensors if name not in subject.calibration.feeds[0]]
    seconds: dict[str, list[float]] = {"running": [], "observing": []}
    for feed in subject.calibration.feeds[:2]:
        session.run(fetched, feed)
    for _ in range(n_turns):
        start = time.perf_counter()
        for feed in subject.calibration.feeds:
            session.run(fetched, feed)
        seconds["running"].append(time.perf_counter() - start)
        start = time.perf_counter()
        collect(session, tensors, subject.calibration.feeds, digest="", channel_axes=axes)
        seconds["observing"].append(time.perf_counter() - start)
    line = Line(
        name="pass",
        text="calibration pass against running the float model with the same tensors fetched",
        bound=1.5,
        at_most=True,
        measured=paired_ratio(seconds["observing"], seconds["running"]),
        unit="x",
        note=f"{milliseconds(seconds['observing'])} against {milliseconds(seconds['running'])} for"
        f" {len(subject.calibration)} samples and {len(tensors)} tensors; the statistics are made in a second thread",
    )
    return [line], {"n_tensors": len(tensors), "seconds": seconds}


def measure_memory(folder: Path) -> tuple[list[Line], dict[str, Any]]:
    """Peak memory of fresh processes that calibrate with few and with many samples.

    ``streamed`` samples are made one at a time: what is left is the pass. ``read`` and ``read compressed`` ones come
    from one ``.npz``, as a user has them.

    Returns:
        A line for each form and the raw megabytes.
    """
    peaks = {form: {n: _peak_mb(folder, n, form) for n in COUNTS} for form in FORMS}
    return [_memory_line(form, found) for form, found in peaks.items()], {"peak_mb": peaks}


def _memory_line(form: str, peaks: dict[int, float]) -> Line:
    few, many = (peaks[n] for n in COUNTS)
    return Line(
        name=f"memory/{form}",
        text=f"peak memory of calibrating with {COUNTS[1]} samples against {COUNTS[0]}, {form}",
        bound=ROOM,
        at_most=True,
        measured=interval_of(many / few),
        unit="x",
        note=f"{many:.0f} MB against {few:.0f} MB",
    )


def _peak_mb(folder: Path, n: int, form: str) -> float:
    command = [sys.executable, "-m", "experiments.bench.passes", str(folder), str(n), form]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return float(json.loads(run.stdout.splitlines()[-1])["peak_mb"])


def _open_observed(prepared: PreparedModel, tensors: tuple[TensorName, ...]) -> Any:
    graph = prepared.graph
    inner: dict[str, tuple[int, ...] | None] = {name: graph.shape(name) for name in tensors if name in graph.producer}
    return open_session(to_bytes(with_outputs(graph.model, inner)), Target("cpu", threads=1))


def perturbed(feeds: Samples, n: int, seed: int = 0) -> Iterator[Feed]:
    """``n`` feeds: the samples over and over, float arrays slightly changed from the second time on."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        feed = feeds.feeds[i % len(feeds)]
        if i < len(feeds):
            yield feed
        else:
            yield {name: _perturbed(array, rng) for name, array in feed.items()}


def _perturbed(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    return np.asarray(array * array.dtype.type(1 + 0.01 * rng.standard_normal()))


def _calibrate(folder: Path, n: int, form: str) -> None:
    model = folder / "model.onnx"
    given = steps.read_data(model, folder / "calib.npz")
    prepared = steps.prepare(model, given)
    with TemporaryDirectory(prefix="bench-") as cache:
        if writer := FORMS[form]:
            path = Path(cache) / "calib.npz"
            _save(path, given, n, writer)
            samples = steps.read_data(model, path)
            steps.calibrate(prepared, samples, space=SPACE, cache_folder=Path(cache))
            return
        few = replace(given, feeds=given.feeds[:2], digest="two")
        found = steps.calibrate(prepared, few, space=SPACE, cache_folder=Path(cache))
        tensors, axes = tuple(found.tensors), {name: channels.axis for name, channels in found.channels.items()}
        session = _open_observed(prepared, tensors)
        collect(session, tensors, perturbed(given, n), digest="", channel_axes=axes)


def _save(path: Path, given: Samples, n: int, writer: str) -> None:
    """In a process of its own: its memory doesn't count."""
    code = (
        "import sys, numpy as np, pathlib\n"
        "from experiments.bench.passes import perturbed\n"
        "from autoquant.api import steps\n"
        "given = steps.read_data(sys.argv[1] + '/model.onnx', sys.argv[1] + '/calib.npz')\n"
        "feeds = list(perturbed(given, int(sys.argv[2])))\n"
        "getattr(np, sys.argv[4])(sys.argv[3], **{k: np.concatenate([f[k] for f in feeds]) for k in feeds[0]})\n"
    )
    source = str(Path(given.source).parent)
    subprocess.run([sys.executable, "-c", code, source, str(n), str(path), writer], cwd=ROOT, check=True)


def main() -> int:
    """Calibrate and print the peak."""
    folder, n, form = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    _calibrate(folder, n, form)
    print(json.dumps({"peak_mb": _own_peak_mb()}))
    return 0


def _own_peak_mb() -> float:
    """Of this process alone: what ``getrusage`` tells on Linux begins with the peak of the parent."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = next(line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())
