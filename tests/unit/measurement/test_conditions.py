import logging
from collections.abc import Iterable

import pytest

from autoquant.domain.target import Target
from autoquant.measurement.conditions import Watch, crowded_sentences, drift_sentences, usage_sentences
from autoquant.runtime.usage import Usage


def usage(wall_s: float = 0.0, **counters: float) -> Usage:
    """Of two processors; what is not said is zero."""
    known = {"busy_s": 0.0, "stolen_s": 0.0, "own_s": 0.0, "throttled_s": 0.0, "load": 1.25} | counters
    return Usage(
        wall_s=wall_s,
        n_processors=2,
        busy_s=known["busy_s"],
        stolen_s=known["stolen_s"],
        own_s=known["own_s"],
        n_throttled=int(known.get("n_throttled", 0)),
        throttled_s=known["throttled_s"],
        load=known["load"],
    )


def test_own_work_alone_is_no_disturbance() -> None:
    assert usage_sentences(usage(), usage(10, busy_s=10.4, own_s=10)) == []


@pytest.mark.parametrize(
    ("counters", "told"),
    [
        ({"busy_s": 17.4, "own_s": 10}, "busy with other work: 37% of the processors' time, load average 1.2; "),
        ({"stolen_s": 1}, "the hypervisor gave 5% of the processors' time to others"),
        ({"throttled_s": 1.3, "n_throttled": 12}, "stopped the measurement 12 times, for 1.3 s"),
    ],
)
def test_each_disturbance_has_a_sentence_with_an_advice(counters: dict[str, float], told: str) -> None:
    (sentence,) = usage_sentences(usage(), usage(10, **counters))
    assert told in sentence
    assert "measure again" in sentence


def test_too_short_a_time_says_nothing() -> None:
    assert usage_sentences(usage(), usage(0.5, busy_s=1)) == []


def a_watch(readings: Iterable[Usage | None]) -> Watch:
    following = iter(readings)
    return Watch(read=lambda: next(following))


def test_a_watch_warns_once_while_it_happens_and_tells_all_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    readings = [usage(), usage(2, busy_s=4), usage(10, busy_s=10), usage(20, busy_s=20), usage(40, busy_s=20)]
    watch = a_watch(readings)
    with caplog.at_level(logging.WARNING, "autoquant"):
        watch.look()
        assert not caplog.messages
        watch.look()
        (message,) = caplog.messages
        watch.look()
        assert caplog.messages == [message]
    assert "50%" in message
    assert "50%" in watch.sentences[0]


def test_where_there_are_no_counters_nothing_is_told() -> None:
    watch = a_watch([None, None, None])
    watch.look()
    assert watch.sentences == []


def test_latencies_that_stay_say_nothing() -> None:
    assert drift_sentences([1.0, 1.02, 0.99] * 10, n_repeated=1) == []


def test_repeated_rounds_and_drifts_are_told() -> None:
    (repeated,) = drift_sentences([1.0] * 18, n_repeated=6)
    assert "latencies jumped in 6 of 24 rounds" in repeated
    (slower,) = drift_sentences([1.0] * 10 + [1.1] * 10 + [1.2] * 10, n_repeated=0)
    assert "20% slower in the last third" in slower
    (faster,) = drift_sentences([1.0] * 10 + [0.9] * 10 + [0.8] * 10, n_repeated=0)
    assert "20% faster in the last third" in faster


def test_a_few_rounds_show_no_drift() -> None:
    assert drift_sentences([1.0, 2.0, 3.0], n_repeated=3) == []


def test_more_threads_than_processors_are_told_by_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.measurement.conditions.usable_processors", lambda: (0, 1))
    targets = [
        Target(threads=2),
        Target(threads=1, streams=3),
        Target(threads=2, affinity=(1,)),
        Target("cuda", threads=9),
    ]
    advice = ", on which they wait for each other; give no more threads than there are processors"
    assert crowded_sentences(targets) == [
        f"cpu-1t-s3 has 3 threads for 2 processors{advice}",
        f"cpu-2t has 2 threads for 1 processor{advice}",
    ]
