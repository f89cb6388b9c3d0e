import math
from dataclasses import replace

import pytest

from autoquant.domain.front import Front, Member
from autoquant.domain.objective import Objectives
from autoquant.domain.target import Target
from autoquant.metrics.grammar import parse_metrics
from autoquant.report.summary import (
    bytes_text,
    evaluations_sentence,
    foresight_sentence,
    headline,
    interval_text,
    objectives_sentence,
    ratio_text,
    run_sentences,
    schemes_text,
)
from tests.records import (
    a_failure,
    a_foresight,
    a_front,
    a_latency,
    a_ledger,
    a_measured,
    a_member,
    a_record,
)

TWO_TARGETS = (Target("cpu", 1), Target("cpu", 2))
FRONT = a_front(a_member("m1", ratio=0.4, snr_db=28.0), a_member("m2", ratio=0.55, snr_db=41.0))


def test_ratios_and_their_intervals_are_rounded_alike() -> None:
    latency = a_latency(0.5168, spread=0.005)

    assert (ratio_text(latency), interval_text(latency)) == ("0.52", "0.51 to 0.52")
    assert (ratio_text(latency, 3), interval_text(latency, 3)) == ("0.517", "0.512 to 0.522")


def test_schemes_are_named_the_commonest_first() -> None:
    member = a_member(assignment={"a": "u16s8", "b": "u8s8", "c": "u8s8", "d": "float"})

    assert schemes_text(member.assignment, 40) == "u8s8 in 2, u16s8 in 1 of 40 regions"
    assert schemes_text({}, 40) == "float in all regions"


def test_the_headline_tells_the_fastest_that_keeps_forty_decibels() -> None:
    assert headline(a_record(FRONT)) == (
        "Fastest model that keeps 40 dB: 0.55 of float's latency (0.54 to 0.56), u8s8 in 2 of 3 regions."
    )


def test_the_headline_takes_the_demand_that_the_user_gave() -> None:
    assert headline(a_record(FRONT, configuration={"min_snr_db": 25})).startswith(
        "Fastest model that keeps 25 dB: 0.40"
    )


def test_the_headline_tells_when_no_faster_model_keeps_the_demand() -> None:
    assert headline(a_record(FRONT, configuration={"min_snr_db": 60.0})) == (
        "Nothing faster than float keeps 60 dB; the fastest model keeps 28.0 dB: "
        "0.40 of float's latency (0.39 to 0.41), u8s8 in 2 of 3 regions."
    )


def test_the_headline_names_the_target_where_there_are_several() -> None:
    front = a_front(a_member(targets=TWO_TARGETS), targets=TWO_TARGETS)

    assert "(0.49 to 0.51) on cpu-1t, u8s8" in headline(a_record(front))


def test_the_headline_is_honest_where_the_first_target_gains_nothing() -> None:
    member = replace(a_member(targets=TWO_TARGETS), latency={"cpu-1t": a_latency(1.1), "cpu-2t": a_latency(0.8)})

    assert headline(a_record(a_front(member, targets=TWO_TARGETS))) == "No member is faster than float on cpu-1t."


def test_a_run_is_told_by_the_best_ratio_at_each_demand() -> None:
    assert run_sentences(a_record(FRONT)) == [
        "At 30 and 40 dB: 0.55 of float's latency (0.54 to 0.56), m2 with 41.0 dB, u8s8 in 2 of 3 regions.",
        "At 50 dB: nothing is shown to be faster than float.",
        "3 evaluations: 1 complete, 1 rejected early, 1 failed.",
    ]


def test_demands_in_a_row_that_nothing_faster_keeps_are_told_at_once() -> None:
    lines = run_sentences(a_record(a_front(a_member("m1", ratio=0.4, snr_db=35.0))))
    assert lines[0].startswith("At 30 dB: 0.40 of float's latency")
    assert lines[1] == "At 40 and 50 dB: nothing is shown to be faster than float."


def test_where_nothing_faster_keeps_any_demand_the_fastest_model_is_told() -> None:
    slow, fast = a_member("m1", ratio=0.6, snr_db=25.0), a_member("m2", ratio=0.4, snr_db=22.0)
    assert run_sentences(a_record(a_front(slow, fast)))[:-1] == [
        "At 30, 40 and 50 dB: nothing is shown to be faster than float; the fastest model takes 0.40 of float's latency"
        " (0.39 to 0.41), m2 with 22.0 dB, u8s8 in 2 of 3 regions."
    ]


