"""An object in a process of its own."""

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any

from autoquant.domain.reason import one_line, temporary_files
from autoquant.errors import OutputError
from autoquant.isolation.messages import PYTHONPATH_BEFORE, Answer, Request, Start, receive, send
from autoquant.isolation.patience import Patience
from autoquant.isolation.scratch import Scratch

__all__ = ["SCRATCH", "Worker", "WorkerLostError", "memory_folder"]

_LOG = logging.getLogger("autoquant")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_SHARED_MEMORY = "/dev/shm"
_PATIENCE_S = 2.0
SCRATCH = "AUTOQUANT_SCRATCH"
"""Names a folder that is removed with the process, however that ends; where this one is killed, by the next one."""
_MOST_PRINTED = 10_000
"""Bytes that are kept of one call."""


class WorkerLostError(Exception):
    """The process is gone: it crashed, or was ended because it took too long.

    Attributes:
        is_late: Whether it was ended for its time.
    """

    def __init__(self, reason: str, *, is_late: bool = False) -> None:
        super().__init__(reason)
        self.is_late = is_late


@dataclass(slots=True)
class Worker:
    """Makes an object in another process and calls its methods there, one at a time.

    The process is a fresh interpreter, whatever the main module of this one is; Ctrl-C and SIGTERM do nothing
    to it, it ends when this one does, and what it has started ends with it. What the package warns of and what is
    printed there is logged here when the call is answered.

    Attributes:
        factory: Makes the object; pickled, as arguments and results are.
        memory_bytes: Data that the process may have; None for no limit. Only where the system can limit it.
        affinity: Cores that it may use; all that this process may where empty.
    """

    factory: Callable[[], object]
    memory_bytes: int | None = None
    affinity: Sequence[int] = ()
    _process: "subprocess.Popen[bytes] | None" = None
    _errors: IO[bytes] | None = None
    _n_old: int = 0
    _scratch: Scratch | None = None
    _patience: Patience = field(init=False)

    @property
    def is_running(self) -> bool:
        """Whether there is a process, not known to be lost."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """Of the process, where there is one."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Begin to make the object; the next call waits for it.

        Raises:
            OutputError: There is no place for temporary files, or for another process.
        """
        if self._process is not None:
            return
        with temporary_files():
            self._errors, self._n_old = tempfile.TemporaryFile(), 0  # noqa: SIM115 - closed with the process
            self._scratch = _make_scratch()
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "autoquant.isolation.child"],  # whatever lies in the current folder
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**_environment(), SCRATCH: str(self._scratch.path)},
                process_group=0 if os.name == "posix" else None,
            )
        except OSError as error:  # too many processes, or no memory for another one
            self.close()
            raise OutputError(
                f"a process that measures cannot be started ({error.strerror}); end other programs, or use a larger"
                " machine"
            ) from error
        self._patience = Patience(None, partial(_kill_group, process))
        self._process = process
        try:
            self._send(Start(self.factory, self.memory_bytes, tuple(self.affinity), tuple(sys.path)))
        except BaseException:  # half of a message is no beginning
            self._kill()
            self.close()
            raise

    def ready(self, *, seconds: float | None = None) -> None:
        """Wait until the object is made.

        Raises:
            WorkerLostError: The process crashed, or it took longer than ``seconds``.
            Exception: What the factory raised.
        """
        self.start()
        self._call("", (), seconds)

    def call(self, method: str, *arguments: Any, seconds: float | None = None) -> Any:
        """Call a method of the object.

        Raises:
            WorkerLostError: The process crashed, or it took longer than ``seconds``; the next call begins a new one.
            Exception: What the method raised.
        """
        self.start()
        return self._call(method, arguments, seconds)

    def give_up(self) -> None:
        """From another thread: wait no more for the answer to a call, which raises WorkerLostError."""
        if self._process is not None:
            self._patience.lose()

    def close(self) -> None:
        """End the process."""
        process, errors, scratch = self._process, self._errors, self._scratch
        self._process = self._errors = self._scratch = None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                with contextlib.suppress(OSError):
                    stream.close()
            _end(process, _PATIENCE_S if sys.exc_info()[0] is None else 0)
        if errors is not None:
            errors.close()
        if scratch is not None:
            scratch.remove()

    def _call(self, method: str, arguments: tuple[Any, ...], seconds: float | None) -> Any:
        assert self._process is not None
        self._patience = Patience(seconds, partial(_kill_group, self._process))
        try:
            self._send(Request(method, arguments))
            answer = self._receive()
            if not self._patience.end():  # the process was ended just after it had answered
                raise self._lost()
        except BaseException as error:
            if not isinstance(error, WorkerLostError):  # e.g. Ctrl-C: an answer may be half-read
                self._patience.end()
                self._kill()
                self.close()
            raise
        for line in self._printed():
            _LOG.info("%s", line)
        for warning in answer.warnings:
            _LOG.warning("%s", warning)
        if answer.error is not None:
            raise answer.error
        return answer.value

    def _send(self, message: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            send(self._process.stdin, message)
        except OSError:
            raise self._lost() from None

    def _receive(self) -> Answer:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            answer: Answer = receive(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise self._lost() from None
        return answer

    def _kill(self) -> None:
        if self._process is not None:
            _kill_group(self._process)

    def _lost(self) -> WorkerLostError:
        """Why the process is gone."""
        assert self._process is not None
        is_late = not self._patience.end()
        code, said = _end(self._process, _PATIENCE_S), self._last_words()
        self.close()
        if is_late:
            return WorkerLostError("it gave no answer in its time", is_late=True)
        how = f"ended by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
        return WorkerLostError(f"its process was {how}" + (f": {said}" if said else ""))

    def _printed(self) -> list[str]:
        """What code of the user's own printed for the last call; read without moving where the process writes."""
        assert self._errors is not None
        file, n_before = self._errors.fileno(), self._n_old
        self._n_old = os.fstat(file).st_size
        if not hasattr(os, "pread"):
            return []
        return (
            os.pread(file, min(self._n_old - n_before, _MOST_PRINTED), n_before).decode(errors="replace").splitlines()
        )

    def _last_words(self) -> str:
        """The last line since the last answer: what was said before is of calls that went well."""
        assert self._errors is not None
        self._errors.seek(self._n_old)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return one_line(lines[-1]) if lines else ""


def _make_scratch() -> Scratch:
    """In memory, or among temporary files where none can be made there."""
    try:
        return Scratch(memory_folder())
    except OSError:
        return Scratch(None)


def memory_folder() -> str | None:
    """For files that nobody keeps: the scratch folder of this process, else one in memory where the system has one."""
    return os.environ.get(SCRATCH) or (_SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else None)


def _environment() -> dict[str, str]:
    """Of the process: one BLAS thread, so that nothing runs beside what is timed, and modules from where ours are."""
    named = [os.path.abspath(folder) for folder in sys.path if folder]
    here = [os.getcwd()] if "" in sys.path else []
    own = {"PYTHONPATH": os.pathsep.join([*named, *here]), PYTHONPATH_BEFORE: os.environ.get("PYTHONPATH", "")}
    return {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1"), **own}


def _end(process: "subprocess.Popen[bytes]", seconds: float) -> int:
    """Wait so long for a process to end by itself, then end what is left of it; its exit code."""
    if process.returncode is None:  # the number of one that was ended before may be another's now
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        _kill_group(process)
    return process.wait()


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process with all that it has started, where the system keeps them together."""
    if os.name != "posix":
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):  # on macOS the latter where all of them have ended
        os.killpg(process.pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
