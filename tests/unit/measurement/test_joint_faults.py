"""Files that fail, processes that are lost, and too many files for one."""

import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autoquant.errors import ModelError
from autoquant.isolation.process import WorkerLostError
from autoquant.measurement.blame import NOT_TRIED
from autoquant.measurement.files import FileBenchSetup
from autoquant.measurement.joint import JointMeasurement
from autoquant.measurement.judging import Wishes
from autoquant.measurement.latency import REFERENCE
from tests.benches import FailsOn, FailsTogether
from tests.models import model_of, saved
from tests.unit.measurement.joints import measurement, setup_of


def _plain(setup: FileBenchSetup) -> tuple[object, ...]:
    return setup.baseline, setup.feeds, setup.targets, setup.seed


@pytest.mark.parametrize(
    ("fault", "file_s", "reason"), [("crash", None, "SIGSEGV"), ("hang", 5.0, "no answer"), ("lack", None, "memory")]
)
def test_a_file_that_ends_its_process_is_dropped_with_its_reason_and_the_others_are_measured(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, fault: str, file_s: float | None, reason: str
) -> None:
    monkeypatch.setattr(
        FileBenchSetup, "__reduce__", lambda setup: (FailsOn, ("other", fault, _plain(setup))), raising=False
    )
    final = measurement(files, n_sessions=2)
    final.file_s = file_s
    found = final.run()
    assert found.keys() == {"same", REFERENCE}
    assert reason in final.lost["other"]
    assert found["same"].latency["cpu-1t"].n_sessions == 2


def test_where_a_process_is_lost_and_the_time_is_over_the_most_important_file_is_tried_alone(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = (FailsOn, ("other", "crash", _plain(setup_of(files))))
    monkeypatch.setattr(FileBenchSetup, "__reduce__", lambda _: fails, raising=False)
    final = measurement({**files, "third": files["same"]}, seconds=-1)
    assert final.run().keys() == {"same", REFERENCE}
    assert final.lost == {"other": NOT_TRIED, "third": NOT_TRIED}


@pytest.mark.parametrize("fault", ["crash", "lack"])
def test_a_file_that_was_measured_is_not_lost_by_a_later_process(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    final = measurement(files)
    whole = JointMeasurement._session

    def failing_from_the_second_on(joint: JointMeasurement, number: int) -> None:
        if number:
            fails = (FailsOn, ("other", fault, _plain(final.setup)))
            monkeypatch.setattr(FileBenchSetup, "__reduce__", lambda _: fails, raising=False)
            monkeypatch.setattr(final, "deadline", time.perf_counter() - 1)
        whole(joint, number)

    monkeypatch.setattr(JointMeasurement, "_session", failing_from_the_second_on)
    found = final.run()
    assert found.keys() == {"same", "other", REFERENCE}
    assert found["other"].latency["cpu-1t"].n_sessions == 1


def test_what_was_measured_is_kept_where_a_later_process_has_no_place_for_its_files(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = measurement(files, n_sessions=3)
    whole = JointMeasurement._session

    def without_a_place_from_the_second_on(joint: JointMeasurement, number: int) -> None:
        if number:
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        whole(joint, number)

    monkeypatch.setattr(JointMeasurement, "_session", without_a_place_from_the_second_on)
    found = final.run()
    assert found.keys() == {"same", "other", REFERENCE}
    assert found["other"].latency["cpu-1t"].n_sessions == 1
    assert any("after 1 process no further one could be measured: temporary files" in note for note in final.notes)


@pytest.mark.parametrize("fault", ["lack", "crash"])
@pytest.mark.parametrize("method", ["open", "compare"])
def test_where_files_are_too_many_for_one_process_the_important_half_is_measured(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, method: str, fault: str
) -> None:
    """The baseline is opened last: there is no room left for it, or the system ends the process without a reason."""
    several = {**files, "third": files["other"], "fourth": files["other"]}
    final = too_many(several, monkeypatch, method, fault, most=3)
    found = final.run()
    assert found.keys() == {"same", "other", REFERENCE}
    assert found["other"].latency["cpu-1t"].n_sessions == 2
    assert not final.lost
    assert final.notes[0].startswith("left out, as together they could not be measured: 2 of 4 files, ")
    assert sum("together" in note for note in final.notes) == 1


def test_files_are_halved_until_there_is_room_and_without_those_that_are_broken(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    files["same"].write_bytes(b"")
    several = {**files, **dict.fromkeys(("third", "fourth", "fifth"), files["other"])}
    final = too_many(several, monkeypatch, "compare", "lack", most=2)
    assert final.run().keys() == {"other", REFERENCE}
    assert final.lost.keys() == {"same"}
    assert final.notes[0].startswith("left out, as together they could not be measured: 3 of 5 files, ")


def order_of(keys: list[str], seed: int) -> list[str]:
    random.Random(seed).shuffle(keys)
    return keys


def too_many(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, method: str, fault: str, most: int
) -> JointMeasurement:
    """Of two processes; in the first one the baseline is opened last."""
    final = measurement(files, n_sessions=2)
    seed = 0
    while order_of([REFERENCE, *final.files], seed)[-1] != REFERENCE:
        seed += 1
    final.setup = replace(final.setup, seed=seed)
    fails = FailsTogether, (method, most, fault, _plain(final.setup))
    monkeypatch.setattr(FileBenchSetup, "__reduce__", lambda _: fails, raising=False)
    return final


def test_files_that_may_not_be_dropped_are_not_halved(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    final = too_many(files, monkeypatch, "compare", "lack", most=2)
    final.wishes = Wishes(may_drop=False)
    with pytest.raises(MemoryError):
        final.run()


def test_processes_that_are_lost_for_no_reason_of_a_file_leave_what_was_measured(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    final, session = measurement(files, n_sessions=4), JointMeasurement._session

    def fragile(self: JointMeasurement, number: int) -> None:
        if number == 2:
            raise WorkerLostError("its process was ended by SIGKILL")
        session(self, number)

    monkeypatch.setattr(JointMeasurement, "_session", fragile)
    found = final.run()
    assert found["same"].latency["cpu-1t"].n_sessions == 2
    assert final.notes[0] == "after 2 processes no further one could be measured: its process was ended by SIGKILL"


def test_where_outputs_cannot_be_compared_a_lost_process_is_explained_by_running_each_file(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        FileBenchSetup, "__reduce__", lambda setup: (FailsOn, ("other", "crash", _plain(setup))), raising=False
    )
    more = model_of("(float[1,3,8,8] x) => (float[1,3,8,8] y, float[1,3,8,8] z)", "y = Relu(x) z = Sin(x)", {})
    final = measurement({**files, "more": saved(more, files["same"].with_name("more.onnx"))}, n_sessions=1)
    final.has_quality = False
    assert final.run().keys() == {"same", "more", REFERENCE}
    assert "SIGSEGV" in final.lost["other"]


def test_a_file_that_cannot_be_opened_is_dropped_with_its_reason(files: dict[str, Path]) -> None:
    files["same"].write_bytes(b"")
    final = measurement(files, n_sessions=1)
    assert final.run().keys() == {"other", REFERENCE}
    assert "same.onnx: onnxruntime cannot open it" in final.lost["same"]


def test_a_baseline_that_cannot_be_opened_is_a_model_error(files: dict[str, Path]) -> None:
    files["baseline"].write_bytes(b"")
    with pytest.raises(ModelError, match=r"float\.onnx"):
        measurement(files).run()
