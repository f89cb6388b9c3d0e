"""Which files end a process by themselves."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from autoquant.errors import ModelError, OutputError, TargetError
from autoquant.isolation.process import Worker, WorkerLostError
from autoquant.measurement.roster import NO_MEMORY

__all__ = ["LONGEST_START_S", "NOT_TRIED", "blamed"]

NOT_TRIED = "a process was lost, and there was no time to find out whether by this file"

LONGEST_START_S = 120.0
"""A process that has not begun by then never will: it opens nothing and only loads libraries."""


def blamed(
    files: Mapping[str, Path],
    targets: Sequence[str],
    make_worker: Callable[[], Worker],
    *,
    seconds: float | None,
    is_over: Callable[[], bool],
    method: str = "compare",
) -> dict[str, str]:
    """Open each file in a process of its own and run it once on every target.

    Args:
        files: By id, the most important first, which is tried in any case.
        targets: Names.
        make_worker: A process of a ``FileBench``.
        seconds: Longest that an answer may take; None for no limit.
        is_over: Whether there is no time for another one.
        method: Of the process, that runs a file: ``"compare"``, or ``"time"`` where outputs cannot be compared.

    Returns:
        Reasons by id: of files that don't come through, and of those that were not tried.
    """
    found: dict[str, str] = {}
    for number, (key, path) in enumerate(files.items()):
        if number and is_over():
            found[key] = NOT_TRIED
            continue
        with closing(make_worker()) as worker:
            try:
                worker.ready(seconds=LONGEST_START_S)
            except (WorkerLostError, OutputError, MemoryError):  # before any file was opened
                break
            try:
                worker.call("open", key, path, seconds=seconds)
                for target in targets:
                    worker.call(method, target, range(1), seconds=seconds)
            except (TargetError, OutputError):  # whatever the file
                break
            except (WorkerLostError, ModelError, MemoryError) as error:
                found[key] = str(error) or NO_MEMORY
    return found
