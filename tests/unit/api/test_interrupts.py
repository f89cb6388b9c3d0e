import os
import signal
import subprocess
import sys
import threading

import pytest

from autoquant.api.interrupts import Interrupts, interruptible

both = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@both
def test_where_nothing_is_counted_the_first_press_raises(number: int) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible() as interrupts:
        signal.raise_signal(number)
    assert interrupts.n_pressed == 0


@both
def test_two_presses_are_counted_and_the_third_raises(number: int) -> None:
    with interruptible() as interrupts:
        interrupts.is_counting = True
        interrupts.check()
        signal.raise_signal(number)
        signal.raise_signal(number)
        assert interrupts.n_pressed == 2
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_afterwards_they_mean_what_they_did_before() -> None:
    with interruptible():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_who_has_a_handler_of_their_own_keeps_it() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with interruptible() as interrupts:
            interrupts.is_counting = True
            signal.raise_signal(signal.SIGTERM)
        assert interrupts.n_pressed == 0
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_nothing_is_replaced() -> None:
    found: list[Interrupts] = []

    def enter() -> None:
        with interruptible() as interrupts:
            found.append(interrupts)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [Interrupts()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_in_a_process_that_is_forked_inside_they_mean_what_they_did_before() -> None:
    code = """
import os, signal
from autoquant.api.interrupts import interruptible
with interruptible():
    child = os.fork()
    if child == 0:
        signal.raise_signal(signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{-signal.SIGTERM}\n"
