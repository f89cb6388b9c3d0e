"""Whether what a search believes of latency ratios is nearer to what its files have than what its trials measured.

``python -m experiments.search.believed OUT.json RUN [RUN ...]`` takes folders that ``autoquant search`` has written and
compares three ratios of each finalist: that of its trial, what the sampler believed of it in the end, and that of its
file in the last measurement (the mean over processes of the median over rounds). What all finalists of a run have in
common, as another process runs otherwise, is taken out. Exit code 2: a folder is no finished run, or has no finalists.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from autoquant.api.folder import read_json
from autoquant.errors import UsageError
from autoquant.measurement.latency import REFERENCE
from autoquant.study.belief import believed
from autoquant.study.trust import believe
from experiments.believe.document import markdown
from experiments.search.recorded import main_of_runs, read_recorded

__all__ = ["main", "measure_believed", "render_believed", "session_ratios"]


def session_ratios(folder: Path) -> dict[str, list[float]]:
    """Of each finalist's file on the first target, one for each process of the last measurement of a run, by id."""
    rounds = pd.read_csv(folder / "latency.csv")
    rounds = rounds[rounds["target"] == rounds["target"].iloc[0]] if len(rounds) else rounds
    table = rounds.pivot_table(index=["session", "round"], columns="id", values="ms", aggfunc="first")
    if REFERENCE not in table:
        return {}
    ratios = table.drop(columns=REFERENCE).div(table[REFERENCE], axis=0)
    medians = ratios.groupby(level="session").median()
    return {str(name): medians[name].dropna().tolist() for name in medians}


def measure_believed(folder: Path) -> dict[str, Any]:
    """Of one run: ``trial``, ``believed`` and ``file``, ratios of its finalists, and what it is a run of.

    Raises:
        AutoquantError: It is no finished run, or has no finalists.
    """
    recorded, files = read_recorded(folder), session_ratios(folder)
    surrogate, trust = believe(recorded.layout, recorded.found, recorded.prior)
    kept = believed(recorded.found, recorded.snr_errors_db, surrogate, trust)
    names = [f"t{number:04d}" for number in recorded.numbers]
    rows = [i for i, name in enumerate(names) if name in files and recorded.found.is_timed[i]]
    if not rows:
        raise UsageError(f"{folder}: it has no finalists; search longer")
    return {
        "model": recorded.name,
        "trial": recorded.found.ratios[rows, 0].tolist(),
        "believed": kept.ratios[rows, 0].tolist(),
        "file": [fmean(files[names[i]]) for i in rows],
        "environment": read_json(folder / "run.json", "give a finished run")["environment"],
    }


def render_believed(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each run, and one of all finalists."""
    runs = [run for part in document["parts"].values() for run in part["runs"]]
    errors = [{key: _errors(run[key], run["file"]) for key in ("trial", "believed")} for run in runs]
    together = {key: np.concatenate([found[key] for found in errors]) for key in ("trial", "believed")}
    named = [*zip([run["model"] for run in runs], errors, strict=True), ("all", together)]
    rows = [
        [name, str(len(found["trial"])), *(f"{found[key].mean():.4f}" for key in ("trial", "believed"))]
        for name, found in named
    ]
    return markdown(("model", "finalists", "ratio of the trial, mean error", "what was believed"), rows)


def _errors(said: Sequence[float], file: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Absolute, without what all have in common."""
    differences = np.array(said) - np.array(file)
    return np.asarray(np.abs(differences - np.median(differences)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Read each run, write and print."""
    return main_of_runs("believed", __doc__, measure_believed, render_believed, arguments)


if __name__ == "__main__":
    sys.exit(main())
