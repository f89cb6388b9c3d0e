"""What came out of a nightly job, as ``summary.md``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autoquant.domain.front import DEMANDS_DB

__all__ = ["JobRow", "job_summary_markdown"]


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
