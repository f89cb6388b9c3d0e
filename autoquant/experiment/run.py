"""Searches every model of a job and writes its reports."""

import os
import re
import shutil
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from pathlib import Path

from autoquant.api.folder import write_texts, writing
from autoquant.api.result import SearchResult
from autoquant.api.search import search
from autoquant.api.sentences import ENDED_BY_USER, MEASUREMENT_ENDED_BY_USER, failure_sentences
from autoquant.domain.counted import counted
from autoquant.domain.front import DEMANDS_DB, Front, RunRecord
from autoquant.domain.measurement import Measurement
from autoquant.domain.reason import one_line
from autoquant.errors import AutoquantError, OutputError
from autoquant.experiment.job import Job, ModelSearch, read_job
from autoquant.experiment.summary import JobSummary, read_summary
from autoquant.report.job_report import JobRow
from autoquant.runtime.environment import describe_environment, differences

__all__ = ["JobOutcome", "run_job"]

_RUNS = "_runs"
_SMOKE = "smoke"
_SMOKE_SECONDS = 20.0
_SMOKE_TRIALS = 3
Ratios = Mapping[int, float | None]
_NO_RATIOS: Ratios = dict.fromkeys(DEMANDS_DB)
Rows = tuple[JobRow, ...]
Yardsticks = Mapping[tuple[str, str], tuple[str, Ratios]]
_ZOO_ADVICE = "make it: python -m experiments.zoo"
_FILE_ADVICE = "give the path of an .onnx model"


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """A finished job.

    Attributes:
        summary_path: Where ``summary.md`` is.
        is_missed: Whether a model failed or missed a demand; in a smoke run whether one that is there failed.
    """

    summary_path: Path
    is_missed: bool


def run_job(file: Path, *, smoke: bool, reports: Path, on_line: Callable[[str], None]) -> JobOutcome:
    """Search every model of a job file; one that fails does not stop the others.

    ``reports/<job>/<date>`` gets ``summary.md``, ``summary.json`` and the front of each model, and
    ``reports/_runs/<job>/<date>/<model>`` the runs themselves. The summary is written after each model; Ctrl-C ends the
    job with one of what was done.

    Args:
        file: The job file.
        smoke: A few trials a model, and demands are not judged.
        reports: Folder of all reports.
        on_line: Told how each model went.

    Raises:
        UsageError: The file is no valid job.
        OutputError: The reports cannot be written.
    """
    job = read_job(file)
    environment = describe_environment()
    earlier = _earlier(reports / job.name, on_line, smoke=smoke)
    before = _yardsticks(job, [run for run in earlier if not differences(run.environment, environment)])
    folder = _new_folder(reports / job.name, reports / _RUNS / job.name, smoke=smoke)
    runs = reports / _RUNS / job.name / folder.name
    rows: list[JobRow] = []
    summary = _head(job, folder.name, environment, earlier, {date for date, _ in before.values()})
    for n_done, found in enumerate(_rows(job, folder, runs, before, smoke=smoke), start=1):
        rows += found
        waiting = (_waiting(asked, before, "it was not searched yet") for asked in job.searches[n_done:])
        _write(replace(summary, rows=(*rows, *chain.from_iterable(waiting))), folder)
        for line in dict.fromkeys(map(_line, found)):
            on_line(line)
    absent = {asked.name for asked in job.searches if smoke and asked.is_absent}
    is_missed = any(row.missed or (row.error is not None and row.model not in absent) for row in rows)
    return JobOutcome(folder / "summary.md", is_missed)


def _head(
    job: Job, date: str, environment: Mapping[str, object], earlier: Sequence[JobSummary], dates: Collection[str]
) -> JobSummary:
    """A summary without rows: what they are compared with, the runs of these dates, or why with none."""
    compared = [run for run in earlier if run.date in dates]
    found = compared or [run for run in earlier if any(row.error is None for row in run.rows)]
    changes = tuple(differences(found[0].environment, environment)) if found else ()
    return JobSummary(
        job=job.name,
        date=date,
        previous_date=found[0].date if compared or changes else None,
        job_changed_since=next((run.date for run in compared if run.job_sha256 != job.sha256), None),
        job_sha256=job.sha256,
        environment=environment,
        rows=(),
        environment_changes=changes,
    )


