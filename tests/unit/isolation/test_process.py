import errno
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoquant.errors import DataError, OutputError
from autoquant.isolation.process import SCRATCH, Worker, WorkerLostError, memory_folder
from tests.unit.isolation.servant import Servant, refusing

GB = 10**9
is_linux = sys.platform == "linux"
is_posix = os.name == "posix"


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(Servant, memory_bytes=GB)
    yield made
    made.close()


def test_calls_go_to_one_object_in_another_process(worker: Worker) -> None:
    worker.ready(seconds=60)
    assert [worker.call("count") for _ in range(3)] == [1, 2, 3]
    assert worker.call("pid") == worker.pid != os.getpid()


def test_what_is_printed_there_does_not_get_between_the_answers(worker: Worker) -> None:
    assert worker.call("say", "hello\n" * 100) == "hello\n" * 100
    assert worker.call("count") == 1


def test_an_error_of_ours_comes_back_as_it_was_and_says_where_it_was_raised(worker: Worker) -> None:
    with pytest.raises(DataError, match="these are no data") as caught:
        worker.call("refuse")
    assert "in refuse" in caught.value.__notes__[0]
    assert worker.call("count") == 1


def test_an_error_that_cannot_travel_is_told_in_words(worker: Worker) -> None:
    with pytest.raises(RuntimeError, match="OddError: odd"):
        worker.call("raise_something_odd")


def test_what_the_factory_raised_is_raised_by_every_call() -> None:
    worker = Worker(refusing)
    for _ in range(2):
        with pytest.raises(DataError, match="nothing can be made"):
            worker.call("count")
    worker.close()


def test_a_process_that_cannot_be_told_what_to_make_is_not_left_behind() -> None:
    worker = Worker(lambda: None)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        worker.start()
    assert not worker.is_running
    worker.factory = Servant
    assert worker.call("count") == 1
    worker.close()


def test_a_crash_is_told_and_the_next_call_begins_anew(worker: Worker) -> None:
    assert worker.call("count") == 1
    with pytest.raises(WorkerLostError, match="SIGSEGV") as lost:
        worker.call("crash")
    assert not lost.value.is_late
    assert not worker.is_running
    assert worker.call("count") == 1


def test_another_thread_can_give_up_what_a_call_waits_for(worker: Worker) -> None:
    worker.give_up()  # there is no process
    worker.ready()
    worker.give_up()  # nobody waits
    assert worker.call("count") == 1
    impatient = threading.Timer(0.2, worker.give_up)
    impatient.start()
    with pytest.raises(WorkerLostError):
        worker.call("hang", seconds=300)
    impatient.join()
    assert worker.call("count") == 1


def test_whoever_gives_no_answer_in_time_is_ended(worker: Worker) -> None:
    worker.ready()
    start = time.perf_counter()
    with pytest.raises(WorkerLostError) as lost:
        worker.call("hang", seconds=0.3)
    assert lost.value.is_late
    assert time.perf_counter() - start < 60
    assert worker.call("count", seconds=60) == 1


def test_an_answer_at_the_very_end_of_its_time_is_either_late_or_leaves_the_process_alone(worker: Worker) -> None:
    worker.ready()
    usual = []
    for _ in range(20):
        start = time.perf_counter()
        worker.call("count")
        usual.append(time.perf_counter() - start)
    lost: list[WorkerLostError] = []
    for k in range(30):
        worker.ready()
        try:
            worker.call("count", seconds=sorted(usual)[10] * (0.7 + 0.02 * k))
            worker.call("count")
        except WorkerLostError as error:
            lost.append(error)
    assert all(error.is_late for error in lost)


@pytest.mark.skipif(not is_linux, reason="only Linux limits the memory of a process")
def test_whoever_wants_more_memory_than_allowed_gets_none(worker: Worker) -> None:
    with pytest.raises(MemoryError):
        worker.call("eat", seconds=120)
    assert worker.call("count") == 1


def test_where_the_memory_of_the_system_cannot_be_written_files_go_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SCRATCH, raising=False)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert memory_folder() is None


def test_last_words_are_the_reason(worker: Worker) -> None:
    with pytest.raises(WorkerLostError, match="ended with code 3: no device left"):
        worker.call("leave")


def test_what_was_said_in_an_earlier_call_is_no_reason(worker: Worker) -> None:
    worker.call("complain")
    worker.call("warn")
    with pytest.raises(WorkerLostError) as lost:
        worker.call("crash")
    assert str(lost.value) == "its process was ended by SIGSEGV"
    with pytest.raises(WorkerLostError, match="no device left"):
        worker.call("leave")


