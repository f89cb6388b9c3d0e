"""What searches in tests have in common."""

import pytest

__all__ = ["end_after"]


def end_after(monkeypatch: pytest.MonkeyPatch, n_processes: int) -> None:
    """So many processes are the last measurement of searches in this one, in place of five, or twelve within a time.

    What they say is written alike; fewer of them leave wider intervals of latencies.
    """
    monkeypatch.setattr("autoquant.api.delivery.WANTED_SESSIONS", n_processes)
    monkeypatch.setattr("autoquant.api.delivery._MOST_SESSIONS_WITHIN", n_processes)