def _write(summary: JobSummary, folder: Path) -> None:
    write_texts(folder, {"summary.json": summary.json(), "summary.md": summary.markdown()})


def _rows(job: Job, folder: Path, runs: Path, before: Yardsticks, *, smoke: bool) -> Iterator[Rows]:
    """Those of each model."""
    is_ended = False
    for asked in job.searches:
        rows = _waiting(asked, before, f"it was not searched, {ENDED_BY_USER}" if is_ended else None)
        if not is_ended:
            rows = _searched(rows, asked, folder, runs, smoke=smoke)
            is_ended = any(row.is_ended for row in rows)
        yield rows if smoke else tuple(replace(row, missed=tuple(_missed(row, asked.demands))) for row in rows)


def _waiting(asked: ModelSearch, before: Yardsticks, error: str | None) -> Rows:
    """Of a model that was not searched so far."""
    return tuple(_row(asked.name, target.name, before, error) for target in asked.targets)


def _row(model: str, target: str, before: Yardsticks, error: str | None) -> JobRow:
    date, ratios = before.get((model, target), (None, None))
    return JobRow(
        model=model,
        target=target,
        best_ratio=_NO_RATIOS,
        previous=ratios,
        previous_date=date,
        n_evaluations=0,
        seconds=0.0,
        error=error,
        missed=(),
    )


def _searched(rows: Rows, asked: ModelSearch, folder: Path, runs: Path, *, smoke: bool) -> Rows:
    """The rows with what a search found."""
    if asked.is_absent:
        advice = _ZOO_ADVICE if asked.is_of_zoo else _FILE_ADVICE
        return _failed(rows, f"there is no file {_short(asked.model)}; {advice}")
    start = time.perf_counter()
    try:
        result = _run(_brief(asked) if smoke else asked, runs / asked.name)
        with writing(folder):
            shutil.copyfile(result.folder / "front.csv", folder / f"front-{asked.name}.csv")
    except KeyboardInterrupt:
        return _failed(rows, ENDED_BY_USER, _since(start), is_ended=True)
    except AutoquantError as error:
        return _failed(rows, str(error), _since(start))
    except Exception as error:  # a fault of ours must not stop the other models
        return _failed(rows, _fault(error, runs / f"{asked.name}-fault.txt"), _since(start))
    record, seconds = result.record, _since(start)
    is_ended = any(note.startswith((ENDED_BY_USER, MEASUREMENT_ENDED_BY_USER)) for note in record.notes)
    rows = tuple(
        replace(row, n_evaluations=len(record.evaluations), seconds=seconds, is_ended=is_ended) for row in rows
    )
    if reasons := _why_nothing(record, is_ended=is_ended, smoke=smoke):
        return _failed(rows, f"no quantized candidate was measured: {reasons[0]}", seconds, is_ended=is_ended)
    return tuple(replace(row, best_ratio=_ratios(record.front, row.target)) for row in rows)


def _failed(rows: Rows, error: str, seconds: float = 0.0, *, is_ended: bool = False) -> Rows:
    return tuple(replace(row, error=error, seconds=seconds, is_ended=is_ended) for row in rows)


def _ratios(front: Front, target: str) -> Ratios:
    return {demand: front.best_ratio_at(demand, target) for demand in DEMANDS_DB}


def _fault(error: Exception, file: Path) -> str:
    """What it is, and the file beside the runs that has its traceback, if that can be written."""
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    said = f"this is a fault of autoquant: {reason}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(traceback.format_exception(error)), encoding="utf-8", errors="backslashreplace")
    except OSError:
        return said
    return f"{said}; its traceback is in {_short(str(file))}"


def _why_nothing(record: RunRecord, *, is_ended: bool, smoke: bool) -> list[str]:
    """Why there was something to quantize and no such candidate was measured; none where one was.

    That the few seconds of a smoke run are over says nothing.
    """
    measured = (e for e in record.evaluations if e.is_quantized and isinstance(e.outcome, Measurement))
    if not record.regions or any(measured):
        return []
    found = failure_sentences(record.evaluations)
    if is_ended:
        return [*found, ENDED_BY_USER]
    return found if smoke else [*found, "there was no time; give it more"]


