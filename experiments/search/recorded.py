"""A run that ``autoquant search`` has written, as the models of its sampler saw it."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from autoquant.api.documents import region_from
from autoquant.api.folder import read_json
from autoquant.api.warm import EarlierRun, read_warm_start
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.scheme import Scheme
from autoquant.errors import AutoquantError, UsageError
from autoquant.graph.regions import borders
from autoquant.model.graph import Graph
from autoquant.model.io import load_any
from autoquant.study.layout import Layout
from autoquant.study.observed import is_measured, observe, snr_errors_of
from autoquant.study.surrogate import Observations
from experiments.believe.document import new_part, read_document, write_part

__all__ = ["Recorded", "main_of_runs", "read_recorded"]

_STUDY = "autoquant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One run.

    Attributes:
        name: Of its model.
        about: Sampler, seed, seconds and environment of the search.
        layout: Regions, schemes and borders.
        prior: What was expected of latencies; None without profiles.
        found: Its trials that were measured, in their order.
        numbers: Of these trials.
        snr_errors_db: What the samples of each leave open of its SNR; shape (n,).
        is_new: Whether the graph of each had not been measured before; shape (n,).
        is_newly_timed: Whether it was timed, and had not been before; shape (n,).
    """

    name: str
    about: Mapping[str, Any]
    layout: Layout
    prior: LatencyPrior | None
    found: Observations
    numbers: tuple[int, ...]
    snr_errors_db: npt.NDArray[np.float64]
    is_new: npt.NDArray[np.bool_]
    is_newly_timed: npt.NDArray[np.bool_]


def read_recorded(folder: Path) -> Recorded:
    """Read a run.

    Args:
        folder: That a search has written.

    Raises:
        AutoquantError: It is no finished run of a version that writes schemes and latency priors.
    """
    document: Mapping[str, Any] = read_json(folder / "run.json", "give a finished run")
    earlier = read_warm_start(folder)
    if (
        not isinstance(earlier, EarlierRun)
        or not earlier.schemes
        or not {"latency_prior", "own_errors"} <= document.keys()
    ):
        raise UsageError(f"{folder}: this is no run of this version; search again in another folder")
    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    told = optuna.load_study(study_name=_STUDY, storage=storage).get_trials(deepcopy=False)
    trials = [trial for trial in told if is_measured(trial)]
    if not trials:
        raise UsageError(f"{folder}: none of its trials was measured; search longer")
    plain, layout = document["latency_prior"], _layout(folder, document, earlier.schemes, trials[0].distributions)
    digests = [trial.user_attrs["digest"] for trial in trials]
    timed = [digest if trial.user_attrs.get("ratios") else None for digest, trial in zip(digests, trials, strict=True)]
    return Recorded(
        name=_name(Path(document["configuration"]["model"])),
        about=_about(document),
        layout=layout,
        prior=None if plain is None else LatencyPrior.parse(plain),
        found=observe(layout, trials),
        numbers=tuple(trial.number for trial in trials),
        snr_errors_db=snr_errors_of(trials),
        is_new=np.array([digest not in digests[:i] for i, digest in enumerate(digests)]),
        is_newly_timed=np.array([digest is not None and digest not in timed[:i] for i, digest in enumerate(timed)]),
    )


def _layout(
    folder: Path,
    document: Mapping[str, Any],
    schemes: Mapping[str, Scheme],
    distributions: Mapping[str, BaseDistribution],
) -> Layout:
    regions = [region_from(row) for row in document["regions"]]
    return Layout.of(
        {region.id: _choices(distributions[region.id]) for region in regions},
        schemes,
        tuple(borders(Graph(load_any(folder / "prepared.onnx")), regions)),
        work={region.id: region.work for region in regions},
        patterns={region.id: region.pattern for region in regions},
        own_errors=document["own_errors"],
        twins=document.get("twins"),
    )


def _choices(distribution: BaseDistribution) -> tuple[str, ...]:
    assert isinstance(distribution, CategoricalDistribution)
    return tuple(map(str, distribution.choices))


def _name(model: Path) -> str:
    return model.parent.name if model.name == "model.onnx" else model.stem.removeprefix("example:")


def _about(document: Mapping[str, Any]) -> dict[str, Any]:
    asked, environment = document["configuration"], document["environment"]
    return {
        **{key: asked[key] for key in ("sampler", "seed", "seconds", "trials", "space")},
        **{key: environment[key] for key in ("id", "cpu", "load_1min", "versions")},
    }


def main_of_runs(
    name: str,
    description: str | None,
    measure: Callable[[Path], Mapping[str, Any]],
    render: Callable[[Mapping[str, Any]], str],
    arguments: Sequence[str] | None,
) -> int:
    """``python -m experiments.search.NAME OUT.json RUN [RUN ...]``: measure each run, write and print.

    Args:
        name: Of the module, and of the part of OUT.json.
        description: Of the command.
        measure: What a part has in ``runs`` of a folder that a search has written.
        render: Markdown of the document.
        arguments: Of the command.

    Returns:
        The exit code.
    """
    module = f"experiments.search.{name}"
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("runs", type=Path, nargs="+", help="folders that searches have written")
    asked = parser.parse_args(arguments)
    try:
        part = new_part(module) | {"runs": [measure(folder) for folder in asked.runs]}
    except AutoquantError as error:
        print(f"{module}: {error}", file=sys.stderr)
        return 2
    write_part(asked.out, name, part)
    print(render(read_document(asked.out)), end="")
    return 0
