"""Small fronts and run records, as a search would hand them to the report."""

from collections.abc import Iterable, Mapping

from autoquant.domain.front import FLOAT_ID, Front, Member, RunRecord
from autoquant.domain.ledger import BorderCost, Estimate, Foresight, Ledger, RegionCost, Way
from autoquant.domain.measurement import (
    Evaluation,
    Failure,
    Footprint,
    Latency,
    Measurement,
    Quality,
    SnrInterval,
    State,
    Trial,
)
from autoquant.domain.metric import MemberMetric, MetricValue, PartValues
from autoquant.domain.region import NodeName, Region, RegionId, TensorName
from autoquant.domain.target import Target

__all__ = [
    "a_border_cost",
    "a_failure",
    "a_float_member",
    "a_front",
    "a_foresight",
    "a_latency",
    "a_ledger",
    "a_measured",
    "a_member",
    "a_metric",
    "a_record",
    "a_region",
    "a_region_cost",
]


def a_latency(ratio: float = 0.5, *, spread: float = 0.01, float_ms: float = 10.0) -> Latency:
    low, high = ratio - spread, ratio + spread
    return Latency(
        median_ms=float_ms * ratio,
        low_ms=float_ms * low,
        high_ms=float_ms * high,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        n_rounds=31,
        n_sessions=3,
        p90_ms=float_ms * ratio * 1.1,
        p99_ms=float_ms * ratio * 1.3,
    )


def a_member(
    id: str = "m1",  # noqa: A002 - the field's name
    *,
    ratio: float = 0.5,
    snr_db: float = 42.0,
    assignment: Mapping[str, str] | None = None,
    targets: tuple[Target, ...] = (Target(),),
    note: str = "",
    drops: Mapping[str, float] | None = None,
) -> Member:
    schemes = {"r0": "u8s8", "r1": "u8s8"} if assignment is None else assignment
    return Member(
        id=id,
        path=f"models/{id}.onnx",
        sha256="ab" * 32,
        size_bytes=2_500_000,
        quality=Quality(per_output={"logits": snr_db}, agreement={}, n_samples=64),
        latency={target.name: a_latency(ratio) for target in targets},
        footprint={target.name: Footprint(opening_ms=25.0, memory_mb=12.5) for target in targets},
        assignment={RegionId(region): scheme for region, scheme in schemes.items()},
        note=note,
        snr_search=SnrInterval(worst_db=snr_db + 1, n_samples=32, low_db=snr_db, high_db=snr_db + 2),
        snr_held_out=SnrInterval(worst_db=snr_db - 1, n_samples=32, low_db=snr_db - 2, high_db=snr_db),
        metrics={name: a_metric(0.9, drop) for name, drop in (drops or {}).items()},
    )


def a_metric(reference: float, drop: float) -> MemberMetric:
    """Of a member that drops by so much over all samples, by a bit less on those of the search."""
    return MemberMetric(value=_parts(reference - drop, -0.01), drop=_parts(drop, 0.01))


def _parts(value: float, held_out: float) -> PartValues:
    def near(number: float) -> MetricValue:
        return MetricValue(value=number, low=number - 0.02, high=number + 0.02, n_samples=32)

    both = MetricValue(value=value, n_samples=64)
    return PartValues(all=both, search=near(value - held_out), held_out=near(value + held_out))


def a_float_member(targets: tuple[Target, ...] = (Target(),), metrics: Iterable[str] = ()) -> Member:
    return Member(
        id=FLOAT_ID,
        path="models/float.onnx",
        sha256="cd" * 32,
        size_bytes=10_000_000,
        quality=None,
        latency={target.name: a_latency(1.0, spread=0.0) for target in targets},
        footprint={target.name: Footprint(opening_ms=20.0, memory_mb=11.0) for target in targets},
        assignment={},
        note="",
        metrics={name: a_metric(0.9, 0.0) for name in metrics},
    )


def a_front(*members: Member, targets: tuple[Target, ...] = (Target(),)) -> Front:
    """The given members and the float model."""
    return Front(
        model_path="data/model.onnx",
        model_sha256="ef" * 32,
        targets=targets,
        members=(*members, a_float_member(targets, dict.fromkeys(n for m in members for n in m.metrics))),
    )


