"""What runs in the other process; little is loaded with it."""

import logging
import os
import signal
import subprocess
import sys
import time

from autoquant.errors import DataError
from tests.faults import crash, eat_memory, hang

__all__ = ["Servant", "refusing"]

LOG = logging.getLogger("autoquant")


class Servant:
    def __init__(self) -> None:
        self.n_calls = 0

    def count(self) -> int:
        self.n_calls += 1
        return self.n_calls

    def pid(self) -> int:
        return os.getpid()

    def cores(self) -> set[int]:
        return os.sched_getaffinity(0)

    def say(self, text: str) -> str:
        print(text)
        os.write(1, text.encode())
        return text

    def complain(self) -> None:
        os.write(2, b"one core is slow\n")

    def speak(self, text: str) -> None:
        """As a metric of the user's own may."""
        print(text)
        sys.stderr.write(f"and {text}\n")

    def warn(self) -> None:
        LOG.info("this is slow")
        LOG.warning("the recipe %s doesn't run", "u8")

    def refuse(self) -> None:
        raise DataError("these are no data; give others")

    def raise_something_odd(self) -> None:
        class OddError(Exception):
            pass

        raise OddError("odd")

    def crash(self) -> None:
        crash()

    def hang(self) -> None:
        hang()

    def eat(self) -> None:
        eat_memory()

    def leave(self) -> None:
        os.write(2, b"first line\nno device left\n")
        os._exit(3)

    def fork(self) -> int:
        """Begin a process that has all open that this one has."""
        ready, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(told, b".")
            time.sleep(60)
            os._exit(0)
        os.read(ready, 1)
        return pid

    def run(self) -> int:
        """Begin another program."""
        self.program = subprocess.Popen(["sleep", "60"])
        return self.program.pid

    def terminate(self, pid: int) -> int:
        os.kill(pid, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def read(self) -> str:
        return sys.stdin.read()

    def read_in_a_program(self) -> bytes:
        return subprocess.run(["cat"], stdout=subprocess.PIPE, check=True).stdout


def refusing() -> Servant:
    raise DataError("nothing can be made of this; give something else")
