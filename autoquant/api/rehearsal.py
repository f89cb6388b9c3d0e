"""How much time is kept for refining finalists: some candidates are refined while the search goes on."""

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from autoquant.api.deadline import N_FINALISTS, REFINE_SHARE, Deadline
from autoquant.api.finalists import Refine
from autoquant.domain.measurement import Evaluation
from autoquant.domain.region import Assignment

__all__ = ["Begin", "Rehearsal", "Rehearsed", "Rehearses"]

_MOST_REHEARSED, _REHEARSED_SHARE = 3, 1 / 3
"""So many candidates at most, and none after this share of the time that is kept."""
_LEAST_GAIN_DB, _MOST_DB = 0.3, 60.0
"""What is won up to the second counts; less than the first on average is not worth the trials that it costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What refining a candidate took and won.

    Attributes:
        seconds: Without what is done once for all.
        plain_db: SNR of the plain version, on samples of the search.
        refined_db: SNR of the other one.
    """

    seconds: float
    plain_db: float
    refined_db: float

    @property
    def gain_db(self) -> float:
        """Decibels that are won: none where the refined version is worse, as the plain one is delivered then."""
        return max(0.0, min(self.refined_db, _MOST_DB) - max(min(self.plain_db, _MOST_DB), -_MOST_DB))


class Rehearses(Refine, Protocol):
    """Refines finalists, and candidates that are none yet."""

    @property
    def starting_s(self) -> float:
        """Seconds that beginning its process took; 0 before."""
        ...

    def rehearse(self, assignment: Assignment) -> Rehearsed | None:
        """What refining it takes and wins; None where there is nothing to refine, or no time."""
        ...


Begin = Callable[[float, Callable[[], bool], list[str]], Rehearses]
"""Given seconds, whether the user wants no more of it, and where sentences for the user go."""


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    """Keeps a share of the budget for refining finalists, until it is known what that takes and wins.

    Attributes:
        deadline: Of the search.
        begin: What refines.
        choose: Those of the evaluations so far that could be finalists, the most important first.
        is_ended: Whether the user wants no more trials.
        notes: Gets a sentence where finalists stay as they are.
        kept_s: Seconds that are kept; infinite without a budget of time.
        is_due: Whether candidates may be refined to find that out; not without a budget of time, as nothing is scarce.
        is_wanted: Whether finalists are refined.
    """

    deadline: Deadline
    begin: Begin
    choose: Callable[[Sequence[Evaluation]], Sequence[Evaluation]]
    is_ended: Callable[[], bool]
    notes: list[str]
    kept_s: float = field(init=False)
    is_due: bool = field(init=False)
    is_wanted: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        self.kept_s = REFINE_SHARE * self.deadline.limit_s
        self.is_due = math.isfinite(self.kept_s)

    def rehearse(self, evaluations: Sequence[Evaluation]) -> None:
        """Refine candidates, and keep what finalists should take then, or nothing where it wins too little.

        Where it fails, the finalists will tell why.
        """
        self.is_due = False
        start = self.deadline.elapsed
        with closing(self.begin(self.kept_s, self.is_ended, [])) as refinement:
            found: list[Rehearsed] = []
            for evaluation in self.choose(evaluations):
                one = refinement.rehearse(evaluation.quantized)
                found += [] if one is None else [one]
                is_late = self.deadline.elapsed - start > _REHEARSED_SHARE * self.kept_s
                if is_late or refinement.is_over or len(found) == _MOST_REHEARSED:
                    break
            starting_s = refinement.starting_s
        self.kept_s = max(0.0, self.kept_s - (self.deadline.elapsed - start))
        if found and not self.is_ended():
            self._keep(found, starting_s)

    def _keep(self, found: Sequence[Rehearsed], starting_s: float) -> None:
        gain_db = statistics.mean(one.gain_db for one in found)
        if gain_db < _LEAST_GAIN_DB:
            self.kept_s, self.is_wanted = 0.0, False
            self.notes.append(
                f"refinement: left out, as candidates of the search won {gain_db:.1f} dB by it on average"
                f" ({len(found)} tried); its time goes to trials"
            )
        else:
            each_s = statistics.median(one.seconds for one in found)
            self.kept_s = min(self.kept_s, starting_s + N_FINALISTS * each_s)

    def for_finalists(self, spare_s: float, is_ended: Callable[[], bool], notes: list[str]) -> Refine | None:
        """What refines finalists; None where that wins too little.

        Args:
            spare_s: Seconds that are left beyond all that is kept.
            is_ended: Whether the user wants no more of it.
            notes: Gets a sentence where something could not be refined.
        """
        if not self.is_wanted:
            return None
        seconds = min(REFINE_SHARE * self.deadline.limit_s, self.kept_s + spare_s, self.deadline.left / 2)
        return self.begin(seconds, is_ended, notes)
