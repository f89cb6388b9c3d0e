"""Which points nothing else beats."""

import numpy as np
import numpy.typing as npt

__all__ = ["layers", "non_dominated"]

Floats = npt.NDArray[np.float64]


def non_dominated(points: Floats) -> npt.NDArray[np.bool_]:
    """Points that no other point beats; of equal points the first stays.

    Args:
        points: Shape (n, d), smaller is better in every column.

    Returns:
        Shape (n,).
    """
    n = len(points)
    no_worse = (points[:, None] <= points[None]).all(axis=2)
    better = (points[:, None] < points[None]).any(axis=2)
    earlier = np.arange(n)[:, None] < np.arange(n)[None]
    beaten = no_worse & (better | earlier)
    return np.asarray(~beaten.any(axis=0))


def layers(points: Floats) -> npt.NDArray[np.int64]:
    """Number of the front that each point is on: 0 the non-dominated ones, 1 those once these are gone, and so on.

    Args:
        points: Shape (n, d), smaller is better in every column.

    References:
        Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002, section III-A.
    """
    found = np.full(len(points), -1, dtype=np.int64)
    layer = 0
    while (found < 0).any():
        left = np.flatnonzero(found < 0)
        found[left[non_dominated(points[left])]] = layer
        layer += 1
    return found