def a_region(id: str = "r0", *, work: float = 0.25, op_types: tuple[str, ...] = ("Conv", "Relu")) -> Region:  # noqa: A002
    return Region(
        id=RegionId(id),
        nodes=tuple(NodeName(f"{id}/{i}") for i in range(len(op_types))),
        inputs=(TensorName(f"{id}/in"),),
        outputs=(TensorName(f"{id}/out"),),
        pattern="0" * 8,
        op_types=op_types,
        work=work,
    )


def a_measured(
    number: int = 0,
    *,
    ratio: float | None = 0.6,
    snr_db: float = 35.0,
    is_complete: bool = True,
    assignment: Mapping[str, str] | None = None,
    target: str = "cpu-1t",
    size_bytes: int = 3_000_000,
    drops: Mapping[str, float] | None = None,
) -> Evaluation:
    """An evaluation with numbers; without a latency where ``ratio`` is None."""
    schemes = {RegionId(region): scheme for region, scheme in (assignment or {"r0": "u8s8"}).items()}
    timed = State.UNTIMED if ratio is None else State.COMPLETE
    state = timed if is_complete else State.REJECTED_EARLY
    measurement = Measurement(
        quality=Quality(per_output={"logits": snr_db}, agreement={}, n_samples=64 if is_complete else 4),
        latency={} if ratio is None else {target: a_latency(ratio)},
        digest=f"digest{number}",
        effective=schemes,
        state=state,
        size_bytes=size_bytes,
        drops=drops or {},
    )
    return Evaluation(trial=Trial(number=number, assignment=schemes), outcome=measurement)


def a_failure(number: int = 0, *, stage: str = "build", reason: str = "no range for 'x'") -> Evaluation:
    trial = Trial(number=number, assignment={RegionId("r0"): "u8s8"})
    return Evaluation(trial=trial, outcome=Failure(stage=stage, reason=reason))


def an_estimate(value: float, spread: float = 2.0) -> Estimate:
    return Estimate(value, value - spread, value + spread)


def a_region_cost(
    region: str = "r0",
    *,
    operators: Way = Way.ALL,
    change_us: float = -120.0,
    snr_db: float = 45.0,
    noise_share: float = 0.25,
    targets: tuple[Target, ...] = (Target(),),
) -> RegionCost:
    return RegionCost(
        region=RegionId(region),
        operators=operators,
        change_us={target.name: an_estimate(change_us) for target in targets},
        scheme="u8s8",
        snr_db=an_estimate(snr_db),
        noise_share=an_estimate(noise_share, 0.05),
    )


def a_border_cost(
    first: str = "r0", second: str = "r1", *, change_us: float = 15.0, targets: tuple[Target, ...] = (Target(),)
) -> BorderCost:
    change = {target.name: an_estimate(change_us) for target in targets}
    return BorderCost(regions=(RegionId(first), RegionId(second)), change_us=change)


def a_foresight(n_recent: int = 60, generic_share: float = 0.0) -> Foresight:
    return Foresight(n_recent=n_recent, snr_share=0.92, ratio_share=0.88, generic_share=generic_share)


def a_ledger(
    regions: tuple[RegionCost, ...] = (a_region_cost("r0"), a_region_cost("r1", operators=Way.LINEAR)),
    borders: tuple[BorderCost, ...] = (a_border_cost(),),
    foresight: Foresight | None = a_foresight(),  # noqa: B008 - frozen
) -> Ledger:
    return Ledger(regions=regions, borders=borders, snr_stretch=1.3, latency_stretch=0.9, foresight=foresight)


def a_record(
    front: Front | None = None,
    *,
    evaluations: tuple[Evaluation, ...] = (a_measured(0), a_measured(1, is_complete=False), a_failure(2)),
    regions: tuple[Region, ...] = (a_region("r0"), a_region("r1"), a_region("r2", op_types=("MatMul", "Add", "Add"))),
    configuration: Mapping[str, object] | None = None,
    notes: tuple[str, ...] = (),
    ledger: Ledger | None = None,
) -> RunRecord:
    return RunRecord(
        front=a_front(a_member()) if front is None else front,
        regions=regions,
        evaluations=evaluations,
        environment={"cpu": "Imaginary 9000", "versions": {"onnxruntime": "1.30"}, "cpu_flags": []},
        configuration={"seed": 7} if configuration is None else configuration,
        phases={"prepare": 0.5, "calibrate": 1.5, "study": 8.0},
        notes=notes,
        ledger=ledger,
    )
