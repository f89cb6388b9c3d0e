"""The front and the trials as pandas tables, for ``front.csv``, ``trials.csv`` and the Python API.

pandas is loaded by the first table, which a search makes at its end: loading it takes as long as many a trial.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from autoquant.domain.counted import counted
from autoquant.domain.front import Front, Member
from autoquant.domain.ledger import Estimate, Ledger
from autoquant.domain.measurement import Evaluation, Failure, Footprint, Latency, Measurement, SnrInterval
from autoquant.domain.metric import MemberMetric, PartValues
from autoquant.domain.objective import SIZE
from autoquant.domain.region import Region, RegionId
from autoquant.domain.scheme import FLOAT

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["front_table", "ledger_table", "member_rows", "rounds_table", "trials_table", "unshown"]

_MEMBER_LATENCY = ("ratio", "ratio_low", "ratio_high", "median_ms", "low_ms", "high_ms", "p90_ms", "p99_ms")
_MEMBER_FOOTPRINT = ("opening_ms", "memory_mb")
_TRIAL_LATENCY = ("ratio", "ratio_low", "ratio_high", "median_ms", "n_rounds")


def front_table(front: Front) -> "pd.DataFrame":
    """One row per member, in the order of the front.

    Its columns are in ``SearchResult.front``.

    Returns:
        SNRs are those of the worst output; ``inf`` for the float model.
    """
    names, counted_outputs = [target.name for target in front.targets], _counted_outputs(front)
    rows = [
        {
            "id": member.id,
            "path": member.path,
            "snr_db": member.worst_db,
            **_snr_cells(member),
            **{f"agreement[{output}]": _agreement(member, output) for output in counted_outputs},
            **_metric_cells(member.metrics),
            **_cells(names, member.latency.get, _MEMBER_LATENCY),
            **_cells(names, member.footprint.get, _MEMBER_FOOTPRINT),
            "size_bytes": member.size_bytes,
            "n_quantized_regions": sum(scheme != FLOAT for scheme in member.assignment.values()),
            "note": member.note,
        }
        for member in front.members
    ]
    return _table(rows)


def member_rows(front: Front) -> tuple[list[str], list[list[str]]]:
    """The front on its first target with one metric, in words, for a terminal: headings, then the rows.

    The metric is an objective, or else the first one; sizes are there where they are an objective. The interval of the
    SNR is over held-out samples, if there are any. Of outputs that are no floats it is the one that agrees least.
    """
    target, name, outputs = front.targets[0].name, _shown_metric(front), _counted_outputs(front)
    has_held_out = any(member.snr_held_out for member in front.members)
    has_size = SIZE in front.objectives
    headings = ["id", "SNR dB", *["held out"] * has_held_out, "95 %", *["agree, %"] * bool(outputs)]
    headings += [*([] if name is None else [name, "drop, %"]), "ratio", "95 %", "ms", *["MB"] * has_size, "regions"]
    rows = []
    for member in front.members:
        latency, quality = member.latency[target], member.quality
        row = [member.id, f"{member.worst_db:.1f}"]
        found = member.snr_held_out if has_held_out else member.snr_search
        row += [f"{found.worst_db:.1f}" if found else ""] * has_held_out
        row.append("" if found is None else _interval_text(found))
        row += [f"{100 * min(_agreement(member, output) for output in outputs):.2f}"] if outputs else []
        if name is not None:
            row += [f"{member.metrics[name].value.all.value:.4g}", f"{100 * member.metrics[name].drop.all.value:.2f}"]
        row += [f"{latency.ratio:.3f}", f"{latency.ratio_low:.3f}-{latency.ratio_high:.3f}" if quality else ""]
        n_quantized = sum(scheme != FLOAT for scheme in member.assignment.values())
        row += [f"{latency.median_ms:.3f}", *[f"{member.size_bytes / 1e6:.3f}"] * has_size]
        rows.append([*row, str(n_quantized)])
    return headings, rows


def unshown(front: Front) -> list[str]:
    """Targets and metrics that ``member_rows`` leaves out."""
    shown = _shown_metric(front)
    metrics = [name for name in front.members[-1].metrics if name != shown]
    return [*(target.name for target in front.targets[1:]), *metrics]


def _shown_metric(front: Front) -> str | None:
    known = front.members[-1].metrics
    return next((name for name in front.objectives if name in known), next(iter(known), None))


def _counted_outputs(front: Front) -> list[str]:
    """Those of integers, booleans or strings; none is known of the float model alone."""
    return list(dict.fromkeys(name for member in front.members if member.quality for name in member.quality.agreement))


def _agreement(member: Member, output: str) -> float:
    """Share of equal elements; all are those of the float model itself."""
    return 1.0 if member.quality is None else member.quality.agreement.get(output, math.nan)


def _interval_text(found: SnrInterval) -> str:
    """The 95 % interval, or of how many samples an SNR is where that is not known."""
    low, high = found.low_db, found.high_db
    return counted(found.n_samples, "sample") if low is None or high is None else f"{low:.1f} to {high:.1f}"


def trials_table(evaluations: Sequence[Evaluation], regions: Sequence[Region] = ()) -> "pd.DataFrame":
    """One row per evaluation, in order.

    Its columns are in ``SearchResult.trials``.

    Args:
        evaluations: What the study made.
        regions: Their columns come first, in this order; a region that is only in an assignment follows.

    Returns:
        Numbers that were not measured are NaN, texts that do not apply are empty.
    """
    targets = _target_names(evaluations)
    ids = _region_ids(evaluations, regions)
    columns = ["number", "state", "snr_db", "n_samples", *_names(targets, _TRIAL_LATENCY)]
    columns += ["size_bytes", "digest", "reason"]
    metrics = _metric_names(evaluations)
    columns += [f"drop[{name}]" for name in metrics]
    columns += [f"scheme[{region}]" for region in ids]
    rows = [
        {
            "number": evaluation.trial.number,
            **_outcome_cells(evaluation.outcome, targets),
            **{f"scheme[{region}]": evaluation.trial.assignment.get(region, FLOAT) for region in ids},
        }
        for evaluation in evaluations
    ]
    return _table(rows, columns)


def ledger_table(ledger: Ledger) -> "pd.DataFrame":
    """One row for each region and kind of its operators, in topological order, then one for each border.

    Where two kinds quantize a region alike there is one row, of the first.

    Columns: kind (``all``, ``linear`` or ``dynamic`` operators of a region, or ``border``), region, neighbour (the
    other region of a border), us (change of the latency in microseconds; negative is faster), scheme, snr_db,
    noise_share (0 to 1), see ``domain.ledger``; numbers with ``us_low``, ``us_high`` and so on, the ends of their 90 %
    intervals. With several targets there are ``us[cpu-1t]`` and so on.

    Returns:
        What does not apply is NaN or empty.
    """
    regions = [
        {
            "kind": str(cost.operators),
            "region": cost.region,
            "neighbour": "",
            **_change_cells(cost.change_us),
            "scheme": cost.scheme,
            **_estimate_cells("snr_db", cost.snr_db),
            **_estimate_cells("noise_share", cost.noise_share),
        }
        for cost in ledger.regions
    ]
    borders = [
        {
            "kind": "border",
            "region": cost.regions[0],
            "neighbour": cost.regions[1],
            **_change_cells(cost.change_us),
            "scheme": "",
        }
        for cost in ledger.borders
    ]
    return _table([*regions, *borders])


def _snr_cells(member: Member) -> dict[str, float]:
    cells: dict[str, float] = {}
    for part, found in (("search", member.snr_search), ("held_out", member.snr_held_out)):
        if found is None:
            worst, low, high = (math.inf if member.quality is None else math.nan,) * 3
        else:
            worst, low, high = (math.nan if x is None else x for x in (found.worst_db, found.low_db, found.high_db))
        cells |= {f"snr_db[{part}]": worst, f"snr_db_low[{part}]": low, f"snr_db_high[{part}]": high}
    return cells


def _metric_cells(metrics: Mapping[str, MemberMetric]) -> dict[str, float]:
    cells: dict[str, float] = {}
    for name, found in metrics.items():
        cells |= _part_cells("metric", name, found.value) | _part_cells("drop", name, found.drop)
    return cells


def _part_cells(kind: str, name: str, values: PartValues) -> dict[str, float]:
    cells: dict[str, float] = {}
    for where, value in ((name, values.all), (f"{name},search", values.search), (f"{name},held_out", values.held_out)):
        ends = (value.low, value.high) if value is not None and value.has_interval else (math.nan, math.nan)
        numbers = (math.nan if value is None else value.value, *ends)
        cells |= dict(zip((f"{kind}[{where}]", f"{kind}_low[{where}]", f"{kind}_high[{where}]"), numbers, strict=True))
    return cells


def _outcome_cells(outcome: Measurement | Failure, targets: Sequence[str]) -> dict[str, object]:
    if isinstance(outcome, Failure):
        reason = f"{outcome.stage}: {outcome.reason}"
        return {"state": str(outcome.state), "digest": "", "reason": reason}
    return {
        "state": str(outcome.state),
        "snr_db": outcome.quality.worst_db,
        "n_samples": outcome.quality.n_samples,
        **_cells(targets, outcome.latency.get, _TRIAL_LATENCY),
        "size_bytes": outcome.size_bytes,
        "digest": outcome.digest,
        "reason": "",
        **{f"drop[{name}]": drop for name, drop in outcome.drops.items()},
    }


def rounds_table(rounds: Iterable[tuple[int, str, Mapping[str, Sequence[float]], bool]]) -> "pd.DataFrame":
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
    return _table(rows, ["session", "target", "round", "id", "ms", "is_repeated"])


def _change_cells(change_us: Mapping[str, Estimate]) -> dict[str, float]:
    targets, ends = list(change_us), [(found.value, found.low, found.high) for found in change_us.values()]
    return dict(zip(_names(targets, ("us", "us_low", "us_high")), itertools.chain(*ends), strict=True))


def _estimate_cells(name: str, found: Estimate) -> dict[str, float]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


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


def _metric_names(evaluations: Iterable[Evaluation]) -> list[str]:
    outcomes = (evaluation.outcome for evaluation in evaluations)
    return list(dict.fromkeys(name for found in outcomes if isinstance(found, Measurement) for name in found.drops))


def _region_ids(evaluations: Iterable[Evaluation], regions: Iterable[Region]) -> list[RegionId]:
    asked = (region for evaluation in evaluations for region in evaluation.trial.assignment)
    return list(dict.fromkeys([*(region.id for region in regions), *asked]))


def _table(
    rows: Sequence[Mapping[str, object] | tuple[object, ...]], columns: list[str] | None = None
) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)
