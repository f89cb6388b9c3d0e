"""onnxruntime's own recipes, static and dynamic: all of ``experiments.recipes``."""

from experiments.peers.tools.task import Task
from experiments.recipes import each_recipe

__all__ = ["make"]


def make(task: Task) -> None:
    """One file a recipe."""
    for name, file, error in each_recipe(task.model, task.calibration, task.out):
        if error:
            task.fail(name, error)
        else:
            task.add(name, file)
