"""How a last measurement divides its time: by a clock that only the work of its processes moves."""

import math
import re
from collections.abc import Mapping, Sequence

import pytest

from autoquant.measurement.collected import Collected
from autoquant.measurement.costs import FEW, FEWEST_ROUNDS, STARTING_S
from autoquant.measurement.judging import Wishes
from autoquant.measurement.latency import REFERENCE
from autoquant.measurement.measured import Judged, Measured
from tests.fakes import FakeClock
from tests.unit.measurement.planning import (
    FILES,
    N_WARMUPS,
    OPENING_S,
    REFERENCE_S,
    Process,
    measured,
    planned,
    rounds_of,
)


@pytest.mark.parametrize(("opening_s", "round_s"), [(0.1, 0.02), (0.3, 0.005), (1.0, 0.02), (2.0, 0.03)])
def test_the_time_that_a_search_keeps_is_enough_for_three_processes_of_as_many_rounds(
    monkeypatch: pytest.MonkeyPatch, opening_s: float, round_s: float
) -> None:
    process = Process(FakeClock(), {"cpu-1t": round_s}, opening_s)
    final = measured(monkeypatch, process, planned(process, round_s))
    assert rounds_of(final, "cpu-1t") == [6, 6, 6]
    assert process.clock.now == pytest.approx(final.deadline, rel=0.05)


@pytest.mark.parametrize("seconds", [(0.005, 0.03), (0.03, 0.005)])
def test_rounds_are_planned_by_what_they_take_on_each_target(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, float]
) -> None:
    process = Process(FakeClock(), dict(zip(("cpu-1t", "cpu-2t"), seconds, strict=True)))
    least_s = planned(process, sum(seconds)) - 3 * (1 + len(FILES)) * sum(seconds)
    final = measured(monkeypatch, process, least_s)
    for target in process.file_s:
        found = rounds_of(final, target)
        assert len(found) == 3
        assert min(found) >= FEWEST_ROUNDS
        assert next(n for name, n in process.asked if name == target) == 1
    assert process.clock.now <= 1.05 * final.deadline


TWO = dict(list(FILES.items())[:2])


def test_long_inferences_are_timed_while_outputs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.2}, reference_s=0.4)
    final = measured(monkeypatch, process, 45.0, files=TWO)
    first, *further = rounds_of(final, "cpu-1t")
    assert (first, len(further)) == (32, 2)
    assert all(n >= FEWEST_ROUNDS for n in further)
    assert sum(n for _, n in process.asked) == sum(further)
    assert {key: seconds for _, _, found in final.rounds[:32] for key, seconds in found.seconds.items()} == {
        REFERENCE: [0.4],
        "t0": [0.2],
        "t1": [0.2],
    }
    assert process.clock.now <= 1.05 * final.deadline


def test_without_time_for_further_processes_those_rounds_are_all(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.2}, reference_s=0.4)
    final = measured(monkeypatch, process, 27.0, files=TWO)
    assert (rounds_of(final, "cpu-1t"), process.asked) == ([32], [])


@pytest.mark.parametrize(
    ("file_s", "n_feeds", "is_beside"), [(0.05, 32, True), (0.2, 4, True), (0.2, 32, False)], ids=str
)
def test_other_inferences_are_timed_apart(
    monkeypatch: pytest.MonkeyPatch, file_s: float, n_feeds: int, is_beside: bool
) -> None:
    process = Process(FakeClock(), {"cpu-1t": file_s}, reference_s=0.1, is_beside=is_beside)
    final = measured(monkeypatch, process, 60.0, files=TWO, n_feeds=n_feeds)
    assert sum(n for _, n in process.asked) == sum(rounds_of(final, "cpu-1t"))


def test_files_that_are_left_out_after_comparing_are_in_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.2}, reference_s=0.4)
    final = measured(monkeypatch, process, 60.0, files=TWO, wishes=Wishes(superseded=lambda _: ["t0"]))
    assert {frozenset(found.seconds) for _, _, found in final.rounds} == {frozenset({REFERENCE, "t1"})}


def test_opening_the_reference_drops_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.002})
    final = measured(monkeypatch, process, 20.0)
    assert not final.notes
    assert len(process.opened) == 1 + len(FILES)


@pytest.mark.parametrize(("seconds", "n_opened"), [(20.0, 3), (61.0, 11), (120.0, 20)])
def test_the_least_important_files_are_not_opened_where_that_takes_most_of_the_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, n_opened: int
) -> None:
    process = Process(FakeClock(), {"cpu-1t": 1e-3}, opening_s=2.0)
    final = measured(monkeypatch, process, seconds, n_sessions=1, has_quality=False)
    assert set(process.opened) == {REFERENCE, *list(FILES)[:n_opened]}
    assert process.opened != [key for key in (REFERENCE, *FILES) if key in process.opened]
    n_left = len(FILES) - n_opened
    said = f"there was no time to open {n_left} of 20 files, which are left out; give more time"
    assert final.notes == ([said] if n_left else [])


