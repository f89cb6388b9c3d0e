"""Whether the models of a search predict, and whether their intervals hold: recorded runs, evaluation by evaluation.

``python -m experiments.search.calibrated OUT.json RUN [RUN ...]`` takes folders that ``autoquant search`` has written.
Every evaluation is predicted from those before it, by the models of the sampler, which then learn it, as in the search.
Beside them stand the same models without profiles (their latency prior is the share of the arithmetic) and without the
errors of what regions quantize (their noise prior is that share), their prior alone, and linear least squares without
priors. Exit code 1: over all runs fewer than 85 % or more than 95 % of the evaluations lie in the stated 90 % interval,
of SNR or of latency.
"""

import argparse
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from autoquant.study.layout import Floats
from autoquant.study.surrogate import Surrogate
from autoquant.study.trust import Trust
from experiments.believe.document import markdown, new_part, read_document, share_interval, write_part
from experiments.search.forecasters import Forecaster, LeastSquares, PriorOnly
from experiments.search.recorded import Recorded, read_recorded

__all__ = ["MODELS", "forecast", "holds", "main", "render_calibrated", "scores"]

MODELS, NO_PROFILES, NO_ERRORS = "models", "without profiles", "without errors"
PRIOR, LEAST_SQUARES = "prior only", "least squares"
N_FIRST = 10
"""Evaluations before the first prediction."""
STEPS = (N_FIRST, 20, 50, 100, 200)
HALF_WIDTH = 1.645
"""Of a 90 % interval, in standard deviations."""
SHARES = (0.85, 0.95)
QUANTITIES = ("snr", "ratio")
HIGHEST_DB = 120.0
"""What the models take for float: more is not told apart."""


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Of one quantity.

    Attributes:
        numbers: Evaluations before each; shape (n,).
        errors: Measured less predicted; shape (n,).
        deviations: As stated, shape (n,).
    """

    numbers: Floats
    errors: Floats
    deviations: Floats


def forecast(run: Recorded, forecaster: Forecaster) -> dict[str, Forecasts]:
    """Predict what no evaluation of the same graph has said before, and learn each evaluation.

    Standard deviations are stretched by what earlier evaluations said, and contain the measurement's own error: the SNR
    of few samples scatters more.

    Args:
        run: At least one evaluation more than come before the first prediction.
        forecaster: That knows none of them.

    Returns:
        By quantity: of the worst output's SNR in dB, and of the latency ratio on the first target where it was timed.
    """
    trust, rows = Trust(), []
    for n in range(N_FIRST, len(run.found)):
        forecaster.fit(run.found.of(slice(n)))
        new = run.found.of(slice(n, n + 1))
        predicted, (snr_stretch, ratio_stretch) = forecaster.predict(new.codes), trust.stretch
        trust.compare(predicted, new)
        if run.is_new[n] or run.is_newly_timed[n]:
            snr_db = min(new.snr_db.min(), HIGHEST_DB) if run.is_new[n] else math.nan
            ratio = new.ratios[0, 0] if run.is_newly_timed[n] else math.nan
            ratio_error = math.hypot(predicted.ratio_errors[0, 0], new.errors[0, 0])
            rows.append(
                (
                    n,
                    snr_db - min(predicted.snr_db[0], HIGHEST_DB),
                    snr_stretch * new.snr_scatter[0] * predicted.snr_error_db[0],
                    ratio - predicted.ratios[0, 0],
                    ratio_stretch * ratio_error,
                )
            )
    every = np.array(rows, dtype=float).reshape(-1, 5)
    found = {"snr": every[:, [0, 1, 2]], "ratio": every[:, [0, 3, 4]]}
    return {name: Forecasts(*rows[np.isfinite(rows[:, 1])].T) for name, rows in found.items()}


def scores(found: Forecasts) -> dict[str, Any]:
    """Number of predictions, of those whose interval held, sums of log densities and of absolute errors by step."""
    standardised = found.errors / found.deviations
    density = -0.5 * np.square(standardised) - np.log(found.deviations * math.sqrt(2 * math.pi))
    step = np.searchsorted(STEPS, found.numbers, side="right") - 1
    return {
        "n": len(found.errors),
        "n_inside": int((np.abs(standardised) < HALF_WIDTH).sum()),
        "log_density": float(density.sum()),
        "n_by_step": np.bincount(step, minlength=len(STEPS)).tolist(),
        "error_by_step": np.bincount(step, weights=np.abs(found.errors), minlength=len(STEPS)).tolist(),
    }


def measure(run: Recorded) -> dict[str, Any]:
    """Scores of one run by forecaster and quantity."""
    forecasters: dict[str, Forecaster] = {
        MODELS: Surrogate(run.layout, run.found.ratios.shape[1], run.prior),
        NO_PROFILES: Surrogate(run.layout, run.found.ratios.shape[1]),
        NO_ERRORS: Surrogate(replace(run.layout, own_errors=None), run.found.ratios.shape[1], run.prior),
        PRIOR: PriorOnly(Surrogate(run.layout, run.found.ratios.shape[1], run.prior)),
        LEAST_SQUARES: LeastSquares(run.layout),
    }
    found = {name: forecast(run, forecaster) for name, forecaster in forecasters.items()}
    return {
        "model": run.name,
        "about": run.about,
        "n_evaluations": len(run.found),
        "n_regions": len(run.layout.regions),
        "n_outputs": run.found.snr_db.shape[1],
        "has_profiles": run.prior is not None,
        "scores": {name: {q: scores(each[q]) for q in QUANTITIES} for name, each in found.items()},
    }


def together(runs: Sequence[Mapping[str, Any]], name: str, quantity: str) -> dict[str, Any]:
    """Sums of the scores of several runs."""
    found = [run["scores"][name][quantity] for run in runs]
    return {key: np.sum([each[key] for each in found], axis=0).tolist() for key in found[0]}


def holds(runs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether about 90 % of the evaluations lie in their 90 % interval."""
    low, high = SHARES
    sums = [together(runs, MODELS, quantity) for quantity in QUANTITIES]
    return all(low <= each["n_inside"] / max(each["n"], 1) <= high for each in sums)


