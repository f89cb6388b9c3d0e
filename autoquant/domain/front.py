"""What a search delivers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoquant.domain.ledger import Ledger
from autoquant.domain.measurement import Evaluation, Footprint, Latency, Quality, SnrInterval
from autoquant.domain.metric import MemberMetric
from autoquant.domain.objective import DEFAULT_OBJECTIVES, Goal
from autoquant.domain.region import Assignment, Region
from autoquant.domain.target import Target

__all__ = ["FLOAT_ID", "Front", "Member", "RunRecord"]

FLOAT_ID = "float"
"""Id of the member that is the user's own model."""


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
