"""What one-region probes take, and how much of that running only what lies behind the region could save.

``python -m experiments.search.probes OUT.json RUN [RUN ...]`` takes folders that ``autoquant search`` has written, not
resumed. A probe that is not timed builds and opens a candidate and runs the first few samples through all of it. With
stored activations only what lies behind its region would have to run. What that could save is the float model's time
for what lies before it, in proportion to its share of the arithmetic, as if cutting the model and feeding it cost
nothing; what lies beside it counts by the order of the regions. Exit code 2: a folder is no finished run.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial

from autoquant.api.folder import read_json
from autoquant.domain.measurement import State
from autoquant.domain.scheme import FLOAT
from autoquant.domain.space import SearchSpace
from autoquant.measurement.bench import N_FIRST
from autoquant.study.layout import Layout
from experiments.believe.document import markdown
from experiments.search.recorded import main_of_runs, read_recorded

__all__ = ["main", "measure_probes", "render_probes"]


def measure_probes(folder: Path) -> dict[str, Any]:
    """Of one run: ``n_probes``, seconds of them, of the search and those that could be saved.

    Raises:
        AutoquantError: It is no finished run.
    """
    recorded, document = read_recorded(folder), dict[str, Any](read_json(folder / "run.json", "give a finished run"))
    probes = _probes(folder, recorded.layout)
    work = {row["id"]: row["work"] for row in document["regions"]}
    float_s = sum(document["float_ms"].values()) / 1e3
    return {
        "model": recorded.name,
        "n_probes": len(probes),
        "probes_s": sum(seconds for _, seconds in probes),
        "saved_s": N_FIRST * float_s * sum(_work_before(work, trial.params) for trial, _ in probes),
        "search_s": document["seconds"]["search"],
        "environment": document["environment"],
    }


def _probes(folder: Path, layout: Layout) -> list[tuple[FrozenTrial, float]]:
    """Trials that were not timed, with their seconds; recipes may be untimed too (decision 0036), and are no probes."""
    space = SearchSpace(choices=layout.choices, schemes={})
    recipes = [space.uniform(name) for name in layout.schemes]
    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    trials = optuna.load_study(study_name="autoquant", storage=storage).get_trials(deepcopy=False)
    told = [(trial, trial.datetime_complete) for trial in trials if trial.datetime_complete]
    return [  # a trial is stored when it is told
        (trial, (end - before).total_seconds())
        for (_, before), (trial, end) in itertools.pairwise(told)
        if trial.user_attrs.get("state") == State.UNTIMED
        and {region: name for region, name in trial.params.items() if name != FLOAT} not in recipes
    ]


def _work_before(work: Mapping[str, float], schemes: Mapping[str, str]) -> float:
    """Share of the arithmetic before the first region that is not float; regions are in topological order."""
    total = 0.0
    for region, share in work.items():
        if schemes[region] != FLOAT:
            break
        total += share
    return total


def render_probes(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each run."""
    rows = [
        [
            run["model"],
            str(run["n_probes"]),
            f"{run['search_s']:.1f}",
            f"{run['probes_s']:.1f}",
            f"{run['saved_s']:.1f}",
            f"{run['saved_s'] / run['search_s']:.1%}",
        ]
        for part in document["parts"].values()
        for run in part["runs"]
    ]
    headings = ("model", "probes", "search, s", "probes, s", "saved, s", "of the search")
    return markdown(headings, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read each run, write and print."""
    return main_of_runs("probes", __doc__, measure_probes, render_probes, arguments)


if __name__ == "__main__":
    sys.exit(main())
