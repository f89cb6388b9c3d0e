import math
from dataclasses import replace

import numpy as np
import pytest

from autoquant.api.sentences import (
    calibration_sentences,
    dominated_sentences,
    ending_sentence,
    failure_sentences,
    joined_sentences,
    left_out_sentences,
    limiting_sentences,
    noisy_sentences,
    numberless_sentences,
    outlook_sentences,
    rule_sentences,
    saturation_sentences,
    silent_sentences,
    slower_sentences,
    unbounded_sentences,
)
from autoquant.domain.front import Member
from autoquant.domain.measurement import Evaluation, Measurement, Quality
from autoquant.domain.objective import Goal
from autoquant.domain.region import TensorName
from autoquant.domain.scheme import Rounding
from autoquant.domain.space import SpaceRule
from autoquant.domain.statistics import N_BINS, Statistics, TensorStatistics
from autoquant.model.graph import Graph
from autoquant.qdq.masks import Why
from autoquant.space.schema import read_space
from autoquant.study.outlook import Outlook
from tests.models import model_of
from tests.records import a_failure, a_front, a_measured, a_member, a_region


def an_outlook(saving: float, attainable: float) -> Outlook:
    return Outlook(saving=saving, attainable=attainable, next_gain=0.0, noise=0.01, demands_db=(8.0, 64.0))


NOTHING = "before any quantized candidate was evaluated; give"


@pytest.mark.parametrize(
    ("ended", "evaluations", "missing_s", "said"),
    [
        ("time", [a_measured(0)] * 20, 9.0, "the time budget ended the search"),
        (
            "time",
            [a_measured(0)] * 19,
            9.0,
            "the time budget ended the search after only 19 evaluations; give more time",
        ),
        ("time", [], 0.0, f"the time budget ended the search {NOTHING} more time"),
        ("time", [], 64.2, f"the time budget ended the search {NOTHING} at least 65 s more time"),
        (
            "time",
            [a_measured(0, assignment={"r0": "float"})],
            -1.0,
            f"the time budget ended the search {NOTHING} more time",
        ),
        ("time", [a_failure(0)], 9.0, "the time budget ended the search after only 1 evaluation; give more time"),
        ("exhausted", [], -math.inf, "no assignment is left that runs as another graph"),
    ],
)
def test_a_search_that_had_no_time_to_begin_says_what_to_do(
    ended: str, evaluations: list[Evaluation], missing_s: float, said: str
) -> None:
    assert ending_sentence(ended, evaluations, missing_s) == said


def test_an_error_that_ended_a_search_is_told() -> None:
    assert ending_sentence("sampler", [a_measured(0)], 9.0, "torch is missing") == (
        "the search ended: torch is missing"
    )


@pytest.mark.parametrize("ended", ["time", "plateau"])
def test_a_search_without_any_snr_says_why_instead_of_wanting_more_time(ended: str) -> None:
    without = [a_failure(0), a_measured(1, snr_db=-math.inf), a_measured(2, assignment={"r0": "float"})]
    said = ending_sentence(ended, without, 9.0)
    assert (
        " after 3 evaluations; no quantized candidate has an SNR, as in each of them 'logits' has another shape" in said
    )
    assert "more time" not in said
    for other in (a_measured(3), a_measured(3, snr_db=-math.inf, drops={"top1": 0.1})):
        assert "SNR" not in ending_sentence(ended, [*without, other], 9.0)


def reaching(**largest: float) -> Statistics:
    """Of activations whose largest magnitudes these are; every second one is that of a minimum."""
    counts = np.zeros(N_BINS, np.int64)
    tensors = {
        TensorName(name): TensorStatistics(
            minimum=-value if i % 2 else 0.0, maximum=0.0 if i % 2 else value, limit=value, counts=counts, n_zeros=1
        )
        for i, (name, value) in enumerate(largest.items())
    }
    return Statistics(tensors=tensors, digest="", n_samples=1)


@pytest.mark.parametrize("last", ["Identity(j)", "Cast<to=10>(j)"])
@pytest.mark.parametrize(("boxes", "is_said"), [(640.0, True), (5.0, False), (0.0, False)])
def test_outputs_whose_small_parts_no_snr_sees_are_told(boxes: float, is_said: bool, last: str) -> None:
    body = f"b = Mul(x, k) s = Sigmoid(x) z = Exp(x) j = Concat<axis=1>(b, s, z) y = {last}"
    dtype = "float16" if "Cast" in last else "float"
    graph = Graph(model_of(f"(float[1,2] x) => ({dtype}[1,6] y)", body, {"k": 640.0}))
    said = joined_sentences(graph, reaching(b=boxes, s=0.98))
    assert bool(said) == is_said
    assert not is_said or said[0].startswith("output 'y' joins parts of unlike size, 'b' up to 640 and 's' up to 0.98:")


