import signal
import threading

import pytest

from autoquant.api.interrupts import Interrupts, interruptible


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_where_nothing_is_counted_the_first_press_raises() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible() as interrupts:
        press()
    assert interrupts.n_pressed == 0


def test_two_presses_are_counted_and_the_third_raises() -> None:
    with interruptible() as interrupts:
        interrupts.is_counting = True
        interrupts.check()
        press()
        press()
        assert interrupts.n_pressed == 2
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            press()


def test_afterwards_python_itself_hears_them() -> None:
    with interruptible():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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