def test_a_smaller_model_that_is_no_faster_is_not_called_the_fastest() -> None:
    front = a_front(a_member("m1", ratio=1.2, snr_db=25.0))
    assert run_sentences(a_record(front))[0] == "At 30, 40 and 50 dB: nothing is shown to be faster than float."


def test_a_run_that_was_asked_for_an_snr_tells_of_no_other() -> None:
    lines = run_sentences(a_record(FRONT, configuration={"min_snr_db": 41}))
    assert lines[0].startswith("At 41 dB: 0.55 of float's latency")
    assert [line for line in lines if line.startswith("At")] == lines[:1]


def test_evaluations_of_another_run_are_not_counted_as_its_own() -> None:
    record = a_record(FRONT, evaluations=(a_measured(0), a_measured(1), a_measured(2, ratio=None)))
    assert run_sentences(replace(record, n_earlier=2))[-1] == "1 evaluation, beside 2 of the run before: 1 not timed."


def test_a_run_says_what_was_not_timed_and_the_time_that_was_saved() -> None:
    record = a_record(FRONT, evaluations=(a_measured(0), a_measured(1, ratio=None)))
    assert run_sentences(record)[-1] == "2 evaluations: 1 complete, 1 not timed."
    saved = run_sentences(replace(record, seconds_saved=12.34))
    assert saved[-1] == "Stopping candidates early saved about 12.3 s."


def test_a_run_on_several_targets_names_them() -> None:
    lines = run_sentences(a_record(a_front(a_member(targets=TWO_TARGETS), targets=TWO_TARGETS)))

    assert [line.split(":")[0] for line in lines[:-1]] == [
        f"{target}, at {demands} dB" for target in ("cpu-1t", "cpu-2t") for demands in ("30 and 40", "50")
    ]


def test_a_run_where_nothing_pays_says_so() -> None:
    record = a_record(a_front(), evaluations=(a_measured(0, ratio=1.2),))

    assert run_sentences(record) == [
        "Nothing is shown to be better than float, which alone is on the front.",
        "1 evaluation: 1 complete.",
    ]
    assert headline(record) == "Nothing is shown to be better than float, which alone is on the front."


