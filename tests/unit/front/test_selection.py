import dataclasses
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.measurement import Evaluation, Latency, Measurement, Quality
from autoquant.front.selection import choose_finalists, choose_members, keeps_drops
from tests.records import a_failure, a_latency, a_measured, a_metric

Pair = tuple[float, float]
snrs = st.floats(-20, 140) | st.integers(2, 8).map(lambda tens: 10.0 * tens) | st.sampled_from([math.inf, -math.inf])
ratios = st.floats(0.2, 1.4) | st.integers(3, 12).map(lambda tenths: tenths / 10)
pairs = st.lists(st.tuples(snrs, ratios), max_size=40)


def evaluations_of(given_pairs: Sequence[Pair]) -> list[Evaluation]:
    return [a_measured(i, snr_db=snr, ratio=ratio) for i, (snr, ratio) in enumerate(given_pairs)]


def numbers(evaluations: Sequence[Evaluation]) -> list[int]:
    return [evaluation.trial.number for evaluation in evaluations]


@given(given_pairs=pairs, limit=st.integers(1, 25), min_snr_db=st.none() | st.floats(0, 80))
def test_finalists_are_few_different_and_within_the_demand(
    given_pairs: list[Pair], limit: int, min_snr_db: float | None
) -> None:
    chosen = numbers(choose_finalists(evaluations_of(given_pairs), limit, min_snr_db=min_snr_db))
    assert len(chosen) <= limit
    assert len(set(chosen)) == len(chosen)
    for i in chosen:
        snr, ratio = given_pairs[i]
        assert ratio < 1
        assert min_snr_db is None or snr >= min_snr_db - 3


@given(given_pairs=pairs, limit=st.integers(2, 25))
def test_the_most_accurate_and_the_fastest_are_finalists(given_pairs: list[Pair], limit: int) -> None:
    eligible = [(snr, ratio) for snr, ratio in given_pairs if ratio < 1]
    chosen = [given_pairs[i] for i in numbers(choose_finalists(evaluations_of(given_pairs), limit, min_snr_db=None))]
    assert bool(chosen) == bool(eligible)
    if eligible:
        assert max(min(snr, 80) for snr, _ in chosen) == max(min(snr, 80) for snr, _ in eligible)
        assert min(ratio for _, ratio in chosen) == min(ratio for _, ratio in eligible)


@given(given_pairs=pairs, limit=st.integers(1, 25))
def test_a_second_front_is_only_taken_where_the_first_leaves_room(given_pairs: list[Pair], limit: int) -> None:
    chosen = numbers(choose_finalists(evaluations_of(given_pairs), limit, min_snr_db=None))
    eligible = [p for p in given_pairs if p[1] < 1]
    front = {p for p in eligible if not any(q[0] >= p[0] and q[1] <= p[1] and q != p for q in eligible)}
    assert {given_pairs[i] for i in chosen} <= front or front <= {given_pairs[i] for i in chosen}


def test_a_thinned_front_is_spread_out() -> None:
    crowded = [(40.0 + 0.01 * i, 0.5 + 0.0001 * i) for i in range(30)]
    ends = [(20.0, 0.3), (60.0, 0.8)]
    chosen = numbers(choose_finalists(evaluations_of([*crowded, *ends]), 3, min_snr_db=None))
    assert {30, 31} < set(chosen)


def test_failures_and_trials_that_were_stopped_early_are_no_finalists() -> None:
    evaluations = [a_failure(0), a_measured(1, is_complete=False), a_measured(2)]
    assert numbers(choose_finalists(evaluations, 9, min_snr_db=None)) == [2]


def test_nothing_that_is_faster_means_no_finalists() -> None:
    assert choose_finalists([a_measured(ratio=1.2)], 9, min_snr_db=None) == []
    assert choose_finalists([], 9, min_snr_db=None) == []


def measured(snr_db: float, *latencies: Latency) -> tuple[Quality, dict[str, Latency]]:
    outcome = a_measured(snr_db=snr_db).outcome
    assert isinstance(outcome, Measurement)
    return outcome.quality, {f"target{i}": latency for i, latency in enumerate(latencies)}