def test_what_the_package_warns_of_there_is_logged_here_once(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    worker.call("warn")
    worker.call("count")
    assert caplog.record_tuples == [("autoquant", logging.WARNING, "the recipe u8 doesn't run")]


@pytest.mark.skipif(not hasattr(os, "pread"), reason="the system cannot read without moving where others write")
def test_what_is_printed_there_is_logged_here_once(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "autoquant")
    worker.call("speak", "one")
    worker.call("speak", "two")
    assert worker.call("count") == 1
    assert sorted(caplog.messages) == ["and one", "and two", "one", "two"]


def test_a_process_stays_on_its_cores() -> None:
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("the system has no affinity")
    core = min(os.sched_getaffinity(0))
    worker = Worker(Servant, affinity=(core,))
    assert worker.call("cores") == {core}
    worker.close()


def test_ctrl_c_does_not_reach_it_and_an_unfinished_call_ends_it(worker: Worker) -> None:
    worker.ready()
    pid = worker.call("pid")

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            worker.call("hang")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not _is_alive(pid)
    assert worker.call("count") == 1


@pytest.mark.skipif(not is_posix, reason="only POSIX has signals for processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_ends_all_processes_politely_leaves_it_to_its_parent(worker: Worker, number: signal.Signals) -> None:
    worker.ready()
    assert worker.pid is not None
    os.kill(worker.pid, number)
    assert worker.call("count") == 1
    assert worker.call("pid") == worker.pid


@pytest.mark.skipif(not is_posix, reason="only POSIX has signals for processes")
@pytest.mark.parametrize("begin", ["fork", "run"])
def test_what_it_has_started_ends_when_it_is_told_to(worker: Worker, begin: str) -> None:
    helper = worker.call(begin)
    assert worker.call("terminate", helper, seconds=30) == -signal.SIGTERM


@pytest.mark.skipif(not is_posix, reason="only POSIX has groups of processes")
@pytest.mark.parametrize("begin", ["fork", "run"])
@pytest.mark.parametrize("end", ["crash", "hang", "close"])
def test_what_it_has_started_ends_with_it(worker: Worker, begin: str, end: str) -> None:
    helper = worker.call(begin)
    if end == "close":
        worker.close()
    else:
        with pytest.raises(WorkerLostError) as lost:
            worker.call(end, seconds=30 if end == "crash" else 0.3)
        assert lost.value.is_late == (end == "hang")
    assert _ends(helper)


@pytest.mark.skipif(not is_posix, reason="there is no cat")
def test_nobody_else_reads_what_it_is_asked(worker: Worker) -> None:
    assert worker.call("read", seconds=30) == ""
    assert worker.call("read_in_a_program", seconds=30) == b""
    assert worker.call("count") == 1


@pytest.mark.skipif(not is_linux, reason="only Linux ends a process with its parent")
def test_it_ends_with_its_parent_even_in_the_middle_of_a_call(tmp_path: Path) -> None:
    code = (
        "from autoquant.isolation.process import Worker\n"
        "from tests.unit.isolation.servant import Servant\n"
        "w = Worker(Servant); print(w.call('pid'), flush=True); w.call('hang')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert _ends(pid)


def _ends(pid: int) -> bool:
    """Within some seconds."""
    end = time.perf_counter() + 20
    while _is_alive(pid) and time.perf_counter() < end:
        time.sleep(0.01)
    return not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_what_lies_in_the_current_folder_is_no_module_of_it(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("signal", "pickle", "autoquant"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is another module')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))
    assert worker.call("count") == 1


def test_without_a_place_for_temporary_files_no_process_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    worker = Worker(Servant)
    with pytest.raises(OutputError, match=r"temporary files cannot be written .* set TMPDIR"):
        worker.start()
    assert not worker.is_running
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert worker.call("count") == 1
    worker.close()


def test_where_no_folder_can_be_made_in_memory_one_among_temporary_files_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRATCH, str(tmp_path / "gone"))
    worker = Worker(Servant)
    assert worker.call("count") == 1
    worker.close()


def test_a_process_that_cannot_be_started_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    worker = Worker(Servant)
    with monkeypatch.context() as patch:
        patch.setattr("autoquant.isolation.process.subprocess.Popen", refuse)
        with pytest.raises(OutputError, match=r"cannot be started \(Resource temporarily unavailable\); end other"):
            worker.start()
    assert worker.call("count") == 1
    worker.close()
