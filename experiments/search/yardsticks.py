"""How good a front is."""

from collections.abc import Iterable, Sequence

from experiments.remeasure import mean_saving

__all__ = ["CEILING_DB", "FLOOR_DB", "hypervolume", "improvements", "mean_saving", "non_beaten"]

FLOOR_DB = 0.0
"""The reference point is this SNR at the float model's own latency, ratio 1."""
CEILING_DB = 60.0
"""More is worth nothing: nobody needs it, and float itself would decide everything."""
Point = tuple[float, float]
"""SNR in dB and latency ratio."""


def hypervolume(points: Iterable[Point]) -> float:
    """Area between a front and the reference point, 0 dB at ratio 1, in dB; SNR counts up to 60 dB.

    It is 60 times the mean saving over all demands from 0 to 60 dB: it knows lower demands than the yardstick, and
    those between its steps.

    Args:
        points: Dominated ones change nothing; those that save nothing count 0.

    References:
        Zitzler and Thiele, "Multiobjective optimization using evolutionary algorithms", PPSN 1998.
    """
    area, reached_db = 0.0, FLOOR_DB
    for snr_db, ratio in non_beaten(points):
        upper = min(snr_db, CEILING_DB)
        area += (upper - reached_db) * (1 - ratio)
        reached_db = upper
    return area


def non_beaten(points: Iterable[Point]) -> list[Point]:
    """Those that add to the hypervolume, by ascending ratio."""
    found: list[Point] = []
    reached_db = FLOOR_DB
    for snr_db, ratio in sorted(points, key=lambda point: (point[1], -point[0])):
        if ratio < 1 and min(snr_db, CEILING_DB) > reached_db:
            found.append((snr_db, ratio))
            reached_db = min(snr_db, CEILING_DB)
    return found


def improvements(points: Sequence[Point]) -> list[tuple[int, float]]:
    """Where the hypervolume of a sequence grows: position, and hypervolume from there on."""
    front: list[Point] = []
    found, reached = [], 0.0
    for position, point in enumerate(points):
        area = hypervolume([*front, point])
        if area > reached:
            front, reached = non_beaten([*front, point]), area
            found.append((position, area))
    return found
