"""Whether the intervals of trials hold where their files are measured again, in processes of their own.

``python -m experiments.search.trial_intervals OUT.json RUN [RUN ...]`` takes folders that ``autoquant search`` has
written, and counts in how many processes of the last measurement the ratio of a finalist (median over rounds, first
target) was in the interval of its trial: what a repetition in the trial's process would give, and that interval widened
by what processes differ by, as ``trials.csv`` has it. Exit code 2: a folder is no finished run, or has no finalists.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoquant import load_result
from autoquant.api.folder import read_json
from autoquant.api.processes import process_errors, seen_by_others
from autoquant.domain.measurement import Evaluation, Latency, Measurement
from autoquant.errors import UsageError
from experiments.believe.document import markdown, share_interval
from experiments.search.believed import session_ratios
from experiments.search.recorded import main_of_runs

__all__ = ["main", "measure_intervals", "render_intervals"]

_HEADINGS = ("model", "finalists", "processes differ by", "ratios", "in a repetition's", "in the trial's", "95 %")


def measure_intervals(folder: Path) -> dict[str, Any]:
    """Of one run: how many ratios of finalists in processes there are, and how many of them in which intervals.

    Raises:
        AutoquantError: It is no finished run, or has no finalists.
    """
    record = load_result(folder).record
    target, ratios = record.front.targets[0].name, session_ratios(folder)
    told = seen_by_others(record.evaluations, record.front)
    pairs = [
        (ratio, own, seen)
        for own, seen in zip(_latencies(record.evaluations, target), _latencies(told, target), strict=True)
        for ratio in ratios.get(own[0], ())
    ]
    if not pairs:
        raise UsageError(f"{folder}: it has no finalists; search longer")
    return {
        "model": Path(record.front.model_path).parent.name,
        "n_finalists": len({own[0] for _, own, _ in pairs}),
        "process_error": process_errors(record.front, [target])[0],
        "n_ratios": len(pairs),
        "n_in_repetition": sum(_holds(own[1], ratio) for ratio, own, _ in pairs),
        "n_in_trial": sum(_holds(seen[1], ratio) for ratio, _, seen in pairs),
        "environment": read_json(folder / "run.json", "give a finished run")["environment"],
    }


def _latencies(evaluations: Sequence[Evaluation], target: str) -> list[tuple[str, Latency]]:
    """By the id that a finalist has."""
    return [
        (f"t{each.trial.number:04d}", each.outcome.latency[target])
        for each in evaluations
        if isinstance(each.outcome, Measurement) and target in each.outcome.latency
    ]


def _holds(latency: Latency, ratio: float) -> bool:
    return latency.ratio_low <= ratio <= latency.ratio_high


def render_intervals(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each run, and one of all."""
    runs = [run for part in document["parts"].values() for run in part["runs"]]
    counts = ("n_finalists", "n_ratios", "n_in_repetition", "n_in_trial")
    together = {key: sum(run[key] for run in runs) for key in counts}
    return markdown(_HEADINGS, [*(_row(run["model"], run) for run in runs), _row("all", together)])


def _row(name: str, run: Mapping[str, Any]) -> list[str]:
    n = run["n_ratios"]
    shares = [f"{run[key] / n:.0%}" for key in ("n_in_repetition", "n_in_trial")]
    low, high = share_interval(run["n_in_trial"], n)
    error = f"{run['process_error']:.1%}" if "process_error" in run else ""
    return [name, str(run["n_finalists"]), error, str(n), *shares, f"{low:.0%} to {high:.0%}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read each run, write and print."""
    return main_of_runs("trial_intervals", __doc__, measure_intervals, render_intervals, arguments)


if __name__ == "__main__":
    sys.exit(main())