def _run(asked: ModelSearch, out: Path) -> SearchResult:
    return search(
        asked.model,
        calibration=asked.calibration,
        evaluation=asked.evaluation,
        held_out=asked.held_out,
        labels=asked.labels,
        metrics=asked.metrics,
        targets=asked.targets,
        budget=asked.budget,
        objectives=asked.objectives,
        demands=asked.bounds,
        out=out,
        space=asked.space,
        accuracy=asked.accuracy,
        n_regions=asked.n_regions,
        dims=asked.dims,
        seed=asked.seed,
    )


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 1)


def _brief(asked: ModelSearch) -> ModelSearch:
    seconds = min(asked.seconds or _SMOKE_SECONDS, _SMOKE_SECONDS)
    return replace(asked, seconds=seconds, trials=min(asked.trials or _SMOKE_TRIALS, _SMOKE_TRIALS))


def _missed(row: JobRow, demands: Mapping[int, float]) -> Iterator[str]:
    for demand, limit in sorted(demands.items()):
        ratio = row.best_ratio[demand]
        if ratio is None:
            yield f"There is no ratio at {demand} dB on {row.target}, {limit:.3f} was demanded."
        elif ratio > limit:
            yield f"At {demand} dB the ratio on {row.target} is {ratio:.3f}, {limit:.3f} was demanded."


def _line(row: JobRow) -> str:
    if row.error is not None:
        return f"{row.model}: {row.error}"
    ratios = ", ".join(f"{ratio:.3f} at {demand} dB" for demand, ratio in row.best_ratio.items())
    found = f"{row.model}: {ratios} on {row.target}; {counted(row.n_evaluations, 'evaluation')}, {row.seconds:.0f} s."
    return " ".join((found, *row.missed))


def _new_folder(folder: Path, runs: Path, *, smoke: bool) -> Path:
    """``<date>``, ``<date>-2`` and so on, ``<date>-smoke`` for smoke runs; older runs keep their names."""
    date = f"{datetime.now().astimezone():%Y-%m-%d}" + (f"-{_SMOKE}" if smoke else "")
    with writing(folder):
        for number in range(1, 10_000):
            new = folder / (date if number == 1 else f"{date}-{number}")
            if (runs / new.name).exists():
                continue
            try:
                new.mkdir(parents=True)
            except FileExistsError:
                continue
            return new
    raise OutputError(f"{folder}: there are too many runs of {date}; remove some")


def _earlier(folder: Path, on_line: Callable[[str], None], *, smoke: bool) -> list[JobSummary]:
    """The runs of the same kind that have a summary, the latest first; one that cannot be read is told."""
    found = []
    for path in sorted(folder.glob("*/summary.json"), key=lambda path: _order(path.parent.name), reverse=True):
        if (_SMOKE in path.parent.name) is smoke:
            try:
                found.append(read_summary(path.read_text(encoding="utf-8")))
            except (OSError, UnicodeDecodeError, AutoquantError) as error:
                on_line(f"{path}: nothing is compared with this run, as it cannot be read: {one_line(error)}")
    return found


def _yardsticks(job: Job, runs: Sequence[JobSummary]) -> Yardsticks:
    """By model and target, date and ratios of the first run that has a result which the user did not cut short."""
    keys = {(asked.name, target.name) for asked in job.searches for target in asked.targets}
    found: dict[tuple[str, str], tuple[str, Ratios]] = {}
    for run in runs:
        for row in run.rows:
            key = row.model, row.target
            if key in keys and row.error is None and not row.is_ended:
                found.setdefault(key, (run.date, row.best_ratio))
    return found


def _order(name: str) -> tuple[str, int]:
    match = re.fullmatch(rf"(\d{{4}}-\d\d-\d\d)(?:-{_SMOKE})?(?:-(\d+))?", name)
    return (match[1], int(match[2] or 1)) if match else ("", 0)


def _short(path: str) -> str:
    """With ``~`` for the home folder: summaries are committed."""
    home = os.path.expanduser("~")
    return f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path
