"""Processes of a last measurement that move a clock, and what is measured with them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoquant.domain.feed import Feed
from autoquant.domain.measurement import Footprint
from autoquant.domain.quality import QualityMeter
from autoquant.domain.target import Target
from autoquant.errors import TargetError
from autoquant.measurement import joint
from autoquant.measurement.conditions import Watch
from autoquant.measurement.costs import STARTING_S, FileCosts
from autoquant.measurement.files import Compared, FileBenchSetup, Round
from autoquant.measurement.joint import JointMeasurement
from autoquant.measurement.latency import REFERENCE
from tests.fakes import FakeClock
from tests.models import floats

FILES = {f"t{number}": Path(f"t{number}.onnx") for number in range(20)}
OPENING_S, REFERENCE_S = 0.1, 1.0
N_WARMUPS = 3


@dataclass
class Process:
    """What a process of a ``FileBench`` would answer, and what that takes.

    Attributes:
        clock: Moved by every answer.
        file_s: Of one file in one round, by target.
        opening_s: Of one file, beside running it once.
        reference_s: Of the baseline on a sample on the CPU provider.
        not_on_cpu: Why the baseline is opened on the targets alone.
        is_beside: Whether outputs are compared with those of the baseline on the same target.
        broken: Processes in which the execution provider does not start, by number.
        asked: Rounds that were asked for at once, with their target.
        compared: Files whose outputs were asked for at once, with their target.
    """

    clock: FakeClock
    file_s: Mapping[str, float]
    opening_s: float = OPENING_S
    reference_s: float = 0.0
    not_on_cpu: str = ""
    is_beside: bool = True
    broken: Sequence[int] = ()
    opened: list[str] = field(default_factory=list)
    asked: list[tuple[str, int]] = field(default_factory=list)
    compared: list[tuple[str, int]] = field(default_factory=list)
    n_started: int = 0

    def __call__(self, *_: object, **__: object) -> "Process":
        self.opened, self.n_started = [], self.n_started + 1
        return self

    def ready(self, **_: object) -> None:
        self.clock.now += STARTING_S

    def close(self) -> None:
        """Nothing runs."""

    def call(self, method: str, *arguments: Any, **_: object) -> Any:
        return getattr(self, f"_{method}")(*arguments)

    def _open(self, key: str, _: Path) -> Mapping[str, Footprint]:
        if self.n_started - 1 in self.broken:
            raise TargetError("the execution provider does not start here")
        self.clock.now += self.opening_s + sum(self.file_s.values())
        self.opened.append(key)
        return {target: Footprint(opening_ms=1e3 * self.opening_s, memory_mb=None) for target in self.file_s}

    def _drop(self, keys: Sequence[str]) -> None:
        self.opened = [key for key in self.opened if key not in keys]

    def _open_reference(self) -> str:
        self.clock.now += REFERENCE_S
        return self.not_on_cpu

    def _warm_up(self, _: float) -> None:
        self.clock.now += N_WARMUPS * sum(map(self._round_s, self.file_s))

    def _round_s(self, target: str) -> float:
        return len(self.opened) * self.file_s[target]

    def _compare(self, target: str, samples: Sequence[int]) -> Compared:
        n_files = len(self.opened) - 1
        self.compared.append((target, n_files))
        self.clock.now += len(samples) * (self.reference_s + n_files * self.file_s[target])
        meters = {key: QualityMeter(["y"]) for key in self.opened if key != REFERENCE}
        seconds = {REFERENCE: [self.reference_s], **{key: [self.file_s[target]] for key in meters}}
        rounds = tuple(Round(seconds, is_repeated=False) for _ in samples)
        return Compared(meters=meters, failed={}, rounds=rounds, is_beside=self.is_beside)

    def _time(self, target: str, samples: Sequence[int]) -> list[Round]:
        self.asked.append((target, len(samples)))
        self.clock.now += len(samples) * self._round_s(target)
        seconds = {key: [self.file_s[target]] for key in self.opened}
        return [Round(seconds, is_repeated=False) for _ in samples]


def measured(
    monkeypatch: pytest.MonkeyPatch,
    process: Process,
    seconds: float,
    *,
    n_feeds: int = 32,
    narrow: float = -1.0,
    files: Mapping[str, Path] = FILES,
    **known: Any,
) -> JointMeasurement:
    """A measurement of files within these seconds, on a machine that does nothing else."""
    monkeypatch.setattr(joint, "Worker", process)
    monkeypatch.setattr(joint, "Watch", lambda: Watch(read=lambda: None))
    monkeypatch.setattr("autoquant.measurement.joint.time.perf_counter", process.clock)
    feeds: list[Feed] = [{"x": floats(1, 2)}] * n_feeds
    targets = [Target(threads=threads) for threads in range(1, 1 + len(process.file_s))]
    setup = FileBenchSetup(baseline=Path("float.onnx"), feeds=feeds, targets=targets, seed=0)
    final = JointMeasurement(setup, files, process.clock.now + seconds, narrow=narrow, **known)
    final.run()
    return final


def rounds_of(final: JointMeasurement, target: str) -> list[int]:
    """How many each process ran."""
    return list(Counter(number for number, name, _ in final.rounds if name == target).values())


def planned(process: Process, latency_s: float) -> float:
    """Seconds that a search would keep for it."""
    costs = FileCosts(n_samples=32, opening_s=process.opening_s)
    return (1 + len(FILES)) * costs.seconds(latency_s, is_rough=False) + REFERENCE_S + 3 * STARTING_S
