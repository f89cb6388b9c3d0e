import math

import pytest
from hypothesis import given

from autoquant.domain.objective import DEFAULT_OBJECTIVES, Bounds, Objectives
from autoquant.front.selection import choose_members, spares
from tests.records import a_latency, a_measured
from tests.unit.front.choices import FLOAT_BYTES, TOP1, Pair, finalists, measured, members, numbers, pairs


def test_what_others_should_beat_is_spare_and_comes_by_how_many_fronts_are_before_it() -> None:
    found = {
        "twice beaten": measured(20, a_latency(0.9)),
        "beaten": measured(30, a_latency(0.7)),
        "accurate": measured(40, a_latency(0.7)),
        "too inaccurate": measured(5, a_latency(0.1)),
        "fast": measured(25, a_latency(0.5)),
    }
    assert spares(found, DEFAULT_OBJECTIVES, Bounds()) == ["beaten", "twice beaten"]
    assert spares(found, DEFAULT_OBJECTIVES, Bounds(min_snr_db=10)) == ["beaten", "twice beaten", "too inaccurate"]
    assert spares({}, DEFAULT_OBJECTIVES, Bounds()) == []


@given(pairs)
def test_members_whose_latencies_are_as_believed_are_no_spares(given_pairs: list[Pair]) -> None:
    found = {str(i): measured(snr, a_latency(ratio, spread=0)) for i, (snr, ratio) in enumerate(given_pairs)}
    kept = found.keys() - set(spares(found, DEFAULT_OBJECTIVES, Bounds()))
    assert {given_pairs[int(i)] for i in kept} >= {given_pairs[int(i)] for i in members(found)}


def test_members_come_by_ascending_ratio_and_beaten_ones_are_dropped() -> None:
    found = {
        "accurate": measured(60, a_latency(0.9)),
        "beaten": measured(30, a_latency(0.7)),
        "fast": measured(20, a_latency(0.4)),
        "good": measured(40, a_latency(0.6)),
        "equal": measured(40, a_latency(0.6)),
    }
    assert members(found) == ["fast", "good", "accurate"]


@pytest.mark.parametrize(("spread", "expected"), [(0.04, ["a"]), (0.05, []), (0.2, [])])
def test_a_model_that_is_not_faster_beyond_its_interval_is_no_member(spread: float, expected: list[str]) -> None:
    latency = a_latency(0.95, spread=spread)
    assert members({"a": measured(40, latency)}) == expected


def test_of_models_whose_latencies_cannot_be_told_apart_only_the_most_accurate_one_stays() -> None:
    found = {
        "lucky": measured(40, a_latency(0.49, spread=0.02)),
        "accurate": measured(50, a_latency(0.5, spread=0.02)),
        "fast": measured(30, a_latency(0.4, spread=0.02)),
    }
    assert members(found) == ["fast", "accurate"]


@pytest.mark.parametrize(("more_db", "expected"), [(1e-6, ["fast"]), (0.09, ["fast"]), (0.11, ["fast", "slow"])])
def test_of_models_with_hardly_another_snr_the_fastest_one_stays(more_db: float, expected: list[str]) -> None:
    found = {"fast": measured(40, a_latency(0.5)), "slow": measured(40 + more_db, a_latency(0.6))}
    assert members(found) == expected


def test_many_small_steps_are_a_large_one() -> None:
    found = {str(i): measured(40 + 0.06 * i, a_latency(0.5 + 0.03 * i)) for i in range(5)}
    assert members(found) == ["0", "2", "4"]


def test_what_has_hardly_more_snr_stays_where_it_is_better_elsewhere() -> None:
    on_another_target = {
        "left": measured(40, a_latency(0.5), a_latency(0.8)),
        "right": measured(40.05, a_latency(0.6), a_latency(0.7)),
    }
    smaller = {"large": measured(40, a_latency(0.5)), "small": measured(40.05, a_latency(0.6), size_bytes=2_000_000)}
    hits = {"more": measured(40.05, a_latency(0.6), top1=0.0), "fewer": measured(40, a_latency(0.5), top1=0.1)}
    assert members(on_another_target) == ["left", "right"]
    assert members(smaller) == ["large"]
    assert members(smaller, Objectives(has_size=True)) == ["large", "small"]
    assert members(hits, Objectives(metrics=TOP1)) == ["fewer", "more"]


def test_what_beats_nothing_itself_beats_nothing() -> None:
    """The one in the middle can be told from neither, but the first from the last."""
    found = {
        "a": measured(50, a_latency(0.5, spread=0.02)),
        "b": measured(40, a_latency(0.47, spread=0.02)),
        "c": measured(30, a_latency(0.44, spread=0.02)),
    }
    assert members(found) == ["c", "a"]


def test_faster_on_one_of_several_targets_is_enough() -> None:
    assert members({"a": measured(40, a_latency(1.3), a_latency(0.6))}) == ["a"]


def test_a_model_that_is_better_on_one_target_only_stays() -> None:
    found = {
        "left": measured(40, a_latency(0.5), a_latency(0.8)),
        "right": measured(40, a_latency(0.8), a_latency(0.5)),
        "both worse": measured(40, a_latency(0.8), a_latency(0.8)),
    }
    assert members(found) == ["left", "right"]


