"""The other process: ``python -m autoquant.isolation.child`` makes an object and answers calls until its input ends."""

import contextlib
import logging
import os
import pickle
import signal
import sys
import traceback
from dataclasses import replace
from functools import partial
from io import BufferedReader, BufferedWriter
from typing import IO

from autoquant.isolation.limits import die_with_parent, limit_memory
from autoquant.isolation.messages import PYTHONPATH_BEFORE, Answer, Request, Start, receive, send

__all__ = ["Warnings", "main", "serve"]

_UNHEARD = (signal.SIGINT, signal.SIGTERM)
"""Left to the parent, which hears them, too."""


class Warnings(logging.Handler):
    """Keeps what the package warns of until an answer takes it along."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self._kept.append(record.getMessage())

    def taken(self) -> tuple[str, ...]:
        """What was kept since the last time."""
        taken, self._kept = tuple(self._kept), []
        return taken


def serve(requests: IO[bytes], answers: IO[bytes], warnings: Warnings) -> None:
    """Answer calls until there are no more; what the factory raised answers every call."""
    start: Start = receive(requests)
    sys.path[:] = start.path
    failed: BaseException | None = None
    made: object = None
    try:
        if start.affinity:
            os.sched_setaffinity(0, start.affinity)
        assert isinstance(start.factory, bytes)
        factory = pickle.loads(start.factory)
        if start.memory_bytes is not None:
            limit_memory(start.memory_bytes)
        made = factory()
    except Exception as error:
        failed = error
    while True:
        try:
            request: Request = receive(requests)
        except EOFError:
            return
        answer = Answer(error=failed) if failed else _called(made, request)
        with contextlib.suppress(OSError, ValueError):  # what a metric printed is the user's to see
            sys.stdout.flush()
        _answer(answers, replace(answer, warnings=warnings.taken()))


def _called(made: object, request: Request) -> Answer:
    if not request.method:
        return Answer()
    try:
        return Answer(value=getattr(made, request.method)(*request.arguments))
    except Exception as error:
        return Answer(error=error)


def _answer(answers: IO[bytes], answer: Answer) -> None:
    send(answers, answer if answer.error is None else replace(answer, error=_picklable(answer.error)))


def _picklable(error: BaseException) -> BaseException:
    """The error with a note that says where it was raised, or another one that says what it said."""
    where = "".join(traceback.format_exception(error))
    error.add_note(f"in the other process:\n{where}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _set_aside() -> tuple[BufferedReader, BufferedWriter]:
    """Standard input and output: what runs here finds nothing to read, and what it prints goes to standard error."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _after_fork(requests: BufferedReader, answers: BufferedWriter) -> None:
    """In a process forked from this one: it holds no pipe open, and signals end it."""
    requests.raw.close()
    answers.raw.close()
    for number in _UNHEARD:
        signal.signal(number, signal.SIG_DFL)


def main() -> None:
    """Serve on what standard input and output were."""
    for number in _UNHEARD:
        with contextlib.suppress(ValueError):
            signal.signal(number, lambda *_: None)  # SIG_IGN would hold for all programs that are started here
    os.environ["PYTHONPATH"] = os.environ.pop(PYTHONPATH_BEFORE, "")
    die_with_parent()
    requests, answers = _set_aside()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(_after_fork, requests, answers))
    warnings = Warnings()
    logging.getLogger("autoquant").addHandler(warnings)
    with contextlib.suppress(BrokenPipeError):
        serve(requests, answers, warnings)
    os._exit(0)  # the parent waits for no destructor of a provider


if __name__ == "__main__":
    main()
