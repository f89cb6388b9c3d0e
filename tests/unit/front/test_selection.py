import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.measurement import Believed, Evaluation, Latency, Measurement
from autoquant.domain.objective import DEFAULT_OBJECTIVES, Bounds, Objectives, Standing
from autoquant.front.selection import choose_finalists, choose_members, keeps_drops, spares
from autoquant.metrics.grammar import parse_metrics
from tests.records import a_failure, a_latency, a_measured, a_metric

Pair = tuple[float, float]
FLOAT_BYTES = 10_000_000
snrs = st.floats(-20, 140) | st.integers(2, 8).map(lambda tens: 10.0 * tens) | st.sampled_from([math.inf, -math.inf])
ratios = st.floats(0.2, 1.4) | st.integers(3, 12).map(lambda tenths: tenths / 10)
pairs = st.lists(st.tuples(snrs, ratios), max_size=40)


def evaluations_of(given_pairs: Sequence[Pair]) -> list[Evaluation]:
    return [a_measured(i, snr_db=snr, ratio=ratio) for i, (snr, ratio) in enumerate(given_pairs)]


def finalists(evaluations: Sequence[Evaluation], limit: int, **bounds: Any) -> list[Evaluation]:
    return choose_finalists(evaluations, limit, float_bytes=FLOAT_BYTES, bounds=Bounds(**bounds))


def numbers(evaluations: Sequence[Evaluation]) -> list[int]:
    return [evaluation.trial.number for evaluation in evaluations]


@given(given_pairs=pairs, limit=st.integers(1, 25), min_snr_db=st.none() | st.floats(0, 80))
def test_finalists_are_few_different_and_within_the_demand(
    given_pairs: list[Pair], limit: int, min_snr_db: float | None
) -> None:
    chosen = numbers(finalists(evaluations_of(given_pairs), limit, min_snr_db=min_snr_db))
    assert len(chosen) <= limit
    assert len(set(chosen)) == len(chosen)
    for i in chosen:
        snr, ratio = given_pairs[i]
        assert ratio < 1
        assert min_snr_db is None or snr >= min_snr_db - 3


@given(given_pairs=pairs, limit=st.integers(1, 25))
def test_no_room_is_left_while_anything_is_faster_than_float(given_pairs: list[Pair], limit: int) -> None:
    n_eligible = sum(ratio < 1 for _, ratio in given_pairs)
    assert len(finalists(evaluations_of(given_pairs), limit)) == min(limit, n_eligible)


def test_few_finalists_cover_a_crowded_front() -> None:
    crowded = [(40.0 + 0.01 * i, 0.5 + 0.0001 * i) for i in range(30)]
    ends = [(20.0, 0.3), (60.0, 0.8)]
    chosen = numbers(finalists(evaluations_of([*crowded, *ends]), 3))
    assert {30, 31} < set(chosen)


def test_a_small_step_of_the_front_waits_for_a_large_one() -> None:
    """Far apart is not worth much: the most accurate one saves nearly nothing, at demands that hardly anybody has."""
    given_pairs = [(95.0, 0.99), (45.0, 0.6), (30.0, 0.5), (15.0, 0.4), (-20.0, 0.39)]
    assert set(numbers(finalists(evaluations_of(given_pairs), 3))) == {1, 2, 3}
    assert 4 not in numbers(finalists(evaluations_of(given_pairs), 4))


def test_what_the_user_demands_decides_what_is_worth_most() -> None:
    given_pairs = [(62.0, 0.9), (45.0, 0.7), (44.0, 0.68), (15.0, 0.3)]
    assert numbers(finalists(evaluations_of(given_pairs), 1)) == [2]
    assert numbers(finalists(evaluations_of(given_pairs), 2, min_snr_db=40)) == [0, 1]
    assert numbers(finalists(evaluations_of(given_pairs), 1, min_snr_db=50)) == [0]


def test_what_is_believed_counts_in_place_of_what_was_measured() -> None:
    lucky, other = (50.0, 0.5), (49.0, 0.55)
    evaluations = evaluations_of([lucky, other])
    assert numbers(finalists(evaluations, 1)) == [0]
    believed = {0: Believed(snr_db=40.0, ratios=(0.6,))}
    chosen = choose_finalists(evaluations, 1, float_bytes=FLOAT_BYTES, believed=believed)
    assert numbers(chosen) == [1]
    assert chosen[0] is evaluations[1]


def a_twin(of: int, *, number: int) -> Evaluation:
    found = a_measured(of)
    return dataclasses.replace(found, trial=dataclasses.replace(found.trial, number=number))


def test_failures_and_trials_that_were_stopped_early_are_no_finalists() -> None:
    evaluations = [a_failure(0), a_measured(1, is_complete=False), a_measured(2)]
    assert numbers(finalists(evaluations, 9)) == [2]


def test_a_graph_that_was_timed_later_is_a_finalist() -> None:
    assert numbers(finalists([a_measured(1, ratio=None), a_twin(1, number=7)], 9)) == [7]


