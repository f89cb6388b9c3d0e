"""Detections as boxes, and how well two sets of them agree."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Detections", "average_precision", "overlaps", "suppress"]


@dataclass(frozen=True, slots=True)
class Detections:
    """Of one picture and one class.

    Attributes:
        boxes: Left, top, right, bottom in pixels, shape (n, 4).
        scores: Shape (n,).
    """

    boxes: np.ndarray
    scores: np.ndarray

    def above(self, score: float) -> "Detections":
        """Those of at least this score."""
        kept = self.scores >= score
        return Detections(self.boxes[kept], self.scores[kept])


def overlaps(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Intersection over union of one box, shape (4,), with others, shape (n, 4)."""
    corners = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    shared = np.prod(np.maximum(corners[1] - corners[0], 0), axis=1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    union = np.prod(box[2:] - box[:2]) + areas - shared
    shares: np.ndarray = shared / np.maximum(union, 1e-12)
    return shares


def suppress(found: Detections, limit: float) -> Detections:
    """Non-maximum suppression: from the highest score down, boxes that overlap a kept one by more than the limit go."""
    left, kept = np.argsort(-found.scores, kind="stable"), []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        left = left[overlaps(found.boxes[best], found.boxes[left]) <= limit]
    return Detections(found.boxes[kept], found.scores[kept])


def average_precision(true: Sequence[np.ndarray], found: Sequence[Detections], overlap: float = 0.5) -> float:
    """Area under precision over recall, precision made falling, over all pictures.

    Detections are matched from the highest score down, each with the free true box that it overlaps most.

    Args:
        true: Boxes by picture, shape (n, 4) each.
        found: By picture, in the same order.
        overlap: Least intersection over union of a match.

    Returns:
        From 0 to 1; where there are no true boxes, 1 without detections and 0 with some.

    References:
        Everingham et al., "The Pascal Visual Object Classes Challenge", IJCV 111, 2015, section 4.2.
    """
    n_true = sum(len(boxes) for boxes in true)
    scores = np.concatenate([detections.scores for detections in found])
    if n_true == 0 or len(scores) == 0:
        return float(n_true == len(scores))
    hits = np.concatenate([_hits(t, f, overlap) for t, f in zip(true, found, strict=True)])
    hits = hits[np.argsort(-scores, kind="stable")]
    n_hits = np.cumsum(hits)
    precision = n_hits / np.arange(1, len(hits) + 1)
    falling = np.maximum.accumulate(precision[::-1])[::-1]
    return float(falling[hits].sum() / n_true)


def _hits(true: np.ndarray, found: Detections, overlap: float) -> np.ndarray:
    hits, free = np.zeros(len(found.scores), bool), np.ones(len(true), bool)
    for i in np.argsort(-found.scores, kind="stable"):
        shares = np.where(free, overlaps(found.boxes[i], true), 0.0)
        if len(shares) and shares.max() >= overlap:
            hits[i], free[shares.argmax()] = True, False
    return hits
