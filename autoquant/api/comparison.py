"""Any models against the first one: which is faster, as far as that can be shown."""

import math
import numbers
import os
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd

from autoquant.api import steps
from autoquant.api.configuration import check_seed, check_targets
from autoquant.api.folder import enough_room
from autoquant.calibration.batches import batched, check_samples, read_samples
from autoquant.calibration.sources import DataSource
from autoquant.domain.arguments import check_several, check_type
from autoquant.domain.counted import counted
from autoquant.domain.feed import InputSignature, Samples
from autoquant.domain.objective import clamped_db
from autoquant.domain.target import Target
from autoquant.errors import ModelError, UsageError
from autoquant.measurement.conditions import crowded_sentences
from autoquant.measurement.files import FileBenchSetup
from autoquant.measurement.intervals import SessionInterval, are_narrow
from autoquant.measurement.joint import JointMeasurement
from autoquant.measurement.judging import Wishes
from autoquant.measurement.latency import REFERENCE
from autoquant.measurement.measured import Measured
from autoquant.model.io import files_of, input_signatures, load_skeleton, non_tensors, output_dtypes
from autoquant.model.numbers import number_outputs_of
from autoquant.runtime.environment import describe_environment
from autoquant.runtime.providers import provider_of

__all__ = ["Comparison", "Verdict", "compare"]

_LEAST_SESSIONS = 5
_MOST_SESSIONS = 40
_MOST_PRECISION = 0.5
_COMPARING_SHARE = 0.25
"""Of the time, for comparing outputs."""


class Verdict(StrEnum):
    """What can be said of a model beside the baseline, at the 95 % level."""

    BASELINE = "baseline"
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference shown"
    UNKNOWN = "too little time"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Models measured together.

    Attributes:
        models: Their files, the baseline first.
        measured: What was measured of each, in that order.
        targets: Where.
        environment: Machine and versions.
        seconds: That it took.
        notes: What disturbed the measurement, and what to do about it.
    """

    models: tuple[Path, ...]
    measured: tuple[Measured, ...]
    targets: tuple[Target, ...]
    environment: Mapping[str, object]
    seconds: float
    notes: tuple[str, ...] = ()

    def verdict(self, index: int, target: str) -> Verdict:
        """Of one model on one target."""
        if index == 0:
            return Verdict.BASELINE
        interval = self.measured[index].ratio.get(target)
        return Verdict.UNKNOWN if interval is None else _verdict(interval)

    @property
    def table(self) -> pd.DataFrame:
        """One row per model and target.

        Columns: model, target, verdict, ratio with the 95 % interval ratio_low to ratio_high of its mean over
        processes, median_ms with low_ms to high_ms, where the median of a further process lies with 95 %, p90_ms,
        p99_ms, opening_ms, memory_mb, snr_db against the baseline where outputs can be compared, n_sessions, n_rounds.
        """
        return pd.DataFrame(
            [self._row(index, target.name) for index in range(len(self.models)) for target in self.targets]
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The table in words, for a terminal; what there is to say of it is in ``verdicts``."""
        return [(self._names[row["model"]], *_cells(row)) for row in self.table.to_dict("records")]

    @property
    def verdicts(self) -> list[str]:
        """A sentence for each model but the baseline, and each target."""
        names = [self._names[str(path)] for path in self.models]
        return [
            f"{name}{f' on {target.name}' if len(self.targets) > 1 else ''}: {self.verdict(index, target.name)}"
            for index, name in enumerate(names)
            for target in self.targets
            if index
        ]

    @property
    def _names(self) -> dict[str, str]:
        """Of the files, without their folders where that is enough."""
        is_enough = len({path.name for path in self.models}) == len(self.models)
        return {str(path): path.name if is_enough else str(path) for path in self.models}

    @property
    def sentence(self) -> str:
        """What is behind the numbers."""
        latency = next(iter(self.measured[0].latency.values()))
        rounds, processes = counted(latency.n_rounds, "round"), counted(latency.n_sessions, "process")
        return f"{rounds} in {processes}, {self.seconds:.0f} s"

    def as_dict(self) -> dict[str, object]:
        """For JSON: the table, what is not known as null, and the environment.

        An SNR is clamped to plus or minus ``SNR_LIMIT_DB``, as in ``front.json``.
        """
        rows = [
            {str(name): _plain(str(name), value) for name, value in row.items()}
            for row in self.table.to_dict("records")
        ]
        return {
            "schema_version": 1,
            "rows": rows,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
            "environment": dict(self.environment),
        }

    def _row(self, index: int, target: str) -> dict[str, object]:
        found = self.measured[index]
        latency, footprint, interval = found.latency[target], found.footprint[target], found.ratio.get(target)
        return {
            "model": str(self.models[index]),
            "target": target,
            "verdict": str(self.verdict(index, target)),
            "ratio": interval.value if interval else latency.ratio,
            "ratio_low": interval.low if interval else math.nan,
            "ratio_high": interval.high if interval else math.nan,
            "median_ms": latency.median_ms,
            "low_ms": latency.low_ms,
            "high_ms": latency.high_ms,
            "p90_ms": latency.p90_ms,
            "p99_ms": latency.p99_ms,
            "opening_ms": footprint.opening_ms,
            "memory_mb": footprint.memory_mb,
            "snr_db": found.judged.quality.worst_db if found.judged.quality else math.nan,
            "n_sessions": latency.n_sessions,
            "n_rounds": latency.n_rounds,
        }


