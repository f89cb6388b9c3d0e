"""The front and the trials as pandas tables, for ``front.csv``, ``trials.csv`` and the Python API."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from autoquant.domain.front import Front, Member
from autoquant.domain.measurement import Evaluation, Failure, Footprint, Latency, Measurement
from autoquant.domain.region import Region, RegionId
from autoquant.domain.scheme import FLOAT

__all__ = ["front_table", "rounds_table", "trials_table"]

_MEMBER_LATENCY = ("ratio", "ratio_low", "ratio_high", "median_ms", "low_ms", "high_ms", "p90_ms", "p99_ms")
_MEMBER_FOOTPRINT = ("opening_ms", "memory_mb")
_TRIAL_LATENCY = ("ratio", "ratio_low", "ratio_high", "median_ms", "n_rounds")


def front_table(front: Front) -> pd.DataFrame:
    """One row per member, in the order of the front.

    Columns: id, path, snr_db, ratio, ratio_low, ratio_high, median_ms, low_ms, high_ms, p90_ms, p99_ms, opening_ms,
    memory_mb, size_bytes, n_quantized_regions, note. With several targets those from ratio to memory_mb are there once
    per target, named like ``ratio[cpu-1t]``.

    Returns:
        ``snr_db`` is that of the worst output; ``inf`` for the float model, which meets every demand.
    """
    names = [target.name for target in front.targets]
    rows = [
        {
            "id": member.id,
            "path": member.path,
            "snr_db": _member_snr(member),
            **_cells(names, member.latency.get, _MEMBER_LATENCY),
            **_cells(names, member.footprint.get, _MEMBER_FOOTPRINT),
            "size_bytes": member.size_bytes,
            "n_quantized_regions": sum(scheme != FLOAT for scheme in member.assignment.values()),
            "note": member.note,
        }
        for member in front.members
    ]
    return pd.DataFrame(rows)


def trials_table(evaluations: Sequence[Evaluation], regions: Sequence[Region] = ()) -> pd.DataFrame:
    """One row per evaluation, in order.

    Columns: number, state (``complete``, ``rejected-early`` or ``failed``), snr_db, n_samples, ratio, ratio_low,
    ratio_high, median_ms, n_rounds (per target as in ``front_table``), digest, reason, and ``scheme[REGION]``: what
    was asked of each region.

    Args:
        evaluations: What the study made.
        regions: Their columns come first, in this order; a region that is only in an assignment follows.

    Returns:
        Numbers that were not measured are NaN, texts that do not apply are empty.
    """
    targets = _target_names(evaluations)
    ids = _region_ids(evaluations, regions)
    columns = ["number", "state", "snr_db", "n_samples", *_names(targets, _TRIAL_LATENCY), "digest", "reason"]
    columns += [f"scheme[{region}]" for region in ids]
    rows = [
        {
            "number": evaluation.trial.number,
            **_outcome_cells(evaluation.outcome, targets),
            **{f"scheme[{region}]": evaluation.trial.assignment.get(region, FLOAT) for region in ids},
        }
        for evaluation in evaluations
    ]
    return pd.DataFrame(rows, columns=columns)


def _member_snr(member: Member) -> float:
    return math.inf if member.quality is None else member.quality.worst_db


def _outcome_cells(outcome: Measurement | Failure, targets: Sequence[str]) -> dict[str, object]:
    if isinstance(outcome, Failure):
        reason = f"{outcome.stage}: {outcome.reason}"
        return {"state": "failed", "digest": "", "reason": reason}
    return {
        "state": "complete" if outcome.is_complete else "rejected-early",
        "snr_db": outcome.quality.worst_db,
        "n_samples": outcome.quality.n_samples,
        **_cells(targets, outcome.latency.get, _TRIAL_LATENCY),
        "digest": outcome.digest,
        "reason": "",
    }


def rounds_table(rounds: Iterable[tuple[int, str, Mapping[str, Sequence[float]], bool]]) -> pd.DataFrame:
    """One row per inference of the last measurement.

    Columns: session (number of the process), target, round, id, ms, is_repeated (all were far slower than usual, so
    that the round was run again and does not count).

    Args:
        rounds: Process, target, seconds of each inference by id, and whether the round does not count.
    """
    rows = [
        (session, target, number, id_, round(value * 1e3, 6), is_repeated)
        for number, (session, target, seconds, is_repeated) in enumerate(rounds)
        for id_, values in seconds.items()
        for value in values
    ]
    return pd.DataFrame(rows, columns=["session", "target", "round", "id", "ms", "is_repeated"])


def _cells(
    targets: Sequence[str], find: Callable[[str], Latency | Footprint | None], fields: Sequence[str]
) -> dict[str, float]:
    cells = [
        math.nan if (value := getattr(found, field, None)) is None else value
        for found in map(find, targets)
        for field in fields
    ]
    return dict(zip(_names(targets, fields), cells, strict=False))


def _names(targets: Sequence[str], fields: Sequence[str]) -> list[str]:
    if len(targets) < 2:
        return list(fields)
    return [f"{field}[{target}]" for target in targets for field in fields]


def _target_names(evaluations: Iterable[Evaluation]) -> list[str]:
    outcomes = (evaluation.outcome for evaluation in evaluations)
    return list(dict.fromkeys(name for found in outcomes if isinstance(found, Measurement) for name in found.latency))


def _region_ids(evaluations: Iterable[Evaluation], regions: Iterable[Region]) -> list[RegionId]:
    asked = (region for evaluation in evaluations for region in evaluation.trial.assignment)
    return list(dict.fromkeys([*(region.id for region in regions), *asked]))
