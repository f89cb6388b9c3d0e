"""How often the direction of lines and pages is found: ``python -m experiments.tasks.orientation ZOO_DIR [RUN_DIR]``.

The pictures were turned by the zoo, which therefore knows; no code is needed.
"""

import sys

from experiments.tasks.table import Task, main

__all__ = ["TASK"]

_METRICS = ("accuracy", "top1")
TASK = Task(models={"ppocr2_cls": _METRICS, "doc_orientation": _METRICS})

if __name__ == "__main__":
    sys.exit(main(TASK))
