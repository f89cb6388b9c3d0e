"""Who used the processors so far: counters whose differences say what happened in between."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autoquant.runtime.machine import container_files, usable_processors

__all__ = ["Usage", "read_usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counters of the processors that this process may run on.

    Attributes:
        wall_s: A clock.
        n_processors: How many.
        busy_s: Their time that was used, by whomever.
        stolen_s: Their time that a hypervisor gave to others.
        own_s: Time of this process and all that it started.
        n_throttled: How often the container's limit stopped its processes.
        throttled_s: For how long.
        load: Processes that run or wait, averaged over a minute.
    """

    wall_s: float
    n_processors: int
    busy_s: float
    stolen_s: float
    own_s: float
    n_throttled: int
    throttled_s: float
    load: float


def read_usage(proc: Path = Path("/proc"), system: Path = Path("/sys"), pid: int | None = None) -> Usage | None:
    """Read the counters; None where the system has none (other than Linux).

    Args:
        proc: Where the kernel tells of processes and processors.
        system: Holds ``fs/cgroup``.
        pid: Whose own time is meant; this process by default.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        busy_s, stolen_s, n_processors = _processors(proc)
        n_throttled, throttled_s = _throttled(proc, system)
        return Usage(
            wall_s=time.perf_counter(),
            n_processors=n_processors,
            busy_s=busy_s,
            stolen_s=stolen_s,
            own_s=sum(_tree_s(proc, os.getpid() if pid is None else pid)),
            n_throttled=n_throttled,
            throttled_s=throttled_s,
            load=float((proc / "loadavg").read_text(encoding="ascii").split()[0]),
        )
    return None


def _ticks() -> float:
    return float(os.sysconf("SC_CLK_TCK"))


def _processors(proc: Path) -> tuple[float, float, int]:
    """Seconds busy and stolen of the usable processors, and their number; see proc_stat(5)."""
    names = {f"cpu{number}" for number in usable_processors()}
    lines = [line.split() for line in (proc / "stat").read_text(encoding="ascii").splitlines()]
    rows = [[int(cell) for cell in cells[1:]] for cells in lines if cells and cells[0] in names]
    busy = sum(user + nice + system + irq + soft for user, nice, system, _, _, irq, soft, *_ in rows)
    return busy / _ticks(), sum(row[7] for row in rows) / _ticks(), len(rows)


def _tree_s(proc: Path, pid: int) -> Iterator[float]:
    """Seconds of a process with its ended children, and of those that run."""
    with contextlib.suppress(OSError):
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        yield sum(int(cell) for cell in text.rpartition(")")[2].split()[11:15]) / _ticks()
        for file in (proc / str(pid) / "task").glob("*/children"):
            for child in file.read_text(encoding="ascii").split():
                yield from _tree_s(proc, int(child))


def _throttled(proc: Path, system: Path) -> tuple[int, float]:
    for file in container_files(("cpu",), "cpu.stat", proc, system):
        with contextlib.suppress(OSError):
            found = dict(line.split() for line in file.read_text(encoding="ascii").splitlines())
            if "nr_throttled" in found:
                seconds = int(found.get("throttled_usec", 0)) / 1e6 + int(found.get("throttled_time", 0)) / 1e9
                return int(found["nr_throttled"]), seconds
    return 0, 0.0
