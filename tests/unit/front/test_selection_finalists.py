import dataclasses
import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.measurement import Believed, Evaluation, Measurement
from autoquant.domain.objective import Objectives
from autoquant.front.selection import choose_finalists
from tests.records import a_failure, a_latency, a_measured
from tests.unit.front.choices import FLOAT_BYTES, TOP1, Pair, evaluations_of, finalists, numbers, pairs


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
    n_eligible = sum(ratio < 1 and snr_db > -math.inf for snr_db, ratio in given_pairs)
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


def test_candidates_far_beyond_a_largest_ratio_take_no_time_of_those_that_are_near() -> None:
    found = evaluations_of([(30, 0.45), (40, 0.52), (50, 0.7), (60, 0.9)])
    assert set(numbers(finalists(found, 4, max_latency_ratio=0.5))) == {0, 1}


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


def test_what_is_hardly_behind_an_uncertain_snr_is_a_finalist_before_what_is_far_behind() -> None:
    lucky, spare, far = evaluations_of([(58.0, 0.47), (55.0, 0.48), (35.0, 0.47)])

    def with_error(evaluation: Evaluation, error_db: float) -> Evaluation:
        assert isinstance(evaluation.outcome, Measurement)
        quality = dataclasses.replace(evaluation.outcome.quality, error_db=error_db)
        return dataclasses.replace(evaluation, outcome=dataclasses.replace(evaluation.outcome, quality=quality))

    assert numbers(finalists([lucky, spare, far], 2)) == [0, 2], "it may be the fastest"
    assert numbers(finalists([with_error(each, 3.0) for each in (lucky, spare, far)], 2)) == [0, 1]
