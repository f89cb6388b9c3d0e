"""What a search returns."""

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from autoquant.api.processes import seen_by_others
from autoquant.domain.arguments import check_type
from autoquant.domain.front import FLOAT_ID, Front, Member, RunRecord
from autoquant.errors import UsageError
from autoquant.front.selection import keeps_drops
from autoquant.report.tables import front_table, trials_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Choice", "SearchResult"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One member of the front and where its file is."""

    member: Member
    path: Path


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A finished search.

    Attributes:
        folder: Where everything is written.
        record: All of it as values.
    """

    folder: Path
    record: RunRecord = field(repr=False)

    @property
    def front(self) -> "pd.DataFrame":
        """One row per member, by ascending latency ratio, then one of the float model.

        Columns: id, path, snr_db, ratio, ratio_low, ratio_high, median_ms, low_ms, high_ms, p90_ms, p99_ms, opening_ms,
        memory_mb, size_bytes, n_quantized_regions, note. With several targets those from ratio to memory_mb are there
        once per target, named like ``ratio[cpu-1t]``. Before ratio there are ``snr_db[PART]`` with
        ``snr_db_low[PART]`` and ``snr_db_high[PART]`` of the parts ``search`` and ``held_out``, for each output of
        labels (integers, booleans or strings) ``agreement[OUTPUT]``, the share of equal elements, and for each metric
        ``metric[NAME]`` and ``drop[NAME]`` over all samples, with ``metric_low[NAME]`` and so on, and ``[NAME,PART]``;
        NaN is unknown. SNRs are those of the worst output, ``inf`` for the float model.
        """
        return front_table(self.record.front)

    @property
    def trials(self) -> "pd.DataFrame":
        """One row per evaluation, in order.

        Columns: number, state (``complete``, ``rejected-early``, ``untimed`` or ``failed``), snr_db, n_samples, ratio,
        ratio_low, ratio_high, median_ms, n_rounds (per target as in ``front``), size_bytes (of the serialized
        candidate), digest, reason, ``drop[NAME]`` of each metric that candidates are scored by, and
        ``scheme[REGION]``: what was asked of each region. NaN was not measured. A trial is measured in one process;
        its interval is where 95 % of further ones lie, which differ by as much as those that measured the front.
        """
        return trials_table(seen_by_others(self.record.evaluations, self.record.front), self.record.regions)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the search, one sentence each, as the command prints it."""
        return tuple(self.record.notes)

    def best(
        self,
        *,
        min_snr_db: float | None = None,
        max_latency_ratio: float | None = None,
        max_drop: float | Mapping[str, float] | None = None,
        target: str | None = None,
    ) -> Choice:
        """The fastest member that keeps an SNR or its metrics, or the most accurate one within a latency ratio.

        The float model keeps all, so a demand that no member meets gives the float model.

        Args:
            min_snr_db: Least SNR.
            max_latency_ratio: Largest ratio.
            max_drop: Largest drop over all evaluation samples, of every metric or by name; 0.005 is half a point.
            target: Whose latency counts, by default the first.

        Raises:
            UsageError: None or several demands are given, one is no number, a drop is below 0, or the target or a
                metric is unknown.
        """
        if [min_snr_db, max_latency_ratio, max_drop].count(None) != 2:
            raise UsageError("give either min_snr_db, max_latency_ratio or max_drop")
        drops = max_drop.values() if isinstance(max_drop, Mapping) else [max_drop]
        demands = (each for each in (min_snr_db, max_latency_ratio) if each is not None)
        for demanded in (*demands, *(drops if max_drop is not None else ())):
            check_type("what is demanded", demanded, numbers.Real, "a number")
        for name, limit in (("min_snr_db", min_snr_db), ("max_latency_ratio", max_latency_ratio)):
            if limit is not None and math.isnan(limit):
                raise UsageError(f"{name} is nan, give a number")
        front: Front = self.record.front
        name = target or front.targets[0].name
        if min_snr_db is not None:
            found = front.best_member_at(min_snr_db, target)
        elif max_latency_ratio is not None:
            found = _most_accurate(front, max_latency_ratio, name)
        else:
            assert max_drop is not None
            found = _fastest_within(front, max_drop, name)
        return Choice(found, self.folder / found.path)


def _fastest_within(front: Front, max_drop: float | Mapping[str, float], target: str) -> Member:
    _check_target(front, target)
    known = [name for member in front.members if member.id == FLOAT_ID for name in member.metrics]
    drops = max_drop if isinstance(max_drop, Mapping) else dict.fromkeys(known, max_drop)
    if not drops or not drops.keys() <= set(known):
        raise UsageError(
            f"max_drop is for {', '.join(drops) or 'every metric'}, but the metrics of this search are:"
            f" {', '.join(known) or 'none'}"
        )
    for drop in drops.values():
        if not drop >= 0:
            raise UsageError(f"the largest drop is {drop}, it must be at least 0, e.g. 0.005")
    kept = [member for member in front.members if keeps_drops(member.metrics, drops)]
    return min(kept, key=lambda member: member.latency[target].ratio)


def _check_target(front: Front, target: str) -> None:
    if target not in {known.name for known in front.targets}:
        known = ", ".join(t.name for t in front.targets)
        raise UsageError(f"there is no target '{target}', this search had: {known}")


def _most_accurate(front: Front, ratio: float, target: str) -> Member:
    _check_target(front, target)
    quick = [m for m in front.members if m.id != FLOAT_ID and m.latency[target].ratio <= ratio and m.quality]
    if not quick:
        return next(m for m in front.members if m.id == FLOAT_ID)
    return max(quick, key=lambda m: m.worst_db)