def test_files_that_may_not_be_dropped_are_opened_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 1e-3}, opening_s=2.0)
    measured(monkeypatch, process, 30.0, n_sessions=1, wishes=Wishes(may_drop=False))
    assert len(process.opened) == 1 + len(FILES)


def test_files_that_there_is_no_time_to_compare_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.02}, reference_s=0.3)
    final = measured(monkeypatch, process, 20.0)
    n_timed = sum(key != REFERENCE for key in final.rounds[0][2].seconds)
    said = re.match(
        r"there was no time to compare the outputs of (\d+) of 20 files, which are left out", final.notes[0]
    )
    assert said is not None
    assert 0 < n_timed <= len(FILES) - int(said[1]) < len(FILES)
    assert process.clock.now < 1.1 * final.deadline


def test_outputs_of_a_few_files_are_compared_however_late_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.02}, reference_s=1.0)
    final = measured(monkeypatch, process, 10.0)
    assert set(final.rounds[0][2].seconds) == {REFERENCE, *list(FILES)[:FEW]}
    said = "there was no time to compare the outputs of 17 of 20 files, which are left out; give more time"
    assert final.notes[0] == said


def test_of_files_left_out_no_time_is_kept_for_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.05})
    first_s = STARTING_S + REFERENCE_S + (1 + len(FILES)) * (OPENING_S + 0.05) + len(FILES) * 0.05
    others_s, timing_s = 31 * len(FILES) * 0.05, 2 * (OPENING_S + 0.05) + 21 * 0.05
    final = measured(monkeypatch, process, first_s + 1.0 + timing_s + (others_s + len(FILES) / 2 * timing_s) / 4)
    assert len(FILES) / 5 <= len(final.rounds[0][2].seconds) - 1 <= len(FILES) / 4


@pytest.mark.parametrize("slowness", [1.0, 1.3, 2.0])
def test_outputs_of_so_many_files_are_compared_as_can_be_timed_in_three_processes(
    monkeypatch: pytest.MonkeyPatch, slowness: float
) -> None:
    seconds = planned(Process(FakeClock(), {}), 0.01)
    process = Process(FakeClock(), {"cpu-1t": 0.01 * slowness}, OPENING_S * slowness)
    plain = list(FILES)[::2]
    wishes = Wishes(superseded=lambda judged: [key for key in judged if key not in plain])
    final = measured(monkeypatch, process, 0.7 * seconds, wishes=wishes)
    assert len(rounds_of(final, "cpu-1t")) == 3
    assert process.clock.now <= 1.05 * final.deadline


def test_a_few_files_whose_outputs_were_compared_are_timed_however_late_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.02}, reference_s=60.0)
    final = measured(monkeypatch, process, 50.0, n_feeds=1)
    assert set(process.opened) == {REFERENCE, *list(FILES)[:FEW]}
    assert final.notes == [
        "left out without being timed, as time is short and others matter more: 17 of 20 files; give more time"
    ]


@pytest.mark.parametrize(("seconds", "n_opened"), [(math.inf, 21), (600.0, 21), (20.0, 7), (1.0, 4), (-1.0, 4)])
def test_no_more_files_are_opened_than_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch, seconds: float, n_opened: int
) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.02}, opening_s=1.0)
    final = measured(monkeypatch, process, seconds, n_feeds=1, n_sessions=1)
    assert set(process.opened) == {REFERENCE, *list(FILES)[: n_opened - 1]}
    late = f"there was no time to open {21 - n_opened} of 20 files, which are left out; give more time"
    assert [note for note in final.notes if "to open" in note] == ([late] if n_opened < 21 else [])


def test_files_that_may_not_be_dropped_are_opened_however_late_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.02}, opening_s=1.0)
    measured(monkeypatch, process, 1.0, n_feeds=1, wishes=Wishes(may_drop=False))
    assert len(process.opened) == 1 + len(FILES)


def test_files_left_out_on_several_targets_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.05, "cpu-2t": 0.1})
    final = measured(monkeypatch, process, 40.0)
    n_left = len(FILES) + 1 - len(process.opened)
    (said,) = final.notes
    assert f" the outputs of {n_left} of 20 files, " in said


def test_what_several_targets_take_is_planned_on_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.05, "cpu-2t": 0.05})
    final = measured(monkeypatch, process, 40.0)
    assert process.clock.now < 1.1 * final.deadline
    n_files = [n for target, n in process.compared if target == "cpu-2t"]
    assert len(set(n_files)) == 1
    assert n_files[0] < len(FILES)