def test_nothing_that_is_faster_means_no_finalists() -> None:
    assert finalists([a_measured(ratio=1.2)], 9) == []
    assert finalists([], 9) == []


def measured(snr_db: float, *latencies: Latency, size_bytes: int = 3_000_000, **drops: float) -> Standing:
    outcome = a_measured(snr_db=snr_db).outcome
    assert isinstance(outcome, Measurement)
    by_target = {f"target{i}": latency for i, latency in enumerate(latencies)}
    return Standing(quality=outcome.quality, latency=by_target, size_bytes=size_bytes, drops=drops)


def members(found: dict[str, Standing], objectives: Objectives = DEFAULT_OBJECTIVES, **bounds: Any) -> list[str]:
    def is_shown_faster(name: str, other: str) -> bool:
        pairs = zip(found[name].latency.values(), found[other].latency.values(), strict=True)
        return any(own.ratio_high < others.ratio_low for own, others in pairs)

    return choose_members(
        found, is_shown_faster, float_bytes=FLOAT_BYTES, objectives=objectives, bounds=Bounds(**bounds)
    )


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


def test_candidates_far_beyond_a_largest_ratio_take_no_time_of_those_that_are_near() -> None:
    found = evaluations_of([(30, 0.45), (40, 0.52), (50, 0.7), (60, 0.9)])
    assert set(numbers(finalists(found, 4, max_latency_ratio=0.5))) == {0, 1}


def test_what_is_beaten_in_ratio_and_snr_is_no_member_whatever_rounds_in_pairs_say() -> None:
    found = {"better": measured(40, a_latency(0.555)), "worse": measured(30, a_latency(0.569))}
    kept = choose_members(found, lambda *_: True, float_bytes=FLOAT_BYTES)
    assert kept == ["better"]


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


def test_finalists_of_hardly_any_noise_are_different() -> None:
    given_pairs = [(90.0, 0.5), (100.0, 0.6), (110.0, 0.7), (120.0, 0.8), (130.0, 0.9)]
    chosen = numbers(finalists(evaluations_of(given_pairs), 4))
    assert len(set(chosen)) == len(chosen) == 4


def on_several_targets(found: Sequence[tuple[float, ...]]) -> list[Evaluation]:
    """Of SNRs and the ratios on each target."""
    evaluations = []
    for i, (snr, *ratios_of_one) in enumerate(found):
        outcome = a_measured(i, snr_db=snr).outcome
        assert isinstance(outcome, Measurement)
        latency = {f"t{k}": a_latency(ratio) for k, ratio in enumerate(ratios_of_one)}
        evaluations.append(Evaluation(trial=a_measured(i).trial, outcome=dataclasses.replace(outcome, latency=latency)))
    return evaluations


def test_finalists_on_two_targets_are_different() -> None:
    latencies = [(40, 0.5, 0.9), (30, 0.6, 0.8), (20, 0.7, 0.7), (10, 0.8, 0.6)]
    chosen = numbers(finalists(on_several_targets(latencies), 3))
    assert len(set(chosen)) == 3


def test_what_saves_on_one_target_alone_is_a_finalist_too() -> None:
    """As recipes and mixes were estimated on one thread, on two and in two streams, with time for few finalists."""
    found = [(26.4, 0.68, 0.84, 0.78), (26.8, 0.68, 0.86, 0.77), (27.7, 0.7, 0.88, 0.8), (29.3, 0.75, 0.95, 0.85)]
    found += [(42.8, 0.84, 1.08, 0.94), (43.2, 0.86, 1.06, 0.93), (29.7, 0.8, 0.96, 0.9)]
    chosen = numbers(finalists(on_several_targets(found), 3))
    assert {4, 5} & set(chosen)


def test_evaluations_that_clearly_drop_too_much_come_after_the_others() -> None:
    evaluations = [
        a_measured(0, snr_db=30, ratio=0.3, drops={"top1": 0.2}),
        a_measured(1, snr_db=50, ratio=0.6, drops={"top1": 0.01}),
        a_measured(2, snr_db=40, ratio=0.5),
    ]
    chosen = numbers(finalists(evaluations, 9, max_drops={"top1": 0.01}))
    assert chosen[-1] == 0
    assert set(chosen) == {0, 1, 2}
    assert 0 not in numbers(finalists(evaluations, 2, max_drops={"top1": 0.01}))


def test_evaluations_whose_drop_is_not_known_come_after_those_that_keep_it() -> None:
    evaluations = [
        a_measured(0, snr_db=40, ratio=0.3),
        a_measured(1, snr_db=50, ratio=0.6, drops={"top1": 0.01}),
        a_measured(2, snr_db=60, ratio=0.8, drops={"top1": 0.0}),
    ]
    assert numbers(finalists(evaluations, 3, max_drops={"top1": 0.01}))[-1] == 0
    assert set(numbers(finalists(evaluations, 2, max_drops={"top1": 0.01}))) == {1, 2}
    assert 0 in numbers(finalists(evaluations, 2))


