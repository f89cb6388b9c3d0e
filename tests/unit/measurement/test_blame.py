from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoquant.errors import ModelError, OutputError, TargetError
from autoquant.isolation.process import Worker, WorkerLostError
from autoquant.measurement.blame import LONGEST_START_S, NOT_TRIED, blamed

FILES = {name: Path(f"{name}.onnx") for name in ("first", "second", "third")}
Call = tuple[str, tuple[Any, ...], float | None]


@dataclass
class Told(Worker):
    """A process that is never started: calls with some first argument or of some method raise, all are kept."""

    fails: Mapping[object, Exception] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    is_closed: bool = False

    def ready(self, *, seconds: float | None = None) -> None:
        self.call("ready", seconds=seconds)

    def call(self, method: str, *arguments: Any, seconds: float | None = None) -> None:
        assert not self.is_closed
        self.calls.append((method, arguments, seconds))
        for asked in (method, *arguments[:1]):
            if asked in self.fails:
                raise self.fails[asked]

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Processes:
    """Makes them, of which each fails in its own way; those beyond do not fail."""

    fails: list[Mapping[object, Exception]] = field(default_factory=list)
    made: list[Told] = field(default_factory=list)

    def __call__(self) -> Worker:
        assert all(worker.is_closed for worker in self.made), "one after the other"
        fails = self.fails[len(self.made)] if len(self.made) < len(self.fails) else {}
        self.made.append(Told(object, fails=fails))
        return self.made[-1]


def blamed_by(
    processes: Processes, *, is_over: Callable[[], bool] = lambda: False, method: str = "compare"
) -> dict[str, str]:
    found = blamed(FILES, ["one", "two"], processes, seconds=7.0, is_over=is_over, method=method)
    assert all(worker.is_closed for worker in processes.made)
    return found


@pytest.mark.parametrize("method", ["compare", "time"])
def test_each_file_is_opened_in_a_process_of_its_own_and_run_once_on_every_target(method: str) -> None:
    processes = Processes()
    assert blamed_by(processes, method=method) == {}
    assert [worker.calls for worker in processes.made] == [
        [
            ("ready", (), LONGEST_START_S),
            ("open", (name, path), 7.0),
            (method, ("one", range(1)), 7.0),
            (method, ("two", range(1)), 7.0),
        ]
        for name, path in FILES.items()
    ]


@pytest.mark.parametrize("asked", ["open", "one", "two"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (WorkerLostError("its process was ended by SIGSEGV"), "its process was ended by SIGSEGV"),
        (ModelError("second.onnx: onnxruntime cannot open it"), "second.onnx: onnxruntime cannot open it"),
        (MemoryError(), "there is not enough memory"),
    ],
)
def test_a_file_that_does_not_come_through_has_its_reason_and_the_others_are_tried(
    asked: str, error: Exception, reason: str
) -> None:
    processes = Processes([{}, {asked: error}])
    assert blamed_by(processes) == {"second": reason}
    assert len(processes.made) == 3


def test_without_time_only_the_first_file_is_tried() -> None:
    processes = Processes([{"open": MemoryError()}])
    found = blamed_by(processes, is_over=lambda: True)
    assert found == {"first": "there is not enough memory", "second": NOT_TRIED, "third": NOT_TRIED}
    assert len(processes.made) == 1


def test_files_are_tried_until_the_time_is_over() -> None:
    processes = Processes()
    assert blamed_by(processes, is_over=lambda: len(processes.made) == 2) == {"third": NOT_TRIED}


@pytest.mark.parametrize(
    "fails",
    [
        {"ready": WorkerLostError("it gave no answer")},
        {"ready": OutputError("a process cannot be started")},
        {"ready": MemoryError()},
        {"open": OutputError("there is no place for temporary files")},
        {"one": TargetError("there is no such device")},
    ],
)
def test_what_no_file_is_to_blame_for_ends_the_search_for_one(fails: Mapping[object, Exception]) -> None:
    processes = Processes([{"two": MemoryError()}, fails])
    assert blamed_by(processes) == {"first": "there is not enough memory"}
    assert len(processes.made) == 2


def test_a_fault_of_our_own_is_raised() -> None:
    processes = Processes([{"open": ZeroDivisionError()}])
    with pytest.raises(ZeroDivisionError):
        blamed_by(processes)
    assert processes.made[0].is_closed


def test_of_no_files_none_is_to_blame() -> None:
    processes = Processes()
    assert blamed({}, ["one"], processes, seconds=None, is_over=lambda: False) == {}
    assert processes.made == []


def test_a_process_that_fails_before_a_file_is_closed_whatever_the_reason() -> None:
    processes = Processes([{"ready": ModelError("the float model cannot be opened")}])
    with pytest.raises(ModelError, match="the float model"):
        blamed_by(processes)
    assert [worker.is_closed for worker in processes.made] == [True]
