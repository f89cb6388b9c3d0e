from dataclasses import replace

import pytest

from autoquant.api.attempts import Attempt, Demand
from autoquant.api.resolved_sentences import known_sentences, missed_sentence, resolved_sentences, with_interval
from autoquant.domain.front import Member
from autoquant.domain.target import Target
from tests.records import a_failure, a_front, a_measured, a_member
from tests.unit.api.resolving import a_prediction

ATTEMPT = Attempt(a_prediction(), a_measured(14, snr_db=35.0))


def test_an_interval_holds_two_standard_deviations_on_either_side() -> None:
    assert with_interval(0.5, 0.01, 3) == "0.500 (0.480 to 0.520)"
    assert with_interval(36.0, 0.0, 1) == "36.0 (36.0 to 36.0)"


def test_of_what_is_not_delivered_it_is_said_what_was_predicted_and_what_it_gave() -> None:
    assert missed_sentence(ATTEMPT, Demand(36.0)) == (
        "t0014 missed the demand of 36 dB: 36.0 (35.0 to 37.0) dB were predicted, its trial gave 35.00 dB and a ratio"
        " of 0.600"
    )
    failed = Attempt(a_prediction(), a_failure(15))
    assert missed_sentence(failed, Demand(36.0, 0.7)).startswith("t0015 missed the demand of 36 dB at a ratio of 0.7: ")


def test_prediction_and_measurement_are_told_on_every_target() -> None:
    targets = (Target(), Target(threads=2))
    predicted = a_prediction(ratios=(0.5, 0.6), ratio_errors=(0.01, 0.01))
    front = a_front(a_member(snr_db=42.0, targets=targets), targets=targets)
    attempt = Attempt(predicted, a_measured(14, snr_db=42.0))
    assert resolved_sentences(front, attempt, Demand(36.0), learned_from="run") == [
        "predicted from 14 trials of run: 36.0 (35.0 to 37.0) dB,"
        " ratio 0.500 (0.480 to 0.520) on cpu-1t, 0.600 (0.580 to 0.620) on cpu-2t",
        "measured: 42.0 dB (43.0, 42.0 to 44.0, on the samples of the search),"
        " ratio 0.500 (0.490 to 0.510) on cpu-1t, 0.500 (0.490 to 0.510) on cpu-2t",
    ]


def test_what_the_model_misses_is_said() -> None:
    front = a_front(a_member(snr_db=35.5, ratio=0.5))
    missed = resolved_sentences(front, ATTEMPT, Demand(36.0, 0.4), learned_from="run")[-1]
    assert missed == (
        "the demand is missed: 35.50 dB, not 36 and a ratio of 0.500, not 0.4; demand a bit more to have more room"
    )


def test_where_the_model_is_not_on_the_front_there_is_none_for_the_demand() -> None:
    assert resolved_sentences(a_front(), ATTEMPT, Demand(30.0), learned_from="run")[1:] == [
        "there is no model for 30 dB: the one that was built is not shown to be faster than float; its trial gave 35.00"
        " dB and a ratio of 0.600"
    ]


def test_that_something_faster_may_be_predicted_is_said() -> None:
    attempt = Attempt(a_prediction(is_proven=False), ATTEMPT.evaluation)
    said = resolved_sentences(a_front(a_member()), attempt, Demand(30.0), learned_from="run")
    assert said[1] == "there was no time to show that nothing faster is predicted to keep the demand"


def a_file(name: str, ratio: float, snr_db: float) -> Member:
    return replace(a_member(name, ratio=ratio, snr_db=snr_db), sha256=name)


BEFORE = a_front(a_file("t0001", 0.3, 20.0), a_file("t0002", 0.5, 40.0), a_file("t0003", 0.6, 50.0))


@pytest.mark.parametrize(
    ("built", "demand", "named"),
    [
        ([a_member(ratio=0.55)], Demand(30.0), "t0002"),
        ([a_member(ratio=0.5)], Demand(30.0), "t0002"),
        ([], Demand(30.0), "t0002"),
        ([], Demand(45.0), "t0003"),
        ([a_member(ratio=0.45)], Demand(30.0), None),
        ([], Demand(60.0), None),
        ([], Demand(45.0, 0.55), None),
    ],
    ids=["faster", "as fast", "none built", "more decibels", "slower", "none keeps it", "none keeps its ratio"],
)
def test_what_the_run_itself_has_for_the_demand_is_named_where_it_is_no_slower(
    built: list[Member], demand: Demand, named: str | None
) -> None:
    said = known_sentences({"runs/a": BEFORE}, a_front(*built), demand)
    assert len(said) == (named is not None)
    assert all(s.startswith(f"runs/a/models/{named}.onnx keeps the demand too and was no slower: ") for s in said)


def test_where_what_was_built_misses_the_demand_what_keeps_it_is_named_though_it_is_slower() -> None:
    (said,) = known_sentences({"runs/a": BEFORE}, a_front(a_member(ratio=0.55, snr_db=42.0)), Demand(45.0))
    assert said.startswith("runs/a/models/t0003.onnx keeps it: 50.0 ")


def test_where_nothing_was_built_the_run_still_has_what_keeps_the_demand() -> None:
    (said,) = known_sentences({"runs/a": BEFORE}, None, Demand(45.0))
    assert said.startswith("runs/a/models/t0003.onnx keeps it: 50.0 ")
    slower = a_front(a_member("t0001", ratio=1.2, snr_db=50.0))
    assert known_sentences({"runs/a": slower}, None, Demand(45.0)) == []


def test_a_front_that_a_later_one_took_the_place_of_is_looked_at_too() -> None:
    known = {"runs/a": a_front(a_file("t0040", 0.7, 50.0)), "runs/a/earlier/1": BEFORE}
    (said,) = known_sentences(known, None, Demand(35.0))
    assert said.startswith("runs/a/earlier/1/models/t0002.onnx keeps it: ")


def test_of_a_file_that_was_measured_again_the_newest_numbers_count() -> None:
    known = {"runs/a": a_front(a_file("t0002", 0.66, 40.0)), "runs/a/earlier/1": BEFORE}
    assert known_sentences(known, a_front(a_member(ratio=0.55)), Demand(35.0)) == []
    assert known_sentences({"runs/a": BEFORE}, a_front(a_member(ratio=0.55)), Demand(35.0)) != []
