import threading

from autoquant.isolation.patience import Patience


def test_after_the_time_it_is_given_up() -> None:
    given_up = threading.Event()
    patience = Patience(0.01, given_up.set)
    assert given_up.wait(60)
    assert not patience.end()


def test_a_timer_that_fires_after_the_answer_does_nothing() -> None:
    calls: list[str] = []
    patience = Patience(600, lambda: calls.append("given up"))
    assert patience.end()
    patience.lose()
    assert patience.end()
    assert calls == []


def test_who_gave_up_stays_so_and_gives_up_once() -> None:
    calls: list[str] = []
    patience = Patience(600, lambda: calls.append("given up"))
    patience.lose()
    patience.lose()
    assert not patience.end()
    assert calls == ["given up"]


def test_an_answer_waits_until_giving_up_is_done() -> None:
    """The timer is in the middle of it: the answer must not be taken for one that came in time."""
    begun, go_on, found = threading.Event(), threading.Event(), list[bool]()

    def give_up() -> None:
        begun.set()
        assert go_on.wait(60)

    patience = Patience(0, give_up)
    assert begun.wait(60)
    answer = threading.Thread(target=lambda: found.append(patience.end()))
    answer.start()
    assert found == []
    go_on.set()
    answer.join(60)
    assert found == [False]
