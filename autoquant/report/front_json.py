"""The front as ``front.json``, schema version 1."""

import json
import math
from dataclasses import fields
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autoquant.domain.front import FLOAT_ID, Front, Member
from autoquant.domain.measurement import Footprint, Latency, Quality, SnrInterval
from autoquant.domain.metric import MemberMetric, MetricValue, PartValues
from autoquant.domain.objective import DEFAULT_OBJECTIVES, SNR_LIMIT_DB, Goal, clamped_db
from autoquant.domain.region import RegionId
from autoquant.domain.target import Target
from autoquant.errors import OutputError, UsageError

__all__ = ["front_from_json", "front_json"]

_VERSION = 1


def front_json(front: Front) -> str:
    """Render ``front.json``.

    An SNR is clamped to plus or minus ``SNR_LIMIT_DB``, as JSON cannot spell infinity: equal outputs are 200.0 dB,
    and so are nearly equal ones. The float model's ``snr_db.worst`` is null. A member with labels (integers,
    booleans, strings) has ``agreement`` beside ``snr_db``. In ``snr_db_search``, ``snr_db_held_out`` and ``metrics``
    what is not known is null. ``objectives`` says what the members were compared in: ``latency`` (on each target),
    ``size``, ``snr`` and metrics by name, to ``minimize`` or ``maximize``.

    Args:
        front: What is delivered.

    Returns:
        Indented ASCII JSON that ends with a newline; equal fronts give equal text.
    """
    document = {
        "schema_version": _VERSION,
        "model": {"path": front.model_path, "sha256": front.model_sha256},
        "targets": [
            {
                "name": target.name,
                "ep": target.ep,
                "options": dict(target.options),
                "threads": target.threads,
                "batch": target.batch,
                "streams": target.streams,
                "affinity": list(target.affinity),
            }
            for target in front.targets
        ],
        "objectives": dict(front.objectives),
        "members": [_member_document(member) for member in front.members],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def front_from_json(text: str) -> Front:
    """Read what ``front_json`` wrote.

    Unknown keys are left aside. The file does not say ``n_samples``, which is 0 in the result. Files without
    ``objectives`` are of SNR and latency.

    Raises:
        OutputError: The text is no ``front.json`` of schema version 1.
    """
    try:
        _check_version(_VersionDocument.model_validate_json(text))
        document = _FrontDocument.model_validate_json(text)
    except ValidationError as error:
        raise OutputError(_sentence(error)) from error
    _check(document)
    try:
        targets = tuple(_read_target(target) for target in document.targets)
    except UsageError as error:
        raise OutputError(f"front.json, targets: {error}; write it again with 'autoquant search'") from error
    return Front(
        model_path=document.model.path,
        model_sha256=document.model.sha256,
        targets=targets,
        members=tuple(_read_member(member) for member in document.members),
        objectives=document.objectives,
    )


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, extra="ignore")


class _VersionDocument(_Part):
    schema_version: int


class _ModelDocument(_Part):
    path: str
    sha256: str


class _TargetDocument(_Part):
    name: str
    ep: str
    options: dict[str, str]
    threads: int
    batch: int = 1
    streams: int = 1
    affinity: list[int] = []


class _SnrDocument(_Part):
    worst: float | None
    per_output: dict[str, float]


class _LatencyDocument(_Part):
    median_ms: float
    low_ms: float
    high_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    n_rounds: int = 0
    n_sessions: int = 0
    p90_ms: float | None = None
    p99_ms: float | None = None


class _FootprintDocument(_Part):
    opening_ms: float
    memory_mb: float | None


class _IntervalDocument(_Part):
    worst: float
    low: float | None
    high: float | None
    n_samples: int

    def read(self) -> SnrInterval:
        low, high = (None if end is None else _unclamped(end) for end in (self.low, self.high))
        return SnrInterval(worst_db=_unclamped(self.worst), n_samples=self.n_samples, low_db=low, high_db=high)


class _ValueDocument(_Part):
    value: float
    low: float | None
    high: float | None
    n_samples: int

    def read(self) -> MetricValue:
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return MetricValue(value=self.value, n_samples=self.n_samples, low=low, high=high)


class _PartsDocument(_Part):
    all: _ValueDocument
    search: _ValueDocument
    held_out: _ValueDocument | None

    def read(self) -> PartValues:
        held_out = None if self.held_out is None else self.held_out.read()
        return PartValues(all=self.all.read(), search=self.search.read(), held_out=held_out)


class _MetricDocument(_PartsDocument):
    drop: _PartsDocument


class _MemberDocument(_Part):
    id: str
    path: str
    sha256: str
    size_bytes: int
    snr_db: _SnrDocument
    agreement: dict[str, float] = {}
    latency: dict[str, _LatencyDocument]
    session: dict[str, _FootprintDocument] = {}
    assignment: dict[str, str]
    note: str
    algorithms: list[str] = []
    snr_db_search: _IntervalDocument | None = None
    snr_db_held_out: _IntervalDocument | None = None
    metrics: dict[str, _MetricDocument] = {}