def test_demands_are_kept_exactly() -> None:
    found = {"a": measured(40, a_latency(0.5)), "b": measured(39.8, a_latency(0.4)), "c": measured(50, a_latency(0.6))}
    assert members(found, min_snr_db=40) == ["a", "c"]
    assert members(found, max_latency_ratio=0.5) == ["b", "a"]
    assert members(found, min_snr_db=40, max_latency_ratio=0.5) == ["a"]
    assert members(found, min_snr_db=90) == []


@pytest.mark.parametrize("agreement", [0.0, 0.01])
def test_of_those_that_cannot_be_told_apart_in_latency_a_larger_one_with_no_more_hits_goes(agreement: float) -> None:
    found = {
        "large": measured(40, a_latency(0.500, spread=0.01), top1=agreement, size_bytes=3_000_000),
        "small": measured(40, a_latency(0.502, spread=0.01), top1=0.0, size_bytes=1_000_000),
    }
    objectives = Objectives(has_snr=False, metrics=TOP1, has_size=True)
    assert members(found, objectives) == ["small"]


@pytest.mark.parametrize(("n_bytes", "expected"), [(2_999_500, ["other"]), (2_900_000, ["smaller", "other"])])
def test_the_notes_in_a_file_make_it_no_smaller(n_bytes: int, expected: list[str]) -> None:
    found = {
        "other": measured(40, a_latency(0.5, spread=0.01), size_bytes=3_000_000),
        "smaller": measured(39, a_latency(0.6, spread=0.01), size_bytes=n_bytes),
    }
    assert set(members(found, Objectives(has_size=True))) == set(expected)
    alone = {"preprocessed": measured(math.inf, a_latency(1.02), size_bytes=FLOAT_BYTES - 500)}
    assert members(alone, Objectives(has_size=True)) == []


def test_what_is_beaten_in_ratio_and_snr_is_no_member_whatever_rounds_in_pairs_say() -> None:
    found = {"better": measured(40, a_latency(0.555)), "worse": measured(30, a_latency(0.569))}
    kept = choose_members(found, lambda *_: True, float_bytes=FLOAT_BYTES)
    assert kept == ["better"]


def test_equal_and_noisy_outputs_have_their_place() -> None:
    found = {
        "noisy": measured(-20, a_latency(0.3)),
        "equal": measured(math.inf, a_latency(0.9)),
        "slower noisy": measured(-20, a_latency(0.4)),
    }
    assert members(found) == ["noisy", "equal"]


def test_outputs_that_nothing_compares_are_of_no_use() -> None:
    found = {
        "equal": measured(math.inf, a_latency(0.9), top1=0.0),
        "broken": measured(-math.inf, a_latency(0.3), top1=0.1),
    }
    assert members(found) == ["equal"]
    assert members(found, max_drops={"top1": 0.2}) == ["broken", "equal"]
    assert members(found, Objectives(metrics=TOP1)) == ["broken", "equal"]


@given(pairs)
def test_members_that_are_known_exactly_are_what_nothing_faster_than_float_beats(given_pairs: list[Pair]) -> None:
    """But for those that have hardly more SNR than a faster member."""
    found = {str(i): measured(snr, a_latency(ratio, spread=0)) for i, (snr, ratio) in enumerate(given_pairs)}
    quick = {p for p in given_pairs if p[1] < 1 and p[0] > -math.inf}
    front = {p for p in quick if not any(q[0] >= p[0] and q[1] <= p[1] and q != p for q in quick)}
    kept = [given_pairs[int(i)] for i in members(found)]
    assert set(kept) <= front
    assert len(kept) == len(set(kept))
    for snr, ratio in front - set(kept):
        assert any(0 < snr - other < 0.1 and its < ratio for other, its in kept)


def test_a_smaller_model_is_a_member_only_where_the_size_is_an_objective() -> None:
    found = {
        "fast": measured(40, a_latency(0.5), size_bytes=4_000_000),
        "small": measured(40, a_latency(0.6), size_bytes=3_000_000),
        "small and slower than float": measured(40, a_latency(1.2), size_bytes=2_000_000),
        "neither": measured(90, a_latency(1.2), size_bytes=FLOAT_BYTES),
    }
    assert members(found) == ["fast"]
    assert members(found, Objectives(has_size=True)) == ["fast", "small", "small and slower than float"]


def test_without_snr_among_the_objectives_it_decides_nothing() -> None:
    found = {
        "answers": measured(20, a_latency(0.5), top1=0.0),
        "decibels": measured(50, a_latency(0.6), top1=0.01),
        "fast": measured(10, a_latency(0.4), top1=0.02),
    }
    assert members(found) == ["fast", "answers", "decibels"]
    assert members(found, Objectives(has_snr=False, metrics=TOP1)) == ["fast", "answers"]
    assert members(found, Objectives(metrics=TOP1)) == ["fast", "answers", "decibels"]


def test_a_better_score_than_that_of_float_is_no_reason_to_be_slower() -> None:
    found = {"lucky": measured(40, a_latency(1.1), top1=-0.1)}
    assert members(found, Objectives(has_snr=False, metrics=TOP1)) == []


def test_a_largest_file_is_kept_exactly_by_members_and_roughly_by_finalists() -> None:
    found = {"a": measured(40, a_latency(0.5), size_bytes=1001), "b": measured(50, a_latency(0.6), size_bytes=1000)}
    assert members(found, max_size_bytes=1000) == ["b"]
    evaluations = [a_measured(i, ratio=0.5 + i / 10, snr_db=40 + i, size_bytes=s) for i, s in enumerate((1001, 1100))]
    assert numbers(finalists(evaluations, 9, max_size_bytes=1000)) == [0]
