from dataclasses import replace

import pytest

from autoquant.errors import OutputError
from autoquant.experiment.summary import JobSummary, read_summary
from autoquant.report.job_report import JobRow


def a_summary() -> JobSummary:
    ratios = {30: 0.5, 40: 0.6, 50: 1.0}
    good = JobRow(
        model="good",
        target="cpu-1t",
        best_ratio=ratios,
        previous={30: 0.55, 40: None, 50: 1.0},
        n_evaluations=9,
        seconds=12.5,
        error=None,
        missed=("At 40 dB the ratio on cpu-1t is 0.600, 0.500 was demanded.",),
        previous_date="2026-06-30",
        is_ended=True,
    )
    bad = JobRow(
        model="bad",
        target="cpu-1t",
        best_ratio=dict.fromkeys(ratios),
        previous=None,
        n_evaluations=0,
        seconds=0.1,
        error="it is no model",
        missed=(),
    )
    return JobSummary(
        job="small",
        date="2026-07-02",
        previous_date="2026-07-01",
        job_sha256="ab" * 32,
        environment={"cpu": "Imaginary 9000"},
        rows=(good, bad),
        job_changed_since="2026-06-30",
    )


def test_a_summary_is_read_back_as_it_was() -> None:
    assert read_summary(a_summary().json()) == a_summary()


def test_a_summary_that_is_read_back_renders_the_same() -> None:
    assert read_summary(a_summary().json()).markdown() == a_summary().markdown()


def test_a_run_of_another_environment_is_named_and_no_change_told() -> None:
    text = replace(a_summary(), environment_changes=("cpu Old, now New",)).markdown()
    assert "2026-07-01 was measured in another environment (cpu Old, now New), so that no change is told." in text
    assert "| good | cpu-1t | 0.500 | 0.600 | 1.000 |" in text


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 2}'])
def test_what_is_no_summary_is_refused(text: str) -> None:
    with pytest.raises(OutputError, match=r"summary\.json"):
        read_summary(text)