def render_calibrated(document: Mapping[str, Any]) -> str:
    """Markdown: what the intervals hold by model, then errors of SNR and ratio by number of evaluations."""
    runs = [run for part in document["parts"].values() for run in part["runs"]]
    models = {name: [run for run in runs if run["model"] == name] for name in dict.fromkeys(r["model"] for r in runs)}
    groups = {**models, "all": runs}
    shares = [
        [name, str(len(group))]
        + [cell for quantity in QUANTITIES for cell in _share(together(group, MODELS, quantity))]
        for name, group in groups.items()
    ]
    headings = (
        "model",
        "runs",
        "SNRs",
        "in their 90 % interval",
        "95 %",
        "ratios",
        "in their 90 % interval",
        "95 %",
    )
    parts = [markdown(headings, shares)]
    steps = [f"{low} to {high - 1}" for low, high in itertools.pairwise(STEPS)] + [f"from {STEPS[-1]}"]
    for quantity, unit, names in (
        ("snr", "dB", (MODELS, NO_ERRORS, LEAST_SQUARES, PRIOR)),
        ("ratio", "of float's latency", (MODELS, NO_PROFILES, LEAST_SQUARES, PRIOR)),
    ):
        rows = [
            [group, name, *_errors(together(groups[group], name, quantity), 2 if quantity == "snr" else 4)]
            for group in groups
            for name in names
        ]
        columns = ("model", f"mean absolute error of {quantity}, {unit}", *steps, "log density")
        parts.append(markdown(columns, rows))
    return "\n".join(parts)


def _share(found: Mapping[str, Any]) -> list[str]:
    n, n_inside = found["n"], found["n_inside"]
    low, high = share_interval(n_inside, n)
    return [str(n), *([f"{n_inside / n:.0%}", f"{low:.0%} to {high:.0%}"] if n else ["", ""])]


def _errors(found: Mapping[str, Any], n_digits: int) -> list[str]:
    means = [
        f"{error / n:.{n_digits}f}" if n else ""
        for error, n in zip(found["error_by_step"], found["n_by_step"], strict=True)
    ]
    return [*means, f"{found['log_density'] / found['n']:.2f}" if found["n"] else ""]


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay each run, write after each, and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.search.calibrated", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("runs", type=Path, nargs="+", help="folders that searches have written")
    asked = parser.parse_args(arguments)
    part = new_part("experiments.search.calibrated") | {"runs": []}
    with threadpool_limits(limits=1):
        for folder in asked.runs:
            part["runs"].append(measure(read_recorded(folder)))
            write_part(asked.out, "calibrated", part)
    print(render_calibrated(read_document(asked.out)), end="")
    return 0 if holds(part["runs"]) else 1


if __name__ == "__main__":
    sys.exit(main())