@pytest.mark.parametrize("n_beaten", [0, 15])
def test_files_that_others_beat_are_left_out_for_the_sake_of_further_processes(
    monkeypatch: pytest.MonkeyPatch, n_beaten: int
) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.02})
    beaten = list(FILES)[:n_beaten]
    told: list[Mapping[str, Mapping[str, Sequence[float]]]] = []

    def spares(judged: Mapping[str, Judged], ratios: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
        told.append(ratios)
        return [key for key in judged if key in beaten] if ratios else []

    final = measured(monkeypatch, process, planned(process, 0.02), wishes=Wishes(spares=spares))
    assert len(rounds_of(final, "cpu-1t")) == (5 if n_beaten else 3)
    assert process.clock.now <= 1.05 * final.deadline
    kept = [key for key in final.rounds[-1][2].seconds if key != REFERENCE]
    order = [key for key in FILES if key not in beaten] + beaten
    assert set(kept) == set(order[: len(kept)])
    n_left, said = (
        len(FILES) - len(kept),
        "left out after a part of the processes, as time is short and others are better",
    )
    assert final.notes == ([f"{said}: {n_left} of 20 files"] if n_beaten else [])
    assert told[0] == {}
    assert told[1] == {key: {"cpu-1t": [1.0]} for key in FILES}


@pytest.mark.parametrize(("n_processes", "n_rounds"), [(1, 5), (2, 3), (2, 4), (3, 3), (3, 5)])
def test_processes_are_worth_more_than_rounds_beyond_a_few(
    monkeypatch: pytest.MonkeyPatch, n_processes: int, n_rounds: int
) -> None:
    process, round_s = Process(FakeClock(), {"cpu-1t": 0.5}), (1 + len(FILES)) * 0.5
    process_s = (1 + len(FILES)) * OPENING_S + (1 + N_WARMUPS + n_rounds) * round_s
    final = measured(monkeypatch, process, n_processes * (0.2 + STARTING_S + process_s), has_quality=False)
    assert rounds_of(final, "cpu-1t") == [n_rounds] * n_processes


def test_rounds_that_are_short_beside_opening_the_files_are_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 1e-3})
    final = measured(monkeypatch, process, 3.3 * (1 + len(FILES)) * OPENING_S, has_quality=False)
    assert rounds_of(final, "cpu-1t") == [12, 12]
    assert process.clock.now < 1.05 * final.deadline


def test_what_was_only_compared_is_not_planned_to_be_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.004})
    half = list(FILES)[::2]
    compared_s = STARTING_S + REFERENCE_S + (1 + len(FILES)) * OPENING_S + 33 * len(FILES) * 0.004
    timed_s = STARTING_S + (1 + len(half)) * (OPENING_S + 8 * 0.004)
    final = measured(monkeypatch, process, compared_s + 2.8 * timed_s, wishes=Wishes(superseded=lambda _: half))
    assert len(rounds_of(final, "cpu-1t")) == 3
    assert process.clock.now <= final.deadline


def test_more_time_is_of_no_use_where_ratios_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.02})
    final = measured(monkeypatch, process, planned(process, 0.02), narrow=0.01)
    assert len(rounds_of(final, "cpu-1t")) == 3
    assert not final.is_late


@pytest.mark.parametrize(("narrow", "is_stopped"), [(0.01, True), (-1.0, False)])
def test_differences_are_told_whether_it_ended_as_ratios_were_known(
    narrow: float, is_stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []

    def noting(_: Collected, _keys: Sequence[str], *, is_stopped: bool) -> dict[str, Measured]:
        said.append(is_stopped)
        return {}

    monkeypatch.setattr(Collected, "measured", noting)
    process = Process(FakeClock(), {"cpu-1t": 0.02})
    measured(monkeypatch, process, planned(process, 0.02), narrow=narrow)
    assert said == [is_stopped]


def test_it_says_whether_there_was_no_time_for_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.02})
    assert measured(monkeypatch, process, planned(process, 0.02)).is_late
    assert not measured(monkeypatch, process, math.inf, n_sessions=2).is_late


def test_a_provider_that_starts_no_more_leaves_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.02}, broken=[2])
    final = measured(monkeypatch, process, math.inf)
    assert rounds_of(final, "cpu-1t") == [12, 12]
    assert final.notes == [
        "after 2 processes no further one could be measured: the execution provider does not start here"
    ]


def test_a_baseline_that_the_cpu_provider_cannot_open_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(FakeClock(), {"cpu-1t": 0.01}, not_on_cpu="float.onnx: it has no kernel")
    (note,) = measured(monkeypatch, process, 100.0).notes
    assert note == "outputs are compared with the baseline's on the same target, not on the CPU: " + process.not_on_cpu


@pytest.mark.parametrize(
    ("seconds", "n_rounds"), [(-1.0, 3), (STARTING_S + 5 + 1, 3), (STARTING_S + 5.1 + 5 * 9, 6), (math.inf, 12)]
)
def test_the_baseline_alone_takes_few_rounds_where_it_is_slow(
    seconds: float, n_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(FakeClock(), {"cpu-1t": 5.0}, opening_s=0.0)
    final = measured(monkeypatch, process, seconds, files={}, n_sessions=1, least_sessions=1, has_quality=False)
    assert rounds_of(final, "cpu-1t") == [n_rounds]
