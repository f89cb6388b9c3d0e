"""What a search delivers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from autoquant.domain.ledger import Ledger
from autoquant.domain.measurement import Evaluation, Footprint, Latency, Quality, SnrInterval
from autoquant.domain.metric import MemberMetric
from autoquant.domain.objective import DEFAULT_OBJECTIVES, LATENCY, SIZE, SNR, Goal
from autoquant.domain.region import Assignment, Region
from autoquant.domain.target import Target
from autoquant.errors import UsageError

__all__ = ["DEMANDS_DB", "FLOAT_ID", "Front", "Member", "RunRecord"]

DEMANDS_DB = (30, 40, 50)
"""SNR demands at which fronts are compared."""
FLOAT_ID = "float"
"""Id of the member that is the user's own model."""
_DROPS = (0.0, 0.005, 0.01)
"""Demands of a metric where it takes the place of SNR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A delivered model, measured as the file that it is.

    Attributes:
        id: Unique within the front; ``float`` is the user's own model.
        path: Relative to the run's folder.
        sha256: Of the file.
        size_bytes: Of the file, external data included.
        quality: Over all evaluation samples; None for the float model.
        latency: By target name.
        footprint: By target name.
        assignment: Scheme name of each region that is not float.
        note: What the user should know of it, or empty.
        algorithms: That changed its numbers and not its kernels, for accuracy.
        snr_search: On the samples that the search compared candidates on; None for the float model.
        snr_held_out: On the samples that only the last measurement saw; None where there are none.
        metrics: By name.
    """

    id: str
    path: str
    sha256: str
    size_bytes: int
    quality: Quality | None
    latency: Mapping[str, Latency]
    footprint: Mapping[str, Footprint]
    assignment: Assignment
    note: str
    algorithms: tuple[str, ...] = ()
    snr_search: SnrInterval | None = None
    snr_held_out: SnrInterval | None = None
    metrics: Mapping[str, MemberMetric] = field(default_factory=dict)

    @property
    def worst_db(self) -> float:
        """SNR of the worst output; ``inf`` for the float model."""
        return math.inf if self.quality is None else self.quality.worst_db


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Members by ascending latency ratio, the float model last.

    Attributes:
        model_path: The user's file.
        model_sha256: Of that file.
        targets: Where latency was measured.
        members: The float model is always one of them.
        objectives: What the members were compared in, by name; SNR and latency by default.
    """

    model_path: str
    model_sha256: str
    targets: tuple[Target, ...]
    members: tuple[Member, ...]
    objectives: Mapping[str, Goal] = field(default_factory=lambda: DEFAULT_OBJECTIVES.goals)

    @property
    def quality_metric(self) -> str | None:
        """The metric by which members are good where SNR is no objective, else None."""
        if SNR in self.objectives:
            return None
        return next(name for name in self.objectives if name not in (LATENCY, SIZE))

    def best_member_at(self, demand_db: float, target: str | None = None) -> Member:
        """Find the fastest member whose SNR is at least ``demand_db``; the float model meets every demand.

        Args:
            demand_db: The least SNR of the worst output.
            target: Name of the target whose latency counts, by default the first.

        Raises:
            UsageError: The front has no such target.
        """
        name = self._target_name(target)
        return min(
            (member for member in self.members if member.worst_db >= demand_db),
            key=lambda member: member.latency[name].ratio,
        )

    def best_ratio_at(self, demand_db: float, target: str | None = None) -> float:
        """Lowest latency ratio among members with at least ``demand_db``; 1.0 where only the float model meets it.

        Raises:
            UsageError: The front has no such target.
        """
        member = self.best_member_at(demand_db, target)
        return 1.0 if member.id == FLOAT_ID else member.latency[self._target_name(target)].ratio

    def best_members(self, target: str | None = None, *, asked_db: float | None = None) -> dict[str, Member]:
        """The fastest member at each of some demands, by the demand in words.

        They are of SNR or, where that is no objective, of the metric that is one.

        Args:
            target: Name; the first one by default.
            asked_db: The SNR that was demanded; where SNR is an objective, it is the only demand then.

        Raises:
            UsageError: The front has no such target.
        """
        metric = self.quality_metric
        if metric is None:
            demands_db = DEMANDS_DB if asked_db is None else (asked_db,)
            return {f"{demand:g} dB": self.best_member_at(demand, target) for demand in demands_db}
        name = self._target_name(target)
        found = {}
        for drop in _DROPS:
            kept = (member for member in self.members if member.metrics[metric].drop.all.value <= drop)
            demand = f"{metric} worse by {100 * drop:g} %" if drop else f"{metric} no worse"
            found[demand] = min(kept, key=lambda member: member.latency[name].ratio)
        return found

    def _target_name(self, target: str | None) -> str:
        names = [known.name for known in self.targets]
        if target is None:
            return names[0]
        if target not in names:
            raise UsageError(f"target '{target}' is not in this front, it has {', '.join(names)}")
        return target


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Everything that a report of one search needs.

    Attributes:
        front: What is delivered.
        regions: The partition, in topological order.
        evaluations: Every evaluation, in order.
        environment: Machine and versions, as ``runtime.environment`` gives them.
        configuration: What the user asked for, plain values.
        phases: Seconds of each phase, in order.
        notes: Sentences that the user should read.
        ledger: What regions and borders cost; None where the sampler had no model of it.
        seconds_saved: By stopping candidates early, roughly; None where that is unknown.
        n_earlier: Of the evaluations, those of another run, which this one learned from; they come first.
    """

    front: Front
    regions: tuple[Region, ...]
    evaluations: tuple[Evaluation, ...]
    environment: Mapping[str, object]
    configuration: Mapping[str, object]
    phases: Mapping[str, float]
    notes: tuple[str, ...]
    ledger: Ledger | None = None
    seconds_saved: float | None = None
    n_earlier: int = 0