class _FrontDocument(_Part):
    model: _ModelDocument
    targets: list[_TargetDocument]
    objectives: dict[str, Annotated[Goal, Field(strict=False)]] = DEFAULT_OBJECTIVES.goals
    members: list[_MemberDocument]


def _member_document(member: Member) -> dict[str, object]:
    quality = member.quality
    document: dict[str, object] = {
        "id": member.id,
        "path": member.path,
        "sha256": member.sha256,
        "size_bytes": member.size_bytes,
        "snr_db": {
            "worst": None if quality is None else clamped_db(quality.worst_db),
            "per_output": {}
            if quality is None
            else {name: clamped_db(snr) for name, snr in quality.per_output.items()},
        },
        "latency": {target: _plain(latency) for target, latency in member.latency.items()},
        "assignment": dict(sorted(member.assignment.items())),
        "note": member.note,
        "algorithms": list(member.algorithms),
        "session": {target: _plain(footprint) for target, footprint in member.footprint.items()},
        "snr_db_search": _interval(member.snr_search),
        "snr_db_held_out": _interval(member.snr_held_out),
        "metrics": {
            name: {**_parts(found.value), "drop": _parts(found.drop)} for name, found in member.metrics.items()
        },
    }
    if quality is not None and quality.agreement:
        document["agreement"] = dict(quality.agreement)
    return document


def _interval(found: SnrInterval | None) -> dict[str, object] | None:
    if found is None:
        return None
    low, high = (None if end is None else clamped_db(end) for end in (found.low_db, found.high_db))
    return {"worst": clamped_db(found.worst_db), "low": low, "high": high, "n_samples": found.n_samples}


def _parts(values: PartValues) -> dict[str, object]:
    parts = {"all": values.all, "search": values.search, "held_out": values.held_out}
    return {part: None if value is None else _value(value) for part, value in parts.items()}


def _value(found: MetricValue) -> dict[str, object]:
    low, high = (end if math.isfinite(end) else None for end in (found.low, found.high))
    return {"value": found.value, "low": low, "high": high, "n_samples": found.n_samples}


def _plain(value: Latency | Footprint) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _unclamped(snr_db: float) -> float:
    return snr_db if abs(snr_db) < SNR_LIMIT_DB else math.copysign(math.inf, snr_db)


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    what = first["msg"][:1].lower() + first["msg"][1:]
    sentence = f"front.json{', ' if where else ''}{where}: {what}; write it again with 'autoquant search'"
    return " ".join(sentence.split())


def _check_version(document: _VersionDocument) -> None:
    if document.schema_version != _VERSION:
        raise OutputError(
            f"front.json has schema_version {document.schema_version}, this version of autoquant reads {_VERSION}"
        )


def _check(document: _FrontDocument) -> None:
    if not document.targets:
        raise OutputError("front.json, targets: there is none; write it again with 'autoquant search'")
    ids = [member.id for member in document.members]
    if len(set(ids)) < len(ids):
        raise OutputError("front.json, members: an id is there twice; write it again with 'autoquant search'")
    if FLOAT_ID not in ids:
        raise OutputError(
            f"front.json, members: the member '{FLOAT_ID}' is missing; write it again with 'autoquant search'"
        )
    for target in document.targets:
        _check_target(target, document.members)


def _check_target(target: _TargetDocument, members: list[_MemberDocument]) -> None:
    for member in members:
        if target.name not in member.latency:
            raise OutputError(f"front.json, member '{member.id}': there is no latency for target '{target.name}'")


def _read_target(target: _TargetDocument) -> Target:
    return Target(
        target.ep, target.threads, target.options, target.batch, target.streams, affinity=tuple(target.affinity)
    )


def _read_member(member: _MemberDocument) -> Member:
    return Member(
        id=member.id,
        path=member.path,
        sha256=member.sha256,
        size_bytes=member.size_bytes,
        quality=_read_quality(member),
        latency={target: Latency(**found.model_dump()) for target, found in member.latency.items()},
        footprint={target: Footprint(**found.model_dump()) for target, found in member.session.items()},
        assignment={RegionId(region): scheme for region, scheme in member.assignment.items()},
        note=member.note,
        algorithms=tuple(member.algorithms),
        snr_search=None if member.snr_db_search is None else member.snr_db_search.read(),
        snr_held_out=None if member.snr_db_held_out is None else member.snr_db_held_out.read(),
        metrics={
            name: MemberMetric(value=found.read(), drop=found.drop.read()) for name, found in member.metrics.items()
        },
    )


def _read_quality(member: _MemberDocument) -> Quality | None:
    if member.snr_db.worst is None:
        return None
    return Quality(
        per_output={name: _unclamped(snr) for name, snr in member.snr_db.per_output.items()},
        agreement=member.agreement,
        n_samples=0,
    )
