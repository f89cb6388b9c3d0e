from autoquant.domain.objective import Bounds, Objectives
from autoquant.front.selection import choose_finalists, keeps_drops
from tests.records import a_measured, a_metric
from tests.unit.front.choices import FLOAT_BYTES, TOP1, finalists, numbers


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
