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

_MOST_SHARE = 0.5
"""Of the time that is kept, for candidates."""
_MOST_REHEARSED, _BEGUN_SHARE = 3, 0.5
"""So many candidates at most, and none is begun after this share of the time for them."""
_MARGIN = 2.0
"""So many times what candidates took is kept for finalists: a new process reads again what the first one made, files
are written meanwhile, and roundings that cost more want half of the time to be left."""
_LEAST_GAIN_DB, _MOST_DB = 0.5, 60.0
"""What is won up to the second counts; less than the first on average over all finalists is not worth its trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What refining a candidate took and won.

    Attributes:
        seconds: Without what is done once for all.
        plain_db: SNR of the plain version, on samples of the search.
        refined_db: SNR of the other one.
        is_whole: Whether there was time and memory for all weights.
    """

    seconds: float
    plain_db: float
    refined_db: float
    is_whole: bool = True

    @property
    def gain_db(self) -> float:
        """Decibels that are won: none where the refined version is worse, as the plain one is delivered then."""
        return max(0.0, min(self.refined_db, _MOST_DB) - max(min(self.plain_db, _MOST_DB), -_MOST_DB))


class Rehearses(Refine, Protocol):
    """Refines finalists, and candidates that are none yet."""

    def rehearse(self, assignment: Assignment) -> Rehearsed | None:
        """What refining it takes and wins; None as for a finalist."""
        ...


Begin = Callable[[float, Callable[[], bool], list[str]], Rehearses]
"""Given seconds, whether the user wants no more of it, and where sentences for the user go."""


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    """Keeps a share of the budget for refining finalists, or less once it is known what that takes and wins.

    Attributes:
        deadline: Of the search.
        begin: What refines.
        choose: Those of the evaluations so far that could be finalists, the most important first.
        is_ended: Whether the user wants no more trials.
        kept_s: Seconds that are kept; infinite without a budget of time.
        is_due: Whether candidates may be refined to find that out; not without a budget of time, as nothing is scarce.
        gain_db: What candidates won by it on average; None where that is not known.
        covered: Share of the finalists that there is time to refine; 1 before that is known.
    """

    deadline: Deadline
    begin: Begin
    choose: Callable[[Sequence[Evaluation]], Sequence[Evaluation]]
    is_ended: Callable[[], bool]
    kept_s: float = field(init=False)
    is_due: bool = field(init=False)
    gain_db: float | None = field(init=False, default=None)
    covered: float = field(init=False, default=1.0)
    _n_rehearsed: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.kept_s = self._share_s
        self.is_due = math.isfinite(self._share_s)

    @property
    def _share_s(self) -> float:
        return REFINE_SHARE * self.deadline.limit_s

    @property
    def is_wanted(self) -> bool:
        """Whether time is kept for it."""
        return self.gain_db is None or self.covered * self.gain_db >= _LEAST_GAIN_DB

    def rehearse(self, evaluations: Sequence[Evaluation]) -> None:
        """Refine candidates, and keep what finalists should take then, or nothing where it wins too little.

        Where that fails, or something of it was cut off, nothing is known: finalists are refined as far as time goes.
        """
        self.is_due = False
        start, seconds = self.deadline.elapsed, min(_MOST_SHARE * self._share_s, self.deadline.left / 2)
        found: list[Rehearsed] = []
        with closing(self.begin(seconds, self.is_ended, [])) as refinement:
            for evaluation in self.choose(evaluations):
                one = refinement.rehearse(evaluation.quantized)
                found += [] if one is None else [one]
                is_late = self.deadline.elapsed - start > _BEGUN_SHARE * seconds
                if is_late or refinement.is_over or len(found) == _MOST_REHEARSED:
                    break
        if found and all(one.is_whole for one in found) and not self.is_ended():
            self._keep(found, self.deadline.elapsed - start)

    def _keep(self, found: Sequence[Rehearsed], spent_s: float) -> None:
        self.gain_db, self._n_rehearsed = statistics.mean(one.gain_db for one in found), len(found)
        each_s = statistics.median(one.seconds for one in found)
        needed_s = spent_s + N_FINALISTS * each_s
        self.covered = min(1.0, self._share_s / needed_s)
        self.kept_s = min(self._share_s, _MARGIN * needed_s) if self.is_wanted else 0.0

    def for_finalists(self, spare_s: float, is_ended: Callable[[], bool], notes: list[str]) -> Refine | None:
        """What refines finalists; None where that wins too little for the time that there is.

        Args:
            spare_s: Seconds that are left beyond all that is kept.
            is_ended: Whether the user wants no more of it.
            notes: Gets a sentence where something could not be refined.
        """
        if not self.is_wanted and spare_s < self._share_s:
            notes.append(
                f"refinement: left out, as candidates of the search won {self.gain_db:.1f} dB by it on average"
                f" ({self._n_rehearsed} tried), with time for {self.covered:.0%} of the finalists"
            )
            return None
        return self.begin(min(self._share_s, self.kept_s + spare_s, self.deadline.left / 2), is_ended, notes)