@pytest.mark.parametrize(("ratio", "is_said"), [(0.9, False), (1.11, False), (1.2, True)])
def test_a_preprocessed_model_that_is_slower_than_the_given_one_is_told(ratio: float, is_said: bool) -> None:
    plain = a_measured(0, snr_db=math.inf, ratio=ratio, assignment={"r0": "float"})
    quantized = a_measured(1, snr_db=30, ratio=1.3)
    assert slower_sentences([quantized]) == []
    said = slower_sentences([quantized, plain])
    assert bool(said) is is_said
    assert not is_said or said[0].startswith("the preprocessed float model takes 1.20 (1.1")


def test_samples_that_were_left_out_and_ranges_of_few_are_told() -> None:
    few = "calibration: ranges rest on {} alone, and other inputs may lie beyond them; give 16 or more"
    assert calibration_sentences(8, 8, is_again=False) == []
    assert calibration_sentences(9, 20, is_again=False) == ["calibration: there was time for 9 of the 20 samples"]
    assert calibration_sentences(1, 1, is_again=False) == [few.format("1 sample")]
    again = ["calibration: as before, on 7 of the 20 samples", few.format("7 samples")]
    assert calibration_sentences(7, 20, is_again=True) == again


@pytest.mark.parametrize("body", ["y = Sigmoid(x)", "c = Concat<axis=0>(x, x) y = Exp(c)"])
def test_of_outputs_that_join_nothing_nothing_is_told(body: str) -> None:
    graph = Graph(model_of("(float[2] x) => (float[N] y)", body))
    assert joined_sentences(graph, reaching(x=1.0, y=100.0)) == []


def test_rules_without_effect_and_those_with_one_that_nobody_asked_for_are_told() -> None:
    selected = [({"Add", "Mul"}, None, "u8s8-channel-mse"), (set(), "haed", "float"), ({"Conv"}, "r0", "u16")]
    rules = [SpaceRule(op_types=frozenset(types), nodes=nodes, schemes=(name,)) for types, nodes, name in selected]
    space = replace(read_space("default", ep="cpu"), rules=(*rules, replace(rules[0], nodes="^r0")))
    *unmatched, emptied = rule_sentences(space, [a_region("r0"), a_region("r1")])
    assert unmatched == [
        f"the rule for {spelled} matches no node of a region; see 'autoquant regions MODEL --json'"
        for spelled in ("Add, Mul", "nodes 'haed'", "Add, Mul with nodes '^r0'")
    ]
    assert emptied.startswith("rules leave 1 region float without saying so, such as r0: the provider has none of")


@pytest.mark.parametrize("name", ["default", "quick", "extensive", "power_of_two"])
def test_a_shipped_space_has_no_rule_to_tell_of(name: str) -> None:
    assert rule_sentences(read_space(name, ep="cpu"), [a_region("r0")]) == []


def test_trials_that_failed_are_counted_with_their_most_frequent_reason() -> None:
    good, bad, worse = a_measured(0), a_failure(1, reason="it hung"), a_failure(2, reason="no memory")
    assert failure_sentences([good]) == []
    assert failure_sentences([good, bad]) == ["1 of 2 trials failed for this reason: it hung"]
    said = failure_sentences([worse, bad, bad])
    assert said == ["3 of 3 trials failed, 2 of them for this reason: it hung"]


def test_outputs_that_nothing_judges_are_named() -> None:
    assert silent_sentences([]) == []
    (said,) = silent_sentences(["a", "b"])
    assert "'a', 'b'" in said


def test_a_space_that_saturates_here_is_told_with_what_becomes_of_it() -> None:
    space = read_space("default", ep="cpu")
    assert saturation_sentences(space, space) == []
    (only,) = saturation_sentences(space, space.unsaturated())
    assert only.startswith("kernels here add two products of u8 and s8 in 16 bits")
    learned = replace(space, schemes=(replace(space.schemes[0], name="a", rounding=Rounding.ADAQUANT),))
    _, other = saturation_sentences(learned, learned.unsaturated())
    assert other == "a: weights are rounded by gptq, as adaquant would learn other scales"


@pytest.mark.parametrize(
    ("saving", "attainable", "expected"),
    [
        (0.1, 0.2, "by the estimates of trials a mean latency saving of 0.100 at 8 to 64 dB is reached, 50% of the"),
        (0.2, 0.1, "by the estimates of trials a mean latency saving of 0.200 at 8 to 64 dB is reached, 100% of the"),
        (0.0, 1e-4, "the fitted models hold no mean latency saving attainable at 8 to 64 dB"),
    ],
)
def test_how_much_could_be_gained_still_is_told(saving: float, attainable: float, expected: str) -> None:
    (said,) = outlook_sentences(an_outlook(saving, attainable), a_front(), None)
    assert said.startswith(expected)
    assert outlook_sentences(None, a_front(), None) == []


@pytest.mark.parametrize(
    ("members", "max_ratio", "held"),
    [
        ([], None, 0.0),
        ([a_member(ratio=0.5, snr_db=64.0)], None, 0.5),
        ([a_member(ratio=0.5, snr_db=64.0)], 0.75, 0.25),
        ([a_member(ratio=0.5, snr_db=36.0), a_member(ratio=0.8, snr_db=80.0)], None, (0.5 * 29 + 0.2 * 28) / 57),
    ],
)
def test_what_files_hold_stands_beside_what_trials_promised(
    members: list[Member], max_ratio: float | None, held: float
) -> None:
    (said,) = outlook_sentences(an_outlook(0.1, 0.2), a_front(*members), max_ratio)
    assert said.endswith(f"; the files of the front hold {held:.3f}")
    assert ("a mean latency saving below the demanded ratio of 0.75 of" in said) == (max_ratio is not None)