def test_a_drop_is_kept_exactly_and_in_every_metric() -> None:
    metrics = {"top1": a_metric(0.9, 0.01), "cosine": a_metric(1, 0.2)}
    assert keeps_drops(metrics, {})
    assert keeps_drops(metrics, {"top1": 0.01})
    assert not keeps_drops(metrics, {"top1": 0.009})
    assert not keeps_drops(metrics, {"top1": 0.01, "cosine": 0.1})


def test_a_metric_that_was_not_measured_is_not_kept() -> None:
    assert not keeps_drops({}, {"top1": 0.01})


TOP1 = parse_metrics(["top1"])


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


def test_of_the_files_that_run_as_one_graph_the_smallest_is_a_finalist() -> None:
    evaluations = [a_measured(i, size_bytes=size) for i, size in enumerate((900, 800, 850))]
    same = [
        dataclasses.replace(e, outcome=dataclasses.replace(e.outcome, digest="one"))
        for e in evaluations
        if isinstance(e.outcome, Measurement)
    ]
    assert numbers(finalists(same, 9)) == [1]


def test_what_is_far_ahead_in_one_objective_is_a_finalist() -> None:
    evaluations = [
        a_measured(0, snr_db=60, ratio=0.7, size_bytes=7_000_000, drops={"top1": 0.06}),
        a_measured(1, snr_db=15, ratio=0.2, size_bytes=7_000_000, drops={"top1": 0.06}),
        a_measured(2, snr_db=15, ratio=0.7, size_bytes=1_000_000, drops={"top1": 0.06}),
        a_measured(3, snr_db=15, ratio=0.7, size_bytes=7_000_000, drops={"top1": 0.0}),
        *(a_measured(i, snr_db=20, ratio=0.6, size_bytes=6_000_000 - i, drops={"top1": 0.1}) for i in range(4, 20)),
    ]
    chosen = choose_finalists(
        evaluations, 5, float_bytes=FLOAT_BYTES, objectives=Objectives(metrics=TOP1, has_size=True)
    )
    assert set(numbers(chosen)) >= {0, 1, 2, 3}


def test_near_misses_of_a_demand_are_measured_the_nearest_first() -> None:
    """Estimates err: the best of those just below may keep it."""
    given_pairs = [(37.0 + i / 10, 0.4 + i / 100) for i in range(30)]
    chosen = numbers(finalists(evaluations_of(given_pairs), 3, min_snr_db=40))
    assert min(chosen) >= 26
    assert 29 in chosen
    with_safe = [*given_pairs, (60.0, 0.98)]
    assert set(numbers(finalists(evaluations_of(with_safe), 4, min_snr_db=40))) >= {29, 30}


def test_files_larger_than_float_are_of_use_where_the_size_is_an_objective() -> None:
    snrs_and_ratios = [(80, 0.99), (70, 0.98), (40, 0.5), (30, 0.4)]
    evaluations = [
        a_measured(i, snr_db=snr, ratio=ratio, size_bytes=FLOAT_BYTES + 10)
        for i, (snr, ratio) in enumerate(snrs_and_ratios)
    ]
    chosen = choose_finalists(evaluations, 2, float_bytes=FLOAT_BYTES, objectives=Objectives(has_size=True))
    assert set(numbers(chosen)) == {2, 3}


def test_a_collapsed_candidate_does_not_decide_what_drops_are_asked_for() -> None:
    drops = [0.0, 0.003, 0.01, 0.03, 0.97]
    evaluations = [a_measured(i, snr_db=30, ratio=0.7 - i / 10, drops={"top1": drop}) for i, drop in enumerate(drops)]
    chosen = choose_finalists(
        evaluations, 3, float_bytes=FLOAT_BYTES, objectives=Objectives(has_snr=False, metrics=TOP1)
    )
    assert 4 not in numbers(chosen)


def test_of_those_that_drop_too_much_the_nearest_come_first() -> None:
    evaluations = [
        a_measured(i, snr_db=30 - i, ratio=0.6, drops={"top1": drop})
        for i, drop in enumerate((0.5, 0.49, 0.48, 0.0101))
    ]
    chosen = choose_finalists(
        evaluations,
        1,
        float_bytes=FLOAT_BYTES,
        objectives=Objectives(metrics=TOP1),
        bounds=Bounds(max_drops={"top1": 0.01}),
    )
    assert numbers(chosen) == [3]


def test_what_is_hardly_behind_an_uncertain_snr_is_a_finalist_before_what_is_far_behind() -> None:
    lucky, spare, far = evaluations_of([(58.0, 0.47), (55.0, 0.48), (35.0, 0.47)])

    def with_error(evaluation: Evaluation, error_db: float) -> Evaluation:
        assert isinstance(evaluation.outcome, Measurement)
        quality = dataclasses.replace(evaluation.outcome.quality, error_db=error_db)
        return dataclasses.replace(evaluation, outcome=dataclasses.replace(evaluation.outcome, quality=quality))

    assert numbers(finalists([lucky, spare, far], 2)) == [0, 2], "it may be the fastest"
    assert numbers(finalists([with_error(each, 3.0) for each in (lucky, spare, far)], 2)) == [0, 1]