def _cells(row: Mapping[Hashable, Any]) -> tuple[str, ...]:
    interval = "" if math.isnan(row["ratio_low"]) else f"{row['ratio_low']:.3f}-{row['ratio_high']:.3f}"
    memory = "" if pd.isna(row["memory_mb"]) else f"{row['memory_mb']:.0f}"
    snr = "" if pd.isna(row["snr_db"]) else f"{row['snr_db']:.1f}"
    return (
        f"{row['ratio']:.3f}",
        interval if row["verdict"] != Verdict.BASELINE else "",
        f"{row['median_ms']:.3f}",
        f"{row['p99_ms']:.3f}",
        snr,
        f"{row['opening_ms']:.0f}",
        memory,
    )


def _verdict(interval: SessionInterval) -> Verdict:
    if interval.high < 1:
        return Verdict.FASTER
    return Verdict.SLOWER if interval.low > 1 else Verdict.SAME


@dataclass(frozen=True, slots=True)
class _Ports:
    """What goes into a model and comes out; its weights are not held while it is measured.

    Attributes:
        path: The model.
        inputs: All of them tensors.
        outputs: Their names.
        dtypes: Of those that are tensors.
        other_outputs: Those that are no tensors.
        numbers: Those of integers that have an SNR.
    """

    path: Path
    inputs: tuple[InputSignature, ...]
    outputs: tuple[str, ...]
    dtypes: Mapping[str, str]
    other_outputs: tuple[str, ...]
    numbers: frozenset[str]


def _ports(path: Path) -> _Ports:
    model = load_skeleton(path)
    missing = next((file for file in files_of(path) if not file.is_file()), None)
    if missing is not None:
        raise ModelError(f"{path}: there is no {missing}, which holds external data; put all of them beside the model")
    for name in non_tensors(model.graph.input):
        raise ModelError(f"{path}: input '{name}' is no tensor, so that no data fit it; leave the model out")
    return _Ports(
        path=path,
        inputs=input_signatures(model),
        outputs=tuple(output.name for output in model.graph.output),
        dtypes=output_dtypes(model),
        other_outputs=tuple(non_tensors(model.graph.output)),
        numbers=number_outputs_of(path),
    )


def _samples(
    data: DataSource, paths: Sequence[Path], signatures: Sequence[tuple[InputSignature, ...]], batch: int
) -> Samples:
    """Read once, for the first model; that they fit the others is checked where those have other inputs."""
    first, *others = signatures
    samples = batched(read_samples(data, first, role="evaluation"), first, batch)
    for path, inputs in zip(paths[1:], others, strict=True):
        if {each.name for each in inputs} != {each.name for each in first}:
            own, taken = (", ".join(f"'{each.name}'" for each in ends) for ends in (inputs, first))
            raise ModelError(f"{path}: it takes {own}, and {paths[0]} {taken}; compare models with the same inputs")
    for inputs in dict.fromkeys(others):
        if inputs != first:
            check_samples(samples, inputs)
    return samples


def _why_imprecise(paths: Sequence[Path], measured: Mapping[str, Measured], precision: float) -> list[str]:
    """A sentence where the time or the most processes came before the precision; none where there is no interval."""
    found = {
        (key, target): interval
        for key, each in measured.items()
        for target, interval in each.ratio.items()
        if key != REFERENCE and not are_narrow([interval], precision)
    }
    if not found:
        return []
    key, target = max(found, key=lambda pair: _half_share(found[pair]))
    n_sessions = measured[key].latency[target].n_sessions
    hint = "give more time" if n_sessions < _MOST_SESSIONS else "these are the most, ask for less precision"
    return [
        f"the precision of {100 * precision:g}% was missed: half the interval of {paths[int(key)]} is"
        f" {_half_share(found[key, target]):.2%} of its ratio after {n_sessions} processes; {hint} or quiet the machine"
    ]


