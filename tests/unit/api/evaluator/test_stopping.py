import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from autoquant.domain.measurement import Measurement, Quality, State
from autoquant.domain.objective import DEFAULT_OBJECTIVES, Bounds, Objectives
from autoquant.domain.target import Target
from autoquant.measurement.bench import Bench, Progress
from tests.records import a_latency, a_measured
from tests.unit.api.evaluator.places import TOP1, Place

ANSWERS = Objectives(has_snr=False, metrics=TOP1, has_size=True)
"""The size is an objective in what follows, as then nobody is stopped for being slower than float."""


def a_rival(*, snr_db: float, drop: float = 0.0, size_bytes: int = 0, error_db: float = 0.0) -> Measurement:
    outcome = a_measured(99, snr_db=snr_db, ratio=0.02, drops={"top1": drop}, size_bytes=size_bytes).outcome
    assert isinstance(outcome, Measurement)
    return replace(outcome, quality=replace(outcome.quality, error_db=error_db))


@pytest.mark.parametrize(
    ("objectives", "rival", "is_stopped"),
    [
        (Objectives(has_size=True), a_rival(snr_db=math.inf), True),
        (Objectives(has_size=True), a_rival(snr_db=150, error_db=9), True),
        (Objectives(has_size=True), a_rival(snr_db=150, error_db=999), False),
        (Objectives(has_size=True), a_rival(snr_db=-90), False),
        (Objectives(has_size=True), a_rival(snr_db=math.inf, size_bytes=10**9), False),
        (ANSWERS, a_rival(snr_db=-90), True),
        (ANSWERS, a_rival(snr_db=math.inf, drop=1.0), False),
        (Objectives(metrics=TOP1, has_size=True), a_rival(snr_db=-90), False),
    ],
)
def test_a_candidate_is_stopped_where_one_that_is_known_beats_it_in_every_objective(
    place: Place, objectives: Objectives, rival: Measurement, is_stopped: bool
) -> None:
    evaluator = replace(place.setup, metrics=TOP1, has_drops=True, objectives=objectives)()
    evaluator.float_bytes = 10**9
    evaluator.load(place.ingredients, rewrites=frozenset(), known=())
    *first, last = place.quantized
    for assignment in first:
        evaluator.evaluate(assignment, 6)
    evaluator.load(place.ingredients, rewrites=frozenset(), known=[rival])
    outcome = evaluator.evaluate(last, 6).outcome
    assert isinstance(outcome, Measurement)
    assert outcome.is_complete is not is_stopped


@pytest.mark.parametrize(
    ("least_ratio", "rival", "is_stopped"),
    [
        (0.5, a_rival(snr_db=math.inf), True),
        (0.01, a_rival(snr_db=math.inf), False),
        (0.5, a_rival(snr_db=-90), False),
        (0.5, a_rival(snr_db=math.inf, size_bytes=10**9), False),
    ],
)
def test_a_candidate_that_is_beaten_at_every_ratio_that_it_may_have_is_not_timed(
    place: Place, least_ratio: float, rival: Measurement, is_stopped: bool
) -> None:
    evaluator = replace(place.setup, objectives=Objectives(has_size=True))()
    evaluator.float_bytes = 10**9
    evaluator.load(place.ingredients, rewrites=frozenset(), known=())
    *first, last = place.quantized
    for assignment in first:
        evaluator.evaluate(assignment, 6)
    evaluator.load(place.ingredients, rewrites=frozenset(), known=[rival])
    outcome = evaluator.evaluate(last, 6, {Target().name: least_ratio}).outcome
    assert isinstance(outcome, Measurement)
    assert (outcome.state is State.REJECTED_EARLY and not outcome.latency) is is_stopped


Ratios = tuple[float, float]
"""On the targets ``a`` and ``b``."""


def is_stopped_at(
    ratios: Ratios, rivals: Sequence[Ratios], objectives: Objectives, place: Place, patched: pytest.MonkeyPatch
) -> bool:
    """Whether a candidate is that has these ratios after two rounds; rivals have the outputs of float."""

    def measure(_: Bench, __: object, ___: int, goes_on: Callable[[Progress], bool], ____: object) -> Any:
        quality = Quality(per_output={"y": 40.0}, agreement={}, n_samples=4)
        return quality, {}, goes_on(Progress(quality, 0.0, dict(zip("ab", ratios, strict=True)), 2))

    patched.setattr(Bench, "measure", measure)
    known = [
        replace(a_rival(snr_db=math.inf), latency={"a": a_latency(a, spread=0), "b": a_latency(b, spread=0)})
        for a, b in rivals
    ]
    evaluator = replace(place.setup, objectives=objectives)()
    evaluator.float_bytes = 10**9
    evaluator.load(place.ingredients, rewrites=frozenset(), known=known)
    outcome = evaluator.evaluate(place.quantized[0], 6).outcome
    assert isinstance(outcome, Measurement)
    return outcome.state is State.REJECTED_EARLY


@pytest.mark.parametrize(
    ("ratios", "has_size", "is_stopped"),
    [
        ((1.1, 1.3), False, True),
        ((0.8, 1.3), False, False),
        ((1.3, 0.8), False, False),
        ((1.01, 1.3), False, False),
        ((1.1, 1.3), True, False),
    ],
    ids=["slower on both", "faster on one", "faster on the other", "hardly slower", "smaller"],
)
def test_a_candidate_that_is_slower_than_float_on_every_target_is_stopped(
    place: Place, monkeypatch: pytest.MonkeyPatch, ratios: Ratios, has_size: bool, is_stopped: bool
) -> None:
    assert is_stopped_at(ratios, (), Objectives(has_size=has_size), place, monkeypatch) is is_stopped


@pytest.mark.parametrize(
    ("rivals", "is_stopped"),
    [
        ([(0.5, 0.9)], True),
        ([(0.5, 1.4)], False),
        ([(0.9, 0.9)], False),
        ([(0.5, 1.4), (0.9, 0.9)], False),
        ([(0.8, 1.3)], False),
    ],
    ids=["faster on both", "on one", "on the other", "each on another one", "as fast"],
)
def test_a_candidate_is_stopped_by_a_rival_that_is_faster_on_every_target(
    place: Place, monkeypatch: pytest.MonkeyPatch, rivals: Sequence[Ratios], is_stopped: bool
) -> None:
    assert is_stopped_at((0.8, 1.3), rivals, DEFAULT_OBJECTIVES, place, monkeypatch) is is_stopped


@pytest.mark.parametrize(
    ("bounds", "is_stopped"),
    [
        (Bounds(), True),
        (Bounds(max_size_bytes=10), True),
        (Bounds(max_size_bytes=9), False),
        (Bounds(max_drops={"top1": 0.5}), True),
        (Bounds(max_drops={"top1": 0.2}), False),
        (Bounds(max_drops={"cosine": 0.2}), False),
    ],
)
def test_what_cannot_be_delivered_beats_nobody(place: Place, bounds: Bounds, is_stopped: bool) -> None:
    evaluator = replace(place.setup, bounds=bounds)()
    evaluator.load(place.ingredients, rewrites=frozenset(), known=())
    *first, last = place.quantized
    for assignment in first:
        evaluator.evaluate(assignment, 6)
    rival = a_rival(snr_db=math.inf, size_bytes=10, drop=0.4)
    evaluator.load(place.ingredients, rewrites=frozenset(), known=[rival])
    outcome = evaluator.evaluate(last, 6, {Target().name: 0.5}).outcome
    assert isinstance(outcome, Measurement)
    assert (outcome.state is State.REJECTED_EARLY and not outcome.latency) is is_stopped