def test_a_run_where_nothing_can_be_compared_does_not_say_that_nothing_is_better() -> None:
    record = a_record(a_front(), evaluations=(a_measured(0, snr_db=-math.inf),))
    assert headline(record) == "No candidate can be compared with float, which alone is on the front."


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (27_500, "27.5 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (999_949_999, "999.9 MB"),
        (999_950_000, "1.00 GB"),
    ],
)
def test_sizes_have_a_unit_of_which_they_are_less_than_a_thousand(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_a_size_that_no_candidate_has_is_told_with_that_of_the_smallest() -> None:
    def said(max_size_bytes: int) -> str:
        configuration = {"max_size_bytes": max_size_bytes}
        return headline(a_record(a_front(), evaluations=(a_measured(0),), configuration=configuration))

    assert said(1).startswith("No candidate is as small as demanded: the smallest file takes ")
    assert said(1234).endswith(", not 1.2 kB.")
    assert said(10**9) == "Nothing better than float was found that keeps what is demanded."


@pytest.mark.parametrize("demand", ["min_snr_db", "max_latency_ratio"])
def test_a_demand_that_nothing_keeps_is_not_called_a_model_that_nothing_pays_for(demand: str) -> None:
    record = a_record(a_front(), configuration={demand: 1})

    assert headline(record) == "Nothing better than float was found that keeps what is demanded."


@pytest.mark.parametrize("evaluations", [(), (a_failure(0),)])
def test_a_run_without_a_measurement_does_not_claim_that_nothing_pays(evaluations: tuple[()]) -> None:
    record = a_record(a_front(), evaluations=evaluations)

    assert run_sentences(record)[0] == "No quantized candidate was measured: the float model alone is on the front."


def test_float_alone_is_no_candidate_and_without_regions_there_is_none() -> None:
    record = a_record(a_front(), evaluations=(a_measured(0, assignment={"r0": "float"}),))

    assert run_sentences(record)[0] == "No quantized candidate was measured: the float model alone is on the front."
    nothing = replace(record, regions=())
    assert run_sentences(nothing)[0] == "Nothing could be quantized: the float model alone is on the front."


def test_no_evaluations_are_told_as_such() -> None:
    assert evaluations_sentence([]) == "No evaluations."


def test_where_a_largest_drop_is_demanded_the_headline_is_about_it() -> None:
    front = a_front(a_member(snr_db=25.0, ratio=0.4), a_member("m2", snr_db=45.0, ratio=0.6))
    record = a_record(front, configuration={"max_drop": {"top1": 0.005}})

    assert headline(record) == (
        "Fastest model with top1 worse by 0.5 % at most: 0.40 of float's latency (0.39 to 0.41),"
        " u8s8 in 2 of 3 regions."
    )
    assert run_sentences(record)[0] == headline(record)
    alone = a_record(a_front(), configuration={"max_drop": {"top1": 0.005}})
    assert headline(alone) == "Nothing faster than float was found with top1 worse by 0.5 % at most."
    without = a_record(front, configuration={"max_drop": {}})
    assert headline(without).startswith("Fastest model that keeps 40 dB")
    assert run_sentences(without)[0].startswith("At 30 and 40 dB")


def of_a_metric(*members: Member) -> Front:
    goals = Objectives(has_snr=False, metrics=parse_metrics(["top1"]), has_size=True).goals
    return replace(a_front(*members), objectives=goals)


def test_a_front_of_a_metric_is_told_by_its_drops() -> None:
    front = of_a_metric(
        a_member("m1", ratio=0.4, drops={"top1": 0.02}), a_member("m2", ratio=0.6, drops={"top1": 0.004})
    )

    assert headline(a_record(front)) == (
        "Fastest model: 0.40 of float's latency (0.39 to 0.41), top1 is worse by 2 %, u8s8 in 2 of 3 regions."
    )
    assert [line.split(",")[0] for line in run_sentences(a_record(front))[:3]] == [
        "Objectives: higher top1",
        "At top1 no worse: nothing is shown to be faster than float.",
        "At top1 worse by 0.5 % and top1 worse by 1 %: 0.60 of float's latency (0.59 to 0.61)",
    ]
    assert headline(a_record(front, configuration={"min_snr_db": 40})).startswith("Fastest model that keeps 40 dB")


def test_a_member_that_is_better_than_float_is_called_so() -> None:
    front = of_a_metric(a_member("m1", ratio=0.4, drops={"top1": -0.02}))

    assert ", top1 is better by 2 %, " in headline(a_record(front))


def test_a_front_of_smaller_models_alone_is_not_called_fast() -> None:
    front = of_a_metric(a_member(ratio=1.2, drops={"top1": 0.0}))

    assert headline(a_record(front)) == "No member is faster than float on cpu-1t."
    demanded = a_record(front, configuration={"max_drop": {"top1": 0.005}})
    assert headline(demanded) == "No member is faster than float on cpu-1t."


def test_objectives_are_told() -> None:
    assert objectives_sentence(FRONT) == "Objectives: higher snr, lower latency."
    front = of_a_metric(a_member(drops={"top1": 0.0}))
    assert objectives_sentence(front) == "Objectives: higher top1, lower latency, lower size."


def test_how_well_evaluations_were_predicted_is_told_last() -> None:
    lines = run_sentences(a_record(FRONT, ledger=a_ledger()))

    assert lines[:-1] == run_sentences(a_record(FRONT))
    assert lines[-1] == (
        "Of the last 60 evaluations 92 % had their SNR and 88 % their latency ratio within the 90 % interval that was"
        " predicted; none of the proposals were left to a generic sampler in the end."
    )
    assert run_sentences(a_record(a_front(), ledger=a_ledger()))[-1] == lines[-1]
    assert run_sentences(a_record(FRONT, ledger=a_ledger(foresight=None))) == lines[:-1]


def test_a_generic_sampler_that_took_over_is_told() -> None:
    text = foresight_sentence(a_foresight(n_recent=1, generic_share=0.354))

    assert text.startswith("Of the last evaluation 92 % had")
    assert text.endswith("predicted; 35 % of the proposals were left to a generic sampler in the end.")