def _half_share(interval: SessionInterval) -> float:
    return (interval.high - interval.low) / (2 * interval.value)


def _plain(column: str, value: object) -> object:
    """As JSON can say it."""
    if isinstance(value, float) and column == "snr_db" and not math.isnan(value):
        return clamped_db(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _why_no_snr(models: Sequence[_Ports]) -> list[str]:
    """A sentence where outputs cannot be compared."""
    for model in models:
        for name in model.other_outputs:
            return [f"no SNR: output '{name}' of {model.path} is no tensor, so that outputs are not compared"]
    first = models[0].outputs
    for model in models:
        if model.outputs != first:
            others = ", ".join(model.outputs)
            return [f"no SNR: {model.path} has other outputs ({others}) than the first ({', '.join(first)})"]
        for name, dtype in model.dtypes.items():
            expected = models[0].dtypes.get(name, dtype)
            if _kind(dtype) != _kind(expected):
                return [f"no SNR: output '{name}' of {model.path} is {dtype}, that of the first {expected}"]
    return []


def _kind(dtype: str) -> str:
    """Of one kind are those whose values mean the same, as far as they go: float16 and float32, int32 and int64."""
    return dtype.rstrip("0123456789").removeprefix("b" if dtype.startswith("bfloat") else "")


def _check(paths: Sequence[Path], targets: Sequence[Target], *, seconds: float, precision: float, seed: int) -> None:
    if len(paths) < 2:
        raise UsageError(f"{counted(len(paths), 'model')} to compare, give at least two")
    for name, number in (("the time", seconds), ("the precision", precision)):
        check_type(name, number, numbers.Real, "a number")
    if not 0 < seconds <= math.inf:
        raise UsageError(f"the time is {seconds} s, it must be positive")
    if not 0 < precision <= _MOST_PRECISION:
        raise UsageError(f"the precision is {precision}, it must lie above 0 and at most at {_MOST_PRECISION}")
    check_seed(seed)
    check_targets(targets)
    for target in targets:
        provider_of(target.ep)


def compare(
    models: Sequence[str | os.PathLike[str]],
    data: DataSource,
    *,
    targets: Sequence[Target] = (Target("cpu"),),
    seconds: float = 60.0,
    precision: float = 0.01,
    seed: int = 0,
) -> Comparison:
    """Measure models together, in rounds that all of them share, in several fresh processes.

    Processes are added until every ratio is known to ``precision``, or the time is over; whether a difference shows by
    then has no influence on when it ends, so that the intervals hold. Outputs are compared on as many samples as a
    quarter of the time allows for; the notes say where these are not all.

    Args:
        models: At least two files; the first one is the baseline.
        data: Samples that all of them take.
        targets: Where they are timed.
        seconds: At most, but for the first process, which compares and times a few samples in any case.
        precision: Half the 95 % interval of a ratio, as a share of it; the notes say where it was missed.
        seed: Of orders.

    Raises:
        AutoquantError: A model cannot be opened, or the data do not fit.
    """
    started = time.perf_counter()
    check_several("models", models, (str, os.PathLike), "paths, the baseline first")
    check_several("targets", targets, Target, "targets, e.g. [Target('cpu')]")
    paths = tuple(steps.model_path(model) for model in models)
    _check(paths, targets, seconds=seconds, precision=precision, seed=seed)
    with enough_room(paths[0]), steps.running(paths[0]):
        ports = [_ports(path) for path in paths]
        samples = _samples(data, paths, [each.inputs for each in ports], targets[0].batch)
        why_no_snr = _why_no_snr(ports)
        joint = JointMeasurement(
            FileBenchSetup(
                baseline=paths[0],
                feeds=samples.feeds,
                targets=tuple(targets),
                seed=seed,
                sample_names=samples.names,
                numbers=ports[0].numbers,
            ),
            {str(index): path for index, path in enumerate(paths) if index},
            started + seconds,
            n_sessions=_MOST_SESSIONS,
            least_sessions=_LEAST_SESSIONS,
            narrow=precision,
            has_quality=not why_no_snr,
            wishes=Wishes(may_drop=False, comparing_share=_COMPARING_SHARE),
        )
        measured = joint.run()
    for key, reason in joint.lost.items():
        path = paths[int(key)]
        raise ModelError(f"{path}: {reason.removeprefix(f'{path}: ')}; leave it out")
    return Comparison(
        models=paths,
        measured=(measured[REFERENCE], *(measured[str(index)] for index in range(1, len(paths)))),
        targets=tuple(targets),
        environment=describe_environment(),
        seconds=time.perf_counter() - started,
        notes=(*crowded_sentences(targets), *why_no_snr, *joint.notes, *_why_imprecise(paths, measured, precision)),
    )
