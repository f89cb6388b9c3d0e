"""The loop that one would write with Optuna and ``quantize_static``: ``experiments.bench.optuna_loop``."""

import logging
from pathlib import Path

from experiments.bench.optuna_loop import Front, run_loop
from experiments.peers.tools.task import Task

__all__ = ["make"]


class _Everything(Front):
    """Keeps what is beaten too: another measurement may say otherwise."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def add(self, snr_db: float, ratio: float, path: Path) -> None:
        """Keep the file."""
        self.task.add(path.stem, path)
        self.members.append((snr_db, ratio, path))


def make(task: Task) -> None:
    """One file a trial."""
    logging.disable(logging.WARNING)
    files = (task.model, task.calibration, task.evaluation)
    found = run_loop(*files, task.out, seconds=task.seconds, front=_Everything(task))
    if found["n_failed"]:
        task.fail("trials", f"{found['n_failed']} trials failed.")
