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
    found = np.zeros(len(points), dtype=np.bool_)
    front = np.empty_like(points)
    n_kept = 0
    for i in np.lexsort(points.T[::-1]):  # what beats a point comes before it
        if not (front[:n_kept] <= points[i]).all(axis=1).any():
            front[n_kept] = points[i]
            n_kept += 1
            found[i] = True
    return found


def layers(points: Floats, least: int | None = None) -> npt.NDArray[np.int64]:
    """Number of the front that each point is on: 0 the non-dominated ones, 1 those once these are gone, and so on.

    Args:
        points: Shape (n, d), smaller is better in every column.
        least: Once so many points are on fronts, all others count as on one more; None to find all fronts.

    References:
        Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002, section III-A.
    """
    found = np.full(len(points), -1, dtype=np.int64)
    layer = n_found = 0
    while n_found < len(points):
        left = np.flatnonzero(found < 0)
        if least is not None and n_found >= least:
            found[left] = layer
            break
        on_front = left[non_dominated(points[left])]
        found[on_front] = layer
        n_found += len(on_front)
        layer += 1
    return found
