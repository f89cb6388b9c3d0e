"""Job files: TOML to checked searches."""

import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from autoquant.api.configuration import DEFAULT_SECONDS, Budget, Configuration, Demands
from autoquant.api.objectives import objectives_of
from autoquant.api.spelling import bytes_of, seconds_of
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.front import DEMANDS_DB
from autoquant.domain.metric import Custom
from autoquant.domain.mistakes import Location, first_mistake, unknown
from autoquant.domain.region import N_REGIONS
from autoquant.domain.sampler import MAX_SEED
from autoquant.domain.target import MAX_THREADS, Target
from autoquant.errors import AutoquantError, UsageError
from autoquant.examples import EXAMPLES
from autoquant.metrics.custom import load
from autoquant.metrics.grammar import parse_metrics
from autoquant.runtime.providers import known
from autoquant.space.schema import read_space

__all__ = ["Job", "ModelSearch", "read_job"]

_ZOO = "AUTOQUANT_ZOO"
_DEFAULT_ZOO = "~/.cache/autoquant-zoo"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSearch:
    """One model of a job and how it is searched.

    Attributes:
        name: Unique within the job; names files.
        model: A path, or ``example:NAME``.
        calibration: A path or ``module:callable``; None for the example's own.
        evaluation: The same; None for the example's own, or a part of the calibration data.
        held_out: The same; None for a part of the evaluation data.
        labels: File with labels of the evaluation data.
        metrics: Beside SNR, as the command takes them.
        max_drop: Largest drop by metric, or of every one.
        objectives: What members are compared in.
        max_size_bytes: Largest file of a member.
        targets: Where candidates are timed.
        seconds: Of each search; None where trials count alone.
        trials: Largest number of trials.
        space: Name or path of the search space.
        accuracy: What is done for accuracy; None as the space says.
        n_regions: Largest number of regions.
        dims: Sizes of named dynamic dimensions.
        seed: Of proposals, orders and resampling.
        demands: Largest ratio that is accepted, by SNR in dB.
    """

    name: str
    model: str
    calibration: str | None
    evaluation: str | None
    held_out: str | None
    labels: str | None
    metrics: tuple[str, ...]
    max_drop: float | Mapping[str, float] | None
    objectives: tuple[str, ...]
    max_size_bytes: int | None
    targets: tuple[Target, ...]
    seconds: float | None
    trials: int | None
    space: str
    accuracy: Accuracy | None
    n_regions: int
    dims: Mapping[str, int]
    seed: int
    demands: Mapping[int, float]

    @property
    def is_example(self) -> bool:
        """Whether the package has the model, and data for it."""
        return self.model.startswith("example:")

    @property
    def is_absent(self) -> bool:
        """Whether the model's file is not there."""
        return not self.is_example and not os.path.exists(self.model)  # Path.exists may raise

    @property
    def is_of_zoo(self) -> bool:
        """Whether the model's file lies, or would lie, where ``experiments.zoo`` puts it."""
        return Path(self.model).is_relative_to(os.path.expanduser(_zoo()))

    @property
    def budget(self) -> Budget:
        """When the search ends."""
        return Budget(seconds=self.seconds, trials=self.trials)

    @property
    def bounds(self) -> Demands:
        """What members keep."""
        return Demands(max_size_bytes=self.max_size_bytes, max_drop=self.max_drop)

    def check(self) -> None:
        """Find what is wrong with the arguments of the search, as far as that needs neither model nor data.

        Raises:
            AutoquantError: Something is; that a provider is not installed here is no fault of the job.
        """
        if self.calibration is None and not self.is_example:
            raise UsageError("there are no calibration data; give them as calibration, e.g. an .npz file")
        for target in self.targets:
            if target.ep not in known():
                raise UsageError(f"execution provider {unknown(target.ep, known())}")
        metrics = parse_metrics(self.metrics)
        for metric in metrics:
            if isinstance(metric.source, Custom):
                load(metric, metric.source)
        Configuration(
            model=Path(self.model),
            calibration=self.calibration or (),
            evaluation=self.evaluation,
            targets=self.targets,
            budget=self.budget,
            demands=self.bounds,
            out=Path(),
            space=self.space,
            n_regions=self.n_regions,
            metrics=metrics,
            objectives=objectives_of(self.objectives, metrics),
        )
        read_space(self.space, ep=self.targets[0].ep)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A checked job file.

    Attributes:
        name: Names the folder of its reports.
        searches: In the order of the file.
        sha256: Of the file.
    """

    name: str
    searches: tuple[ModelSearch, ...]
    sha256: str


def read_job(path: Path) -> Job:
    """Read and check a job file.

    Paths are relative to the file, ``~`` and ``$VARIABLE`` are expanded; ``$AUTOQUANT_ZOO`` has a default.

    Raises:
        UsageError: It cannot be read, or it is no valid job.
    """
    try:
        content = path.read_bytes()
        file = _File.model_validate(tomllib.loads(content.decode("utf-8")))
    except ValidationError as error:
        raise UsageError(f"{path}, {first_mistake(error, _table_at)}") from error
    except OSError as error:
        raise UsageError(f"{path}: the job file cannot be read ({error.strerror}); give the path of a .toml") from error
    except ValueError as error:
        raise UsageError(f"{path}: the job file is no TOML, put it right: {error}") from error
    names = [model.name for model in file.models]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{path}, models: '{name}' is the name of {names.count(name)} models, give each its own")
    return Job(
        name=file.name,
        searches=tuple(_checked(model, file.defaults, path) for model in file.models),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _checked(model: "_Model", defaults: "_Options", path: Path) -> ModelSearch:
    try:
        search = _search(model, defaults, path.parent)
        search.check()
    except AutoquantError as error:
        raise UsageError(f"{path}, model '{model.name}': {error}") from error
    return search


def _search(model: "_Model", defaults: "_Options", folder: Path) -> ModelSearch:
    asked = {name: getattr(defaults, name) for name in defaults.model_fields_set}
    asked |= {name: getattr(model, name) for name in model.model_fields_set}
    options = _Options.model_validate({name: value for name, value in asked.items() if name in _Options.model_fields})
    seconds = options.time
    if seconds is None and options.trials is None:
        seconds = DEFAULT_SECONDS
    return ModelSearch(
        name=model.name,
        model=_located(model.model, folder),
        calibration=_located_data(model.calibration, folder),
        evaluation=_located_data(model.evaluation, folder),
        held_out=_located_data(model.held_out, folder),
        labels=_located_data(model.labels, folder),
        metrics=tuple(model.metrics),
        max_drop=model.max_drop,
        objectives=tuple(options.objectives),
        max_size_bytes=options.max_size,
        targets=tuple(_target(target, options) for target in model.targets or [_Target()]),
        seconds=seconds,
        trials=options.trials,
        space=_located(options.space, folder) if options.space.endswith(".toml") else options.space,
        accuracy=options.accuracy,
        n_regions=options.regions,
        dims=options.dims,
        seed=options.seed,
        demands={int(snr): ratio for snr, ratio in options.demands.items()},
    )


def _target(asked: "_Target", options: "_Options") -> Target:
    return Target(
        ep=options.ep if asked.ep is None else asked.ep,
        threads=options.threads if asked.threads is None else asked.threads,
        options={name: str(value) for name, value in asked.options.items()},
    )


def _located_data(text: str | None, folder: Path) -> str | None:
    return None if text is None else _located(text, folder)


def _located(text: str, folder: Path) -> str:
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):  # example:digits, module:callable
        return text
    with_zoo = re.sub(rf"\$({_ZOO}\b|{{{_ZOO}}})", lambda _: _zoo(), text)
    try:
        return str(folder / Path(os.path.expandvars(with_zoo)).expanduser())
    except RuntimeError as error:
        raise UsageError(f"{text}: there is no home folder of this user, write the path in full") from error


def _zoo() -> str:
    return os.environ.get(_ZOO) or _DEFAULT_ZOO


def _seconds(value: object) -> float:
    try:
        return seconds_of(str(value), "time")
    except AutoquantError as error:
        raise ValueError(str(error).removeprefix(f"time {value}: ")) from error


def _bytes(value: object) -> int:
    """A number in TOML is one of bytes."""
    text = f"{value}B" if isinstance(value, int) else str(value)
    try:
        return bytes_of(text, "max_size")
    except AutoquantError as error:
        raise ValueError(str(error).removeprefix(f"max_size {text}: ")) from error


def _drop(value: object) -> object:
    shares = value.values() if isinstance(value, dict) else [] if value is None else [value]
    if any(isinstance(share, bool) or not isinstance(share, int | float) for share in shares):
        raise ValueError(f"write a share of float's value such as 0.005, or one for each metric, it is {value!r}")
    return value


def _demands(values: dict[str, float]) -> dict[str, float]:
    for snr, ratio in values.items():
        if snr not in map(str, DEMANDS_DB):
            known = ", ".join(f'"{demand}"' for demand in DEMANDS_DB)
            raise ValueError(f"'{snr}' is no SNR in dB that summaries have, choose from: {known}")
        if not 0 < ratio <= 1:
            raise ValueError(f"the ratio demanded at {snr} dB is {ratio}, it must lie in (0, 1]")
    return values


def _file_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", text, re.ASCII):
        raise ValueError(f"'{text}' names files, write letters, digits, '_', '-' and '.' only")
    return text


def _known_example(text: str) -> str:
    name = text.removeprefix("example:")
    if name != text and name not in EXAMPLES:
        raise ValueError(f"example {unknown(name, EXAMPLES)}")
    return text


_Name = Annotated[str, AfterValidator(_file_name)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Options(_Table):
    time: Annotated[float | None, PlainValidator(lambda value: value if value is None else _seconds(value))] = None
    trials: int | None = Field(default=None, ge=1, strict=True)
    objectives: list[str] = Field(default_factory=lambda: ["latency", "snr"])
    max_size: Annotated[int | None, PlainValidator(lambda value: value if value is None else _bytes(value))] = None
    threads: int = Field(default=1, ge=1, le=MAX_THREADS, strict=True)
    ep: str = "cpu"
    space: str = "default"
    accuracy: Annotated[Accuracy | None, Field(strict=False)] = None
    seed: int = Field(default=0, ge=0, le=MAX_SEED, strict=True)
    regions: int = Field(default=N_REGIONS, ge=1, strict=True)
    dims: dict[str, Annotated[int, Field(ge=1, lt=2**31, strict=True)]] = Field(default_factory=dict)
    demands: Annotated[dict[str, Annotated[float, Field(strict=True)]], AfterValidator(_demands)] = Field(
        default_factory=dict
    )


class _Target(_Table):
    ep: str | None = None
    threads: int | None = Field(default=None, ge=1, le=MAX_THREADS, strict=True)
    options: dict[str, StrictStr | StrictInt | StrictFloat] = Field(default_factory=dict)


class _Model(_Options):
    name: _Name
    model: Annotated[str, AfterValidator(_known_example)]
    calibration: str | None = None
    evaluation: str | None = None
    held_out: str | None = None
    labels: str | None = None
    metrics: list[str] = Field(default_factory=list)
    max_drop: Annotated[float | dict[str, float] | None, PlainValidator(_drop)] = None
    targets: list[_Target] = Field(default_factory=list)


class _File(_Table):
    version: Literal[1] = Field(alias="schema")
    name: _Name
    description: str = ""
    defaults: _Options = _Options()
    models: list[_Model] = Field(min_length=1)


def _table_at(location: Location) -> type[_Table]:
    if len(location) == 1:
        return _File
    if location[0] == "defaults":
        return _Options
    return _Target if "targets" in location else _Model
