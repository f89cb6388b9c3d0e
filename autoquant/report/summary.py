"""What came out, in words: for the terminal, for the head of the report, for nightly jobs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autoquant.domain.front import FLOAT_ID, Front, Member, RunRecord
from autoquant.domain.ledger import Foresight
from autoquant.domain.measurement import Evaluation, Latency, Measurement, State
from autoquant.domain.objective import DEFAULT_OBJECTIVES, LATENCY, SIZE, SNR, Goal
from autoquant.domain.region import Assignment
from autoquant.domain.scheme import FLOAT
from autoquant.errors import UsageError

__all__ = [
    "DEMANDS_DB",
    "JobRow",
    "best_members",
    "best_member_at",
    "best_ratio_at",
    "evaluations_sentence",
    "foresight_sentence",
    "headline",
    "interval_text",
    "job_summary_markdown",
    "objectives_sentence",
    "quality_metric",
    "ratio_text",
    "run_sentences",
    "schemes_text",
]

DEMANDS_DB = (30, 40, 50)
"""SNR demands at which fronts are compared."""

_HEADLINE_DEMAND_DB = 40.0
_DEMANDS = ("min_snr_db", "max_latency_ratio", "max_size_bytes")
_STATES = {
    State.COMPLETE: "complete",
    State.REJECTED_EARLY: "rejected early",
    State.UNTIMED: "not timed",
    State.FAILED: "failed",
}
_LEAST_SAVED_S = 0.05
_DROPS = (0.0, 0.005, 0.01)
"""Demands of a metric where it takes the place of SNR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One model of a nightly job on one target.

    Attributes:
        model: Its name in the job.
        target: Its name, like ``cpu-1t``.
        best_ratio: By demand in dB, 1.0 where only float meets it; None where there is no result.
        previous: The same of the last run here that has a result and was not cut short by the user; None without one.
        previous_date: Of that run.
        n_evaluations: Made in this run.
        seconds: Wall-clock of the search.
        error: Why there is no result, one sentence.
        missed: A sentence for each stated demand that was missed.
        is_ended: Whether the user ended the search.
    """

    model: str
    target: str
    best_ratio: Mapping[int, float | None]
    previous: Mapping[int, float | None] | None
    n_evaluations: int
    seconds: float
    error: str | None
    missed: tuple[str, ...]
    previous_date: str | None = None
    is_ended: bool = False


def best_member_at(front: Front, demand_db: float, target: str | None = None) -> Member:
    """Find the fastest member whose SNR is at least ``demand_db``; the float model meets every demand.

    Args:
        front: With the float model among its members.
        demand_db: The least SNR of the worst output.
        target: Name of the target whose latency counts, by default the first.

    Raises:
        UsageError: The front has no such target.
    """
    name = _target_name(front, target)
    return min(
        (member for member in front.members if member.quality is None or member.quality.worst_db >= demand_db),
        key=lambda member: member.latency[name].ratio,
    )


def best_ratio_at(front: Front, demand_db: float, target: str | None = None) -> float:
    """Lowest latency ratio among members with at least ``demand_db``; 1.0 where only the float model meets it.

    Raises:
        UsageError: The front has no such target.
    """
    member = best_member_at(front, demand_db, target)
    return 1.0 if member.id == FLOAT_ID else member.latency[_target_name(front, target)].ratio


def best_members(front: Front, target: str | None = None) -> dict[str, Member]:
    """The fastest member at each of some demands, by the demand in words.

    They are of SNR or, where that is no objective, of the metric that is one.

    Raises:
        UsageError: The front has no such target.
    """
    metric = quality_metric(front)
    if metric is None:
        return {f"{demand} dB": best_member_at(front, demand, target) for demand in DEMANDS_DB}
    name = _target_name(front, target)
    found = {}
    for drop in _DROPS:
        kept = (member for member in front.members if member.metrics[metric].drop.all.value <= drop)
        demand = f"{metric} worse by {100 * drop:g} %" if drop else f"{metric} no worse"
        found[demand] = min(kept, key=lambda member: member.latency[name].ratio)
    return found


def quality_metric(front: Front) -> str | None:
    """The metric by which members are good where SNR is no objective, else None."""
    if SNR in front.objectives:
        return None
    return next(name for name in front.objectives if name not in (LATENCY, SIZE))


def objectives_sentence(front: Front) -> str:
    """What the members were compared in, like ``Objectives: higher snr, lower latency``."""
    words = {Goal.MAXIMIZE: "higher", Goal.MINIMIZE: "lower"}
    return f"Objectives: {', '.join(f'{words[goal]} {name}' for name, goal in front.objectives.items())}."


def headline(record: RunRecord) -> str:
    """One sentence: the fastest member that keeps the demand.

    That is ``max_drop`` of the configuration, else ``min_snr_db``, else 40 dB; where SNR is no objective and nothing is
    demanded, it is the fastest member of all.
    """
    front = record.front
    if len(front.members) == 1:
        return _nothing_pays(record)
    target = front.targets[0].name
    fastest = min(front.members, key=lambda member: member.latency[target].ratio)
    if fastest.id == FLOAT_ID or fastest.quality is None:
        return f"No member is faster than float on {target}."
    drops = record.configuration.get("max_drop")
    if isinstance(drops, Mapping) and drops:
        return _fastest_within(record, fastest, drops)
    asked, metric = record.configuration.get("min_snr_db"), quality_metric(front)
    if metric is not None and asked is None:
        return _fastest(record, fastest, metric)
    demand = float(asked) if isinstance(asked, int | float) else _HEADLINE_DEMAND_DB
    member = best_member_at(front, demand)
    start = f"Fastest model that keeps {demand:g} dB"
    if member.id == FLOAT_ID:
        member = fastest
        start = (
            f"Nothing faster than float keeps {demand:g} dB; the fastest model keeps {fastest.quality.worst_db:.1f} dB"
        )
    where = f" on {target}" if len(front.targets) > 1 else ""
    return f"{start}: {_ratio_phrase(member.latency[target])}{where}, {_regions_phrase(member, record)}."


def run_sentences(record: RunRecord) -> list[str]:
    """What a search found, for the terminal: the best ratio at each demand, then what became of the evaluations.

    A largest drop that was demanded comes first, and objectives that are not SNR and latency; how well evaluations were
    predicted comes last, where a model did.
    """
    usual = record.front.objectives == DEFAULT_OBJECTIVES.goals
    objectives = [] if usual else [objectives_sentence(record.front)]
    if len(record.front.members) == 1:
        return [*objectives, _nothing_pays(record), *_evaluations_lines(record)]
    several = len(record.front.targets) > 1
    lines = [
        (f"{target.name}, at" if several else "At") + f" {demand}: {_demand_phrase(record, member, target.name)}."
        for target in record.front.targets
        for demand, member in best_members(record.front, target.name).items()
    ]
    asked = [headline(record)] if record.configuration.get("max_drop") else []
    return [*objectives, *asked, *lines, *_evaluations_lines(record)]


def evaluations_sentence(evaluations: Sequence[Evaluation]) -> str:
    """How many evaluations there are and what became of them."""
    states = Counter(evaluation.outcome.state for evaluation in evaluations)
    parts = [f"{states[state]} {words}" for state, words in _STATES.items() if states[state]]
    noun = "evaluation" if len(evaluations) == 1 else "evaluations"
    return f"{len(evaluations)} {noun}: {', '.join(parts)}." if parts else "No evaluations."


def foresight_sentence(found: Foresight) -> str:
    """How well recent evaluations were predicted, and who proposed in the end."""
    evaluations = "evaluation" if found.n_recent == 1 else f"{found.n_recent} evaluations"
    share = f"{100 * found.generic_share:.0f} %" if found.generic_share else "none"
    inside = f"{100 * found.snr_share:.0f} % had their SNR and {100 * found.ratio_share:.0f} % their latency ratio"
    return (
        f"Of the last {evaluations} {inside} within the 90 % interval that was predicted; {share} of the proposals were"
        " left to a generic sampler in the end."
    )


def ratio_text(latency: Latency, n_digits: int = 2) -> str:
    """The ratio, like ``0.52``."""
    return f"{latency.ratio:.{n_digits}f}"


def interval_text(latency: Latency, n_digits: int = 2) -> str:
    """The 95 % interval of the ratio, like ``0.51 to 0.53``."""
    return f"{latency.ratio_low:.{n_digits}f} to {latency.ratio_high:.{n_digits}f}"


def schemes_text(assignment: Assignment, n_regions: int) -> str:
    """Regions per scheme, the commonest first, like ``u8s8 in 31, u16s8 in 2 of 40 regions``."""
    counts = Counter(scheme for scheme in assignment.values() if scheme != FLOAT)
    if not counts:
        return "float in all regions"
    parts = [f"{scheme} in {n}" for scheme, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    return f"{', '.join(parts)} of {n_regions} region{'' if n_regions == 1 else 's'}"


def job_summary_markdown(
    rows: Sequence[JobRow],
    *,
    job: str,
    date: str,
    previous_date: str | None = None,
    job_changed_since: str | None = None,
    environment_changes: Sequence[str] = (),
) -> str:
    """Render ``summary.md`` of a nightly job.

    Args:
        rows: One per model and target.
        job: Name of the job.
        date: Day of this run.
        previous_date: Day of the latest run that ``JobRow.previous`` comes from.
        job_changed_since: Day of the latest of these runs whose job file was another one.
        environment_changes: Why the latest run was measured in another environment, so that no change can be told.
    """
    against = _against(rows, previous_date, job_changed_since, environment_changes)
    table = [_job_row(row, is_comparable=not environment_changes) for row in rows]
    return "\n".join([*_job_head(rows, job, date, against), *table, *_job_remarks(rows), ""])


def _target_name(front: Front, target: str | None) -> str:
    names = [known.name for known in front.targets]
    if target is None:
        return names[0]
    if target not in names:
        raise UsageError(f"target '{target}' is not in this front, it has {', '.join(names)}")
    return target


def _ratio_phrase(latency: Latency) -> str:
    return f"{ratio_text(latency)} of float's latency ({interval_text(latency)})"


def _fastest(record: RunRecord, member: Member, metric: str) -> str:
    target = record.front.targets[0].name
    drop = 100 * member.metrics[metric].drop.all.value
    return (
        f"Fastest model: {_ratio_phrase(member.latency[target])},"
        f" {metric} is {'better' if drop < 0 else 'worse'} by {abs(drop):.3g} %,"
        f" {_regions_phrase(member, record)}."
    )


def _fastest_within(record: RunRecord, member: Member, drops: Mapping[str, float]) -> str:
    """Of the members, which all keep the demand."""
    target = record.front.targets[0].name
    return (
        f"Fastest model with {_drops_phrase(drops)} at most: {_ratio_phrase(member.latency[target])},"
        f" {_regions_phrase(member, record)}."
    )


def _drops_phrase(drops: Mapping[str, float]) -> str:
    return ", ".join(f"{name} worse by {100 * drop:g} %" for name, drop in drops.items())


def _regions_phrase(member: Member, record: RunRecord) -> str:
    return schemes_text(member.assignment, len(record.regions))


def _demand_phrase(record: RunRecord, member: Member, target: str) -> str:
    if member.quality is None:
        return "nothing is shown to be faster than float"
    snr = member.quality.worst_db
    return f"{_ratio_phrase(member.latency[target])}, {member.id} with {snr:.1f} dB, {_regions_phrase(member, record)}"


def _nothing_pays(record: RunRecord) -> str:
    if any(each.is_quantized and isinstance(each.outcome, Measurement) for each in record.evaluations):
        drops = record.configuration.get("max_drop")
        if isinstance(drops, Mapping) and drops:
            return f"Nothing faster than float was found with {_drops_phrase(drops)} at most."
        if any(record.configuration.get(demand) is not None for demand in _DEMANDS):
            return "Nothing better than float was found that keeps what is demanded."
        return "Nothing is shown to be better than float, which alone is on the front."
    if record.regions:
        return "No quantized candidate was measured: the float model alone is on the front."
    return "Nothing could be quantized: the float model alone is on the front."


def _evaluations_lines(record: RunRecord) -> list[str]:
    lines = [evaluations_sentence(record.evaluations)] if record.evaluations else []
    if record.seconds_saved and record.seconds_saved >= _LEAST_SAVED_S:
        lines.append(f"Stopping candidates early saved about {record.seconds_saved:.1f} s.")
    foresight = None if record.ledger is None else record.ledger.foresight
    return lines if foresight is None else [*lines, foresight_sentence(foresight)]


def _against(
    rows: Sequence[JobRow], previous_date: str | None, job_changed_since: str | None, environment_changes: Sequence[str]
) -> str:
    if previous_date is None:
        return ""
    if environment_changes:
        changes = _one_line("; ".join(environment_changes))
        return f"; {previous_date} was measured in another environment ({changes}), so that no change is told"
    others = [row for row in rows if row.error is None and row.previous_date not in (None, previous_date)]
    of_others = dict.fromkeys(f", of {_one_line(row.model)} against {row.previous_date}" for row in others)
    job = "" if job_changed_since is None else f"; the job file has changed since {job_changed_since}"
    return f"; in brackets the change against {previous_date}{''.join(of_others)}{job}"


def _job_head(rows: Sequence[JobRow], job: str, date: str, against: str) -> list[str]:
    demands = ", ".join(f"{demand}" for demand in DEMANDS_DB[:-1]) + f" and {DEMANDS_DB[-1]} dB"
    return [
        f"# {_one_line(job)}, {date}",
        "",
        f"{_job_count(rows)} Latency ratio against the float model, lower is better, of the fastest model that keeps "
        f"{demands} of SNR{against}.",
        "",
        f"| model | target | {' | '.join(f'{demand} dB' for demand in DEMANDS_DB)} | evaluations | seconds | result |",
        f"|:--|:--|{'--:|' * len(DEMANDS_DB)}--:|--:|:--|",
    ]


def _job_count(rows: Sequence[JobRow]) -> str:
    models = {row.model for row in rows}
    failed = {row.model for row in rows if row.error is not None}
    missed = {row.model for row in rows if row.missed} - failed
    s = "" if len(models) == 1 else "s"
    return f"{len(models)} model{s}, {len(failed)} failed, {len(missed)} missed a demand."


def _job_row(row: JobRow, *, is_comparable: bool) -> str:
    ratios = [_ratio_cell(row, demand, is_comparable=is_comparable) for demand in DEMANDS_DB]
    result = "failed" if row.error is not None else "missed" if row.missed else "ok"
    cells = [_cell(row.model), _cell(row.target), *ratios, str(row.n_evaluations), f"{row.seconds:.0f}", result]
    return f"| {' | '.join(cells)} |"


def _ratio_cell(row: JobRow, demand: int, *, is_comparable: bool) -> str:
    ratio = row.best_ratio.get(demand)
    if ratio is None:
        return "-"
    if not is_comparable:
        return f"{ratio:.3f}"
    before = None if row.previous is None else row.previous.get(demand)
    if before is None:
        return f"{ratio:.3f} (new)"
    change = round(round(ratio, 3) - round(before, 3), 3)
    return f"{ratio:.3f} ({change:+.3f})" if change else f"{ratio:.3f} (0)"


def _job_remarks(rows: Sequence[JobRow]) -> Iterator[str]:
    failed = [f"- {_one_line(row.model)}: {_one_line(row.error)}" for row in rows if row.error is not None]
    missed = [f"- {_one_line(row.model)}: {_one_line(sentence)}" for row in rows for sentence in row.missed]
    for title, lines in (("Failed", failed), ("Missed demands", missed)):
        if lines:
            yield from ("", f"## {title}", "", *dict.fromkeys(lines))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _one_line(text).replace("|", r"\|")
