"""How many of the embedded example's digits are right: ``python -m experiments.tasks.digits ZOO_DIR [RUN_DIR]``."""

import sys

from experiments.tasks.table import Task, main

__all__ = ["TASK"]

TASK = Task(models={"digits": ("accuracy", "top1", "top2", "cosine")})

if __name__ == "__main__":
    sys.exit(main(TASK))
