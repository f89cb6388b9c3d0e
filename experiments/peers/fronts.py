"""Fronts of several tools, compared by what was measured in the same rounds."""

from collections.abc import Mapping, Sequence

from experiments.remeasure import Row
from experiments.search.yardsticks import FLOOR_DB, Point

__all__ = ["REACH", "left_undominated", "point_of", "within_reach"]

REACH = 0.1
"""Of the float model's latency: what a quick measurement may err by."""


def point_of(row: Row) -> Point:
    """SNR and ratio."""
    return row.snr_db, row.ratio


def within_reach(points: Mapping[str, Point], reach: float = REACH) -> list[str]:
    """Those that a careful measurement may find on the front of them all and the float model, by ascending ratio.

    Left out is what is slower than float or than another that is as accurate at least, by more than ``reach``, and
    what has less than 0 dB, which an output of zeros has.
    """
    found: list[str] = []
    for name, (snr_db, ratio) in sorted(points.items(), key=lambda item: (item[1][1], -item[1][0])):
        as_accurate = [other for other_db, other in points.values() if other_db >= snr_db]
        if snr_db >= FLOOR_DB and ratio <= min([1.0, *as_accurate]) + reach:
            found.append(name)
    return found


def left_undominated(theirs: Sequence[Row], ours: Sequence[Row]) -> list[Row]:
    """Rows of theirs that are faster, beyond the intervals, than each of ours that is as accurate at least.

    The float model, ratio 1, is one of ours. The SNR is the same whenever it is measured, so it has no interval. Rows
    with less than 0 dB are left out.

    Args:
        theirs: Of all their models.
        ours: Measured in the same rounds.

    Returns:
        Those rows that no other row of theirs beats, by ascending ratio.
    """
    left = [row for row in theirs if row.snr_db >= FLOOR_DB and row.ratio_high < _lowest_ratio(row, ours)]
    beaten = {row.name for row in left for other in left if _beats(other, row)}
    return sorted((row for row in left if row.name not in beaten), key=lambda row: row.ratio)


def _lowest_ratio(row: Row, ours: Sequence[Row]) -> float:
    """Lower end of the interval of the fastest of ours that is as accurate, float included."""
    return min([1.0, *(own.ratio_low for own in ours if own.snr_db >= row.snr_db)])


def _beats(one: Row, other: Row) -> bool:
    mine, its = (one.snr_db, -one.ratio), (other.snr_db, -other.ratio)
    return mine != its and mine[0] >= its[0] and mine[1] >= its[1]
