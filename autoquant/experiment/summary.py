"""``summary.json``: the rows of a job, from which ``summary.md`` is rendered."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from autoquant.errors import OutputError
from autoquant.report.job_report import JobRow, job_summary_markdown

__all__ = ["JobSummary", "read_summary"]

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """One run of a job.

    Attributes:
        job: Its name.
        date: Name of the run's folder: the day, and what tells runs of a day apart.
        previous_date: Of the latest run that a row is compared with, or of the one that is in another environment.
        job_changed_since: Of the latest run compared with whose job file was another one; None where there is none.
        environment_changes: What keeps all rows from being compared; empty where nothing does.
        job_sha256: Of the job file.
        environment: Machine and versions.
        rows: One per model and target.
    """

    job: str
    date: str
    previous_date: str | None
    job_sha256: str
    environment: Mapping[str, object]
    rows: tuple[JobRow, ...]
    job_changed_since: str | None = None
    environment_changes: tuple[str, ...] = ()

    def json(self) -> str:
        """Render ``summary.json``."""
        rows = [
            {
                "model": row.model,
                "target": row.target,
                "best_ratio": _with_text_keys(row.best_ratio),
                "previous": None if row.previous is None else _with_text_keys(row.previous),
                "previous_date": row.previous_date,
                "n_evaluations": row.n_evaluations,
                "seconds": row.seconds,
                "error": row.error,
                "missed": list(row.missed),
                "is_ended": row.is_ended,
            }
            for row in self.rows
        ]
        document = {
            "schema_version": _VERSION,
            "job": self.job,
            "date": self.date,
            "previous_date": self.previous_date,
            "job_changed_since": self.job_changed_since,
            "environment_changes": list(self.environment_changes),
            "job_sha256": self.job_sha256,
            "environment": dict(self.environment),
            "rows": rows,
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    def markdown(self) -> str:
        """Render ``summary.md``."""
        return job_summary_markdown(
            self.rows,
            job=self.job,
            date=self.date,
            previous_date=self.previous_date,
            job_changed_since=self.job_changed_since,
            environment_changes=self.environment_changes,
        )


def read_summary(text: str) -> JobSummary:
    """Read what ``JobSummary.json`` wrote.

    Raises:
        OutputError: It is no ``summary.json`` of schema version 1.
    """
    try:
        found = _Document.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise OutputError(f"summary.json, {where}: {first['msg'].lower()}; run the job again") from error
    return JobSummary(
        job=found.job,
        date=found.date,
        previous_date=found.previous_date,
        job_changed_since=found.job_changed_since,
        job_sha256=found.job_sha256,
        environment=found.environment,
        rows=tuple(JobRow(**{**dict(row), "missed": tuple(row.missed)}) for row in found.rows),
        environment_changes=tuple(found.environment_changes),
    )


def _with_text_keys(ratios: Mapping[int, float | None]) -> dict[str, float | None]:
    return {str(demand): ratio for demand, ratio in ratios.items()}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Row(_Part):
    model: str
    target: str = ""
    best_ratio: dict[int, float | None]
    previous: dict[int, float | None] | None
    previous_date: str | None = None
    n_evaluations: int
    seconds: float
    error: str | None
    missed: list[str]
    is_ended: bool = False


class _Document(_Part):
    schema_version: Literal[1]
    job: str
    date: str
    previous_date: str | None
    job_changed_since: str | None = None
    environment_changes: list[str] = []
    job_sha256: str
    environment: dict[str, object]
    rows: list[_Row]
