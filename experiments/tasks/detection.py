"""Whether detectors still find what float finds: ``python -m experiments.tasks.detection ZOO_DIR [RUN_DIR]``.

The truth are the boxes of the float model that a user would show, so the average precision is an agreement: 1 for the
float model itself.
"""

import sys
from collections.abc import Callable, Sequence

import numpy as np

from autoquant.domain.feed import Feed
from autoquant.metrics.custom import FLOAT_PREFIX, Labels, OutputsByName
from experiments.tasks.boxes import Detections, average_precision, suppress
from experiments.tasks.table import Task, main

__all__ = ["TASK", "characters", "characters_ap50", "characters_map", "faces", "faces_ap50", "faces_map"]

_SHOWN = 0.3
"""Score from which float's boxes count as true."""
_LEAST = 0.05
"""Score from which boxes count at all."""
_OVERLAPS = [0.5 + 0.05 * i for i in range(10)]
"""Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014."""
_STRIDES = (8, 16, 32)


def faces_ap50(outputs: Sequence[OutputsByName], _: Sequence[Feed], labels: Labels) -> float:
    """Average precision of CenterFace's faces at overlap 0.5."""
    return _agreement(faces, outputs, labels, [0.5])


def faces_map(outputs: Sequence[OutputsByName], _: Sequence[Feed], labels: Labels) -> float:
    """Mean average precision of CenterFace's faces over COCO's overlaps."""
    return _agreement(faces, outputs, labels, _OVERLAPS)


def characters_ap50(outputs: Sequence[OutputsByName], _: Sequence[Feed], labels: Labels) -> float:
    """Average precision of ddddocr's characters at overlap 0.5."""
    return _agreement(characters, outputs, labels, [0.5])


def characters_map(outputs: Sequence[OutputsByName], _: Sequence[Feed], labels: Labels) -> float:
    """Mean average precision of ddddocr's characters over COCO's overlaps."""
    return _agreement(characters, outputs, labels, _OVERLAPS)


def faces(outputs: OutputsByName) -> Detections:
    """CenterFace: a heat map of centres at a quarter of the resolution, logarithms of heights and widths, offsets.

    References:
        Xu et al., "CenterFace: Joint Face Detection and Alignment Using Face as Point", 2019, section 3.
    """
    heat, size, offset = (np.asarray(outputs[name], np.float64)[0] for name in ("537", "538", "539"))
    rows, columns = np.nonzero(heat[0] >= _LEAST)
    height, width = 4 * np.exp(size[:, rows, columns])
    y, x = 4 * (np.stack([rows, columns]) + offset[:, rows, columns] + 0.5)
    boxes = np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], axis=1)
    return suppress(Detections(boxes, heat[0, rows, columns]), 0.3)


def characters(outputs: OutputsByName) -> Detections:
    """YOLOX: centres and logarithms of sizes in cells of three grids, objectness, one class.

    References:
        Ge et al., "YOLOX: Exceeding YOLO Series in 2021", 2021, section 2.1.
    """
    values = np.asarray(outputs["output"], np.float64)[0]
    corners, strides = _cells(416)
    centre, size = (values[:, :2] + corners) * strides, np.exp(values[:, 2:4]) * strides
    scores = values[:, 4] * values[:, 5]
    boxes = np.concatenate([centre - size / 2, centre + size / 2], axis=1)
    return suppress(Detections(boxes, scores).above(_LEAST), 0.45)


def _cells(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Column and row of every cell, shape (n, 2), and its stride, shape (n, 1), grid after grid."""
    grids = [np.indices((side // stride, side // stride))[::-1].reshape(2, -1).T for stride in _STRIDES]
    strides = [np.full((len(grid), 1), stride) for grid, stride in zip(grids, _STRIDES, strict=True)]
    return np.concatenate(grids), np.concatenate(strides)


def _agreement(
    decode: Callable[[OutputsByName], Detections],
    outputs: Sequence[OutputsByName],
    labels: Labels,
    limits: Sequence[float],
) -> float:
    floats = [{name: labels[FLOAT_PREFIX + name][i] for name in sample} for i, sample in enumerate(outputs)]
    true = [decode(sample).above(_SHOWN).boxes for sample in floats]
    found = [decode(sample) for sample in outputs]
    return float(np.mean([average_precision(true, found, limit) for limit in limits]))


_MODULE = "experiments.tasks.detection"
TASK = Task(
    models={
        "centerface": (f"{_MODULE}:faces_ap50", f"{_MODULE}:faces_map"),
        "char_yolox": (f"{_MODULE}:characters_ap50", f"{_MODULE}:characters_map"),
    }
)

if __name__ == "__main__":
    sys.exit(main(TASK))
