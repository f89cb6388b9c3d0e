"""What a search returns."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from autoquant.domain.front import FLOAT_ID, Front, Member, RunRecord
from autoquant.errors import UsageError
from autoquant.report.summary import best_member_at
from autoquant.report.tables import front_table, trials_table

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
    record: RunRecord

    @property
    def front(self) -> pd.DataFrame:
        """One row per member, by ascending latency ratio."""
        return front_table(self.record.front)

    @property
    def trials(self) -> pd.DataFrame:
        """One row per evaluation."""
        return trials_table(self.record.evaluations, self.record.regions)

    def best(
        self, *, min_snr_db: float | None = None, max_latency_ratio: float | None = None, target: str | None = None
    ) -> Choice:
        """The fastest member that keeps an SNR, or the most accurate one within a latency ratio.

        The float model keeps every SNR, so a demand that no member meets gives the float model.

        Raises:
            UsageError: Neither or both demands are given, or the target is unknown.
        """
        if (min_snr_db is None) == (max_latency_ratio is None):
            raise UsageError("give either min_snr_db or max_latency_ratio")
        front: Front = self.record.front
        if min_snr_db is not None:
            found = best_member_at(front, min_snr_db, target)
        else:
            assert max_latency_ratio is not None
            found = _most_accurate(front, max_latency_ratio, target or front.targets[0].name)
        return Choice(found, self.folder / found.path)


def _most_accurate(front: Front, ratio: float, target: str) -> Member:
    if target not in {known.name for known in front.targets}:
        known = ", ".join(t.name for t in front.targets)
        raise UsageError(f"there is no target '{target}', this search had: {known}")
    quick = [m for m in front.members if m.id != FLOAT_ID and m.latency[target].ratio <= ratio and m.quality]
    if not quick:
        return next(m for m in front.members if m.id == FLOAT_ID)
    return max(quick, key=lambda m: m.quality.worst_db if m.quality else float("inf"))