def members(
    found: dict[str, tuple[Quality, dict[str, Latency]]], min_snr_db: float | None = None, ratio: float | None = None
) -> list[str]:
    def is_shown_faster(name: str, other: str) -> bool:
        pairs = zip(found[name][1].values(), found[other][1].values(), strict=True)
        return any(own.ratio_high < others.ratio_low for own, others in pairs)

    return choose_members(found, is_shown_faster, min_snr_db=min_snr_db, max_latency_ratio=ratio)


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
    found = {"a": measured(40, a_latency(0.5)), "b": measured(39.99, a_latency(0.4)), "c": measured(50, a_latency(0.6))}
    assert members(found, min_snr_db=40) == ["a", "c"]
    assert members(found, ratio=0.5) == ["b", "a"]
    assert members(found, min_snr_db=40, ratio=0.5) == ["a"]
    assert members(found, min_snr_db=90) == []


def test_equal_and_useless_outputs_have_their_place() -> None:
    found = {
        "useless": measured(-math.inf, a_latency(0.3)),
        "equal": measured(math.inf, a_latency(0.9)),
        "slower useless": measured(-math.inf, a_latency(0.4)),
    }
    assert members(found) == ["useless", "equal"]


@given(pairs)
def test_members_that_are_known_exactly_are_what_nothing_faster_than_float_beats(given_pairs: list[Pair]) -> None:
    found = {str(i): measured(snr, a_latency(ratio, spread=0)) for i, (snr, ratio) in enumerate(given_pairs)}
    quick = {p for p in given_pairs if p[1] < 1}
    front = {p for p in quick if not any(q[0] >= p[0] and q[1] <= p[1] and q != p for q in quick)}
    kept = [given_pairs[int(i)] for i in members(found)]
    assert set(kept) == front
    assert len(kept) == len(front)


@pytest.mark.parametrize("limit", [2, 3, 4])
def test_finalists_of_hardly_any_noise_are_different_and_the_best_one_is_among_them(limit: int) -> None:
    given_pairs = [(90.0, 0.5), (100.0, 0.6), (110.0, 0.7), (120.0, 0.8), (130.0, 0.9)]
    chosen = numbers(choose_finalists(evaluations_of(given_pairs), limit, min_snr_db=None))
    assert len(set(chosen)) == len(chosen) == limit
    assert 4 in chosen


def test_finalists_on_two_targets_are_different() -> None:
    latencies = [(40, 0.5, 0.9), (30, 0.6, 0.8), (20, 0.7, 0.7), (10, 0.8, 0.6)]
    evaluations = []
    for i, (snr, *found) in enumerate(latencies):
        outcome = a_measured(i, snr_db=snr).outcome
        assert isinstance(outcome, Measurement)
        both = {f"t{k}": a_latency(ratio) for k, ratio in enumerate(found)}
        evaluations.append(Evaluation(trial=a_measured(i).trial, outcome=dataclasses.replace(outcome, latency=both)))
    chosen = numbers(choose_finalists(evaluations, 3, min_snr_db=None))
    assert len(set(chosen)) == 3


def test_evaluations_that_clearly_drop_too_much_come_after_the_others() -> None:
    evaluations = [
        a_measured(0, snr_db=30, ratio=0.3, drops={"top1": 0.2}),
        a_measured(1, snr_db=50, ratio=0.6, drops={"top1": 0.01}),
        a_measured(2, snr_db=40, ratio=0.5),
    ]
    chosen = numbers(choose_finalists(evaluations, 9, min_snr_db=None, max_drops={"top1": 0.01}))
    assert chosen[-1] == 0
    assert set(chosen) == {0, 1, 2}
    assert 0 not in numbers(choose_finalists(evaluations, 2, min_snr_db=None, max_drops={"top1": 0.01}))


def test_a_drop_is_kept_exactly_and_in_every_metric() -> None:
    metrics = {"top1": a_metric(0.9, 0.01), "cosine": a_metric(1, 0.2)}
    assert keeps_drops(metrics, {})
    assert keeps_drops(metrics, {"top1": 0.01})
    assert not keeps_drops(metrics, {"top1": 0.009})
    assert not keeps_drops(metrics, {"top1": 0.01, "cosine": 0.1})


def test_a_metric_that_was_not_measured_is_not_kept() -> None:
    assert not keeps_drops({}, {"top1": 0.01})