def test_of_a_saving_in_size_too_files_say_nothing() -> None:
    front = replace(
        a_front(a_member()), objectives={"snr": Goal.MAXIMIZE, "latency": Goal.MINIMIZE, "size": Goal.MINIMIZE}
    )
    (said,) = outlook_sentences(an_outlook(0.1, 0.2), front, None)
    assert said.endswith("hold attainable")


def test_a_sample_that_decides_an_snr_is_told() -> None:
    assert dominated_sentences({}, 16) == []
    (said,) = dominated_sentences({"a": 0.75, "b": 0.5}, 16)
    assert said.startswith("one of 16 evaluation samples holds most of an output's power, 75% of that of 'a', 50% of")


def test_places_without_numbers_are_told() -> None:
    assert numberless_sentences({}) == []
    (said,) = numberless_sentences({"a": 0.996, "b": 0.00012})
    assert said.startswith(
        "the float model has NaN or infinity at 99.6 % of the elements of 'a', 0.012 % of the elements of"
    )


def test_what_no_range_covers_is_told_by_reason() -> None:
    found = {TensorName(name): Why.INFINITE for name in "dcba"} | {TensorName("e"): Why.UNUSED}
    infinite, unused = unbounded_sentences(found)
    assert infinite == f"what reads or writes a, b, c and 1 more stays float: {Why.INFINITE}"
    assert unused == f"what reads or writes e stays float: {Why.UNUSED}"
    assert unbounded_sentences({}) == []


def test_schemes_that_the_opset_has_no_operators_for_are_told_with_the_one_that_has() -> None:
    asked = read_space("default", ep="cpu")
    newest = max(asked.schemes, key=lambda scheme: scheme.opset)
    found = replace(asked, schemes=tuple(scheme for scheme in asked.schemes if scheme is not newest))
    (sentence,) = left_out_sentences(asked, found)
    assert newest.name in sentence
    assert f"opset {newest.opset} or newer" in sentence
    assert left_out_sentences(asked, asked) == []


def with_snrs(member: Member, *snrs_db: float) -> Member:
    per_output = dict(zip("abc", snrs_db, strict=False))
    return replace(member, quality=Quality(per_output=per_output, agreement={}, n_samples=64))


def test_the_output_whose_snr_is_that_of_every_member_is_told() -> None:
    front = a_front(with_snrs(a_member("m1"), 38.1, 23.3, 26.5), with_snrs(a_member("m2"), 45.0, 30.0, 31.0))
    assert limiting_sentences(front, [a_measured(0)]) == [
        "output 'b' has the least SNR of all outputs in every member, and the SNR of a model is that of its worst"
        " output"
    ]


def test_how_much_worse_the_worst_output_is_than_all_others_is_told_where_it_is_much() -> None:
    front = a_front(with_snrs(a_member("m1"), 54.0, 5.0, 72.0), with_snrs(a_member("m2"), 60.0, 9.0, math.inf))
    (sentence,) = limiting_sentences(front, [])
    assert sentence.startswith("output 'b' has the least SNR of all outputs in every member, by 50 dB in the median,")


def test_members_below_0_db_are_told() -> None:
    good, *noisy = (with_snrs(a_member(name), 30.0, snr) for name, snr in (("m1", 0.0), ("m2", -0.5), ("m3", -9.0)))
    assert noisy_sentences(a_front(good)) == []
    (sentence,) = noisy_sentences(a_front(good, *noisy))
    assert sentence.startswith("m2, m3: less than 0 dB, which outputs of nothing but zeros have")
    assert noisy_sentences(replace(a_front(*noisy), objectives={"latency": Goal.MINIMIZE})) == []


def test_without_a_member_it_is_that_of_the_evaluations() -> None:
    outcome = a_measured(0).outcome
    assert isinstance(outcome, Measurement)
    quality = Quality(per_output={"a": 8.0, "b": 3.0}, agreement={}, n_samples=64)
    evaluation = replace(a_measured(0), outcome=replace(outcome, quality=quality))
    assert limiting_sentences(a_front(), [evaluation, a_failure(1)]) == [
        "output 'b' has the least SNR of all outputs in every evaluation, and the SNR of a model is that of its worst"
        " output"
    ]
    assert limiting_sentences(a_front(), []) == []


@pytest.mark.parametrize("snrs_db", [(40.0,), (math.inf, math.inf), (30.0, 20.0)], ids=["one", "equal", "another"])
def test_where_no_single_one_of_several_outputs_decides_nothing_is_told(snrs_db: tuple[float, ...]) -> None:
    front = a_front(with_snrs(a_member("m1"), *snrs_db), with_snrs(a_member("m2"), 20.0, 30.0))
    assert limiting_sentences(front, []) == []
    assert limiting_sentences(replace(front, objectives={"latency": Goal.MINIMIZE}), []) == []
