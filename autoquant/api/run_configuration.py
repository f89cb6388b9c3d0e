"""What a finished run was asked for, read back from its ``run.json``."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoquant.api import steps
from autoquant.api.configuration import Budget, Configuration, Demands, parse_accuracy
from autoquant.api.folder import read_json
from autoquant.api.objectives import objectives_of
from autoquant.calibration.sources import DataSource, is_missing
from autoquant.domain.target import Target
from autoquant.errors import AutoquantError, OutputError, UsageError
from autoquant.metrics.grammar import parse_metrics

__all__ = ["read_configuration"]

_ADVICE = "give the folder that a search has written"

_Given = Mapping[str, DataSource | None]
"""What the user names again, None where that of the run is taken."""


def read_configuration(
    folder: Path,
    *,
    model: str | os.PathLike[str] | None = None,
    calibration: DataSource | None = None,
    evaluation: DataSource | None = None,
    held_out: DataSource | None = None,
    labels: str | os.PathLike[str] | None = None,
    space: str | os.PathLike[str] | None = None,
) -> Configuration:
    """What was asked of a run, without its demands, sampler and folder, and of its budget what limits a trial.

    Args:
        folder: Of the run.
        model: In place of what the run names, as is everything else that is given.
        calibration: The same.
        evaluation: The same.
        held_out: The same.
        labels: The same.
        space: The same.

    Raises:
        OutputError: There is no such run, it is damaged, or what it names is not found and not given.
        ModelError: There is no such example.
    """
    given: _Given = {
        "model": model,
        "calibration": calibration,
        "evaluation": evaluation,
        "held_out": held_out,
        "labels": labels,
        "space": space,
    }
    asked = _read(folder / "run.json", given)
    if model is not None:
        asked = replace(asked, model=steps.model_path(model))
    if labels is not None:
        asked = replace(asked, labels=Path(labels))
    if space is not None:
        asked = replace(asked, space=os.fspath(space))
    return asked


def _read(path: Path, given: _Given) -> Configuration:
    plain = read_json(path, _ADVICE).get("configuration")
    if not isinstance(plain, dict):
        raise OutputError(f"{path}: it is missing or damaged; {_ADVICE}")
    try:
        asked = _parsed(plain, given)
        _refuse_missing({name: plain[name] for name, again in given.items() if again is None and plain[name]})
    except AutoquantError as error:
        raise OutputError(f"{path}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OutputError(f"{path}: it is damaged ({error}); give the folder of another run") from error
    return asked


def _refuse_missing(named: Mapping[str, str]) -> None:
    """Of what the search was given as paths, those that lead nowhere, as relative ones do from another folder."""
    paths = {name: path for name, path in named.items() if name != "space" or path.endswith(".toml")}
    missing = {name: path for name, path in paths.items() if is_missing(path)}
    if missing:
        options = ", ".join(map(_option, missing))
        arguments = ", ".join(f"{name}=..." for name in missing)
        raise UsageError(
            f"what it names is not found from here: {', '.join(missing.values())}; give it with {options}"
            f" or autoquant.resolve(..., {arguments})"
        )


def _parsed(plain: Mapping[str, Any], given: _Given) -> Configuration:
    metrics = parse_metrics(plain["metrics"])
    names = {str(metric): metric.name for metric in metrics}
    calibration = _source("calibration", plain, given)
    if calibration is None:
        raise ValueError("calibration")
    return Configuration(
        model=Path(plain["model"]),
        calibration=calibration,
        evaluation=_source("evaluation", plain, given),
        held_out=_source("held_out", plain, given),
        labels=None if plain["labels"] is None else Path(plain["labels"]),
        metrics=metrics,
        objectives=objectives_of([names.get(spelled, spelled) for spelled in plain["objectives"]], metrics),
        targets=tuple(Target(**target) for target in plain["targets"]),
        budget=Budget(trial_seconds=plain["trial_seconds"], trial_memory_mb=plain["trial_memory_mb"]),
        demands=Demands(),
        out=Path(),
        space=plain["space"],
        accuracy=parse_accuracy(plain["accuracy"]),
        n_regions=plain["n_regions"],
        dims=plain["dims"],
        seed=plain["seed"],
    )


def _source(name: str, plain: Mapping[str, Any], given: _Given) -> DataSource | None:
    if given[name] is not None:
        return given[name]
    spelled: str | None = plain[name]
    if spelled is not None and spelled.startswith("<"):
        raise UsageError(
            f"its {name} data were Python objects {spelled}, give them with {_option(name)}"
            f" or autoquant.resolve(..., {name}=...)"
        )
    return spelled


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
