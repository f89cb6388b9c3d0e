"""How well PP-OCR reads printed lines: ``python -m experiments.tasks.ocr ZOO_DIR [RUN_DIR]``.

``label`` holds the class of each character of a line, then 0.
"""

import sys
from collections.abc import Sequence

from autoquant.domain.feed import Feed
from autoquant.metrics.custom import Labels, OutputsByName
from experiments.tasks.ctc import BLANK, decode, edit_distance
from experiments.tasks.table import Task, main

__all__ = ["TASK", "line_accuracy", "text_accuracy"]


def text_accuracy(outputs: Sequence[OutputsByName], _: Sequence[Feed], labels: Labels) -> list[float]:
    """Of each line 1 - edit distance / length of the longer text; the mean is PaddleOCR's "norm_edit_dis"."""
    pairs = _found_and_true(outputs, labels)
    return [1 - edit_distance(a, b) / max(len(a), len(b), 1) for a, b in pairs]


def line_accuracy(outputs: Sequence[OutputsByName], _: Sequence[Feed], labels: Labels) -> list[bool]:
    """Of each line whether it is read without any fault."""
    return [found == true for found, true in _found_and_true(outputs, labels)]


def _found_and_true(outputs: Sequence[OutputsByName], labels: Labels) -> list[tuple[list[int], list[int]]]:
    pairs = []
    for sample, label in zip(outputs, labels["label"], strict=True):
        scores = next(iter(sample.values()))[0]
        pairs.append((decode(scores), [int(c) for c in label if c != BLANK]))
    return pairs


_METRICS = ("experiments.tasks.ocr:text_accuracy", "experiments.tasks.ocr:line_accuracy", "cosine")
TASK = Task(models={"ppocr4_rec": _METRICS})

if __name__ == "__main__":
    sys.exit(main(TASK))
