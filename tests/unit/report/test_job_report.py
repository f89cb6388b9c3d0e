from dataclasses import replace
from pathlib import Path

from autoquant.report.job_report import JobRow, job_summary_markdown

GOLDEN = Path(__file__).parents[2] / "golden" / "job_summary.md"


def a_row(model: str = "digits", **changes: object) -> JobRow:
    row = JobRow(
        model=model,
        target="cpu-1t",
        best_ratio={30: 0.521, 40: 0.609, 50: 1.0},
        previous={30: 0.551, 40: 0.609, 50: None},
        n_evaluations=312,
        seconds=118.4,
        error=None,
        missed=(),
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def test_the_job_summary_is_the_golden_one() -> None:
    missed = ("At 40 dB the ratio on cpu-1t is 0.609, 0.600 was demanded.",)
    failed = {"best_ratio": {}, "n_evaluations": 0, "seconds": 2.2, "error": "The file is\nno ONNX model."}
    rows = [
        a_row("digits"),
        a_row("opennsfw", previous=None, missed=missed),
        a_row("opennsfw", target="cpu-4t"),
        a_row("slower", best_ratio={30: 0.6, 40: 0.7001, 50: 0.9}, previous={30: 0.55, 40: 0.7, 50: 1.0}),
        a_row("odd | name", **failed),
        a_row("odd | name", target="cpu-4t", **failed),
    ]

    text = job_summary_markdown(rows, job="nightly", date="2026-07-02", previous_date="2026-07-01")

    assert text == GOLDEN.read_text(encoding="utf-8")


def test_a_first_job_has_no_changes() -> None:
    text = job_summary_markdown([a_row(previous=None)], job="nightly", date="2026-07-02")

    assert "change against" not in text
    assert "| digits | cpu-1t | 0.521 (new) | 0.609 (new) | 1.000 (new) | 312 | 118 | ok |" in text
    assert "## " not in text


def test_a_model_that_is_compared_with_an_older_run_is_named() -> None:
    older, failed = (a_row(name, previous_date="2026-06-30") for name in ("opennsfw", "broken"))
    rows = [a_row(previous_date="2026-07-01"), older, replace(failed, error="It is no ONNX model.")]

    text = job_summary_markdown(
        rows, job="nightly", date="2026-07-02", previous_date="2026-07-01", job_changed_since="2026-06-30"
    )

    against = "in brackets the change against 2026-07-01, of opennsfw against 2026-06-30"
    assert f"; {against}; the job file has changed since 2026-06-30.\n" in text


def test_a_job_without_models_is_still_a_table() -> None:
    lines = job_summary_markdown([], job="nightly", date="2026-07-02").splitlines()

    assert lines[2].startswith("0 models, 0 failed, 0 missed a demand.")
    assert lines[-1].startswith("|:--|")
