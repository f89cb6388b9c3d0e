import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoquant.api import steps
from autoquant.api.ingredients import Ingredients
from autoquant.api.refiner import Refiner, RefinerSetup
from autoquant.domain.quality import QualityMeter
from autoquant.domain.region import Assignment
from autoquant.domain.scheme import Rounding, TensorFormat
from autoquant.domain.target import Target
from autoquant.errors import DataError
from autoquant.qdq.candidate import Candidate
from autoquant.rounding.rounded import RoundedWeights
from autoquant.runtime.session import open_session, ort_values
from autoquant.space.schema import read_space
from tests.models import a_convnet, floats, saved


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> RefinerSetup:
    folder = tmp_path_factory.mktemp("place")
    model = saved(a_convnet(), folder / "model.onnx")
    samples = steps.read_data(model, {"x": np.concatenate([floats(1, 3, 8, 8, seed=s) for s in range(6)])})
    prepared = steps.prepare(model, samples)
    definition = read_space("quick", ep="cpu")
    regions = steps.find_regions(prepared, space=definition)
    statistics = steps.calibrate(prepared, samples, space=definition, cache_folder=folder)
    return RefinerSetup(
        ingredients=Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=definition),
        calibration=samples,
        judged=[{"x": floats(1, 3, 8, 8, seed=seed)} for seed in range(6, 9)],
        rewrites=frozenset(),
        seconds=math.inf,
    )


def uniform(setup: RefinerSetup) -> Assignment:
    found = setup.ingredients
    return {region.id: found.definition.schemes[0].name for region in found.regions}


def version(setup: RefinerSetup, rounding: Rounding) -> Candidate:
    """Step by step."""
    found = setup.ingredients
    space = replace(
        found.definition, schemes=tuple(replace(each, rounding=rounding) for each in found.definition.schemes)
    )
    parts = found.prepared, found.regions, found.statistics
    rounder = steps.round_weights(*parts, setup.calibration, space=space)
    builder = steps.builder_of(*parts, space=space, rounder=rounder)
    shifts = steps.observe_shifts(found.prepared, builder, uniform(setup), setup.calibration)
    return builder.build(uniform(setup), shifts)


def snr_db(setup: RefinerSetup, candidate: Candidate) -> float:
    reference = open_session(setup.ingredients.prepared.source, Target())
    session = open_session(candidate.skeleton, Target(), initializers=ort_values(candidate.constants))
    meter = QualityMeter([output.name for output in reference.get_outputs()])
    for feed in setup.judged:
        meter.add(reference.run(None, feed), session.run(None, feed))
    return meter.quality().worst_db


def test_the_version_with_the_highest_snr_is_given(setup: RefinerSetup) -> None:
    versions = {each: version(setup, each) for each in (Rounding.GPTQ, Rounding.ADAQUANT, Rounding.ADAROUND)}
    assert len({each.digest for each in versions.values()}) == 3
    best = max(versions, key=lambda each: snr_db(setup, versions[each]))
    found, notes = setup().refine(uniform(setup), math.inf)
    assert found.candidate.digest == versions[best].digest
    assert found.algorithms == (f"rounding {best}", "bias observed")
    assert notes == []


def test_where_nothing_could_be_observed_biases_are_said_to_be_those_expected(setup: RefinerSetup) -> None:
    one = replace(setup.calibration, feeds=setup.calibration.feeds[:1])
    found, _ = replace(setup, calibration=one, seconds=1000.0)().refine(uniform(setup), 499.0)
    assert found.algorithms == ("rounding gptq", "bias mean")


def test_when_half_of_the_time_is_over_only_error_feedback_is_left(setup: RefinerSetup) -> None:
    found, notes = replace(setup, seconds=1000.0)().refine(uniform(setup), 499.0)
    assert found.algorithms == ("rounding gptq", "bias observed")
    assert notes == [
        f"refinement: there was no time to try {rounding}; give more time" for rounding in ("adaquant", "adaround")
    ]


@pytest.mark.parametrize(("first_s", "n_tried"), [(80.0, 3), (90.0, 1)])
def test_a_costly_rounding_is_not_begun_where_it_would_leave_less_than_half_of_the_time(
    setup: RefinerSetup, monkeypatch: pytest.MonkeyPatch, first_s: float, n_tried: int
) -> None:
    tried: list[Rounding] = []
    round_weights = steps.round_weights

    def noted(*parts: Any, space: Any, **others: Any) -> RoundedWeights:
        tried.append(space.schemes[0].rounding)
        return round_weights(*parts, space=space, **others)

    monkeypatch.setattr("autoquant.api.steps.round_weights", noted)
    refiner = replace(setup, seconds=1000.0)()
    refiner.first_s = first_s
    refiner.refine(uniform(setup), 1000.0)
    assert len(tried) == n_tried
    assert tried[0] is Rounding.GPTQ


def test_weights_that_there_is_no_time_for_are_said_once(setup: RefinerSetup) -> None:
    refiner = replace(setup, seconds=1000.0)()
    (found, notes), (_, later) = (refiner.refine(uniform(setup), 1e-9) for _ in range(2))
    assert found.algorithms == ("bias mean",)
    assert notes == [
        "refinement: there was no time to round 4 weights by gptq",
        "refinement: there was no time to try adaquant; give more time",
        "refinement: there was no time to try adaround; give more time",
    ]
    assert later == []


def test_weights_that_there_was_no_time_for_are_those_of_the_first_rounding(
    setup: RefinerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, round_weights = version(setup, Rounding.GPTQ), steps.round_weights

    def hurried(*parts: Any, space: Any, **others: Any) -> RoundedWeights:
        is_first = space.schemes[0].rounding is Rounding.GPTQ
        return round_weights(*parts, space=space, **others) if is_first else RoundedWeights({})

    monkeypatch.setattr("autoquant.api.steps.round_weights", hurried)
    found, _ = setup().refine(uniform(setup), math.inf)
    assert found.candidate.digest == expected.digest


def test_a_costly_rounding_that_fails_leaves_the_first_version(
    setup: RefinerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_weights = steps.round_weights

    def fail(*parts: Any, space: Any, **others: Any) -> RoundedWeights:
        if space.schemes[0].rounding is not Rounding.GPTQ:
            raise MemoryError
        return round_weights(*parts, space=space, **others)

    monkeypatch.setattr("autoquant.api.steps.round_weights", fail)
    found, notes = setup().refine(uniform(setup), math.inf)
    assert found.algorithms == ("rounding gptq", "bias observed")
    reason = "is left out, the other roundings stay: there is no memory"
    assert notes == [f"refinement: adaquant {reason}", f"refinement: adaround {reason}"]


def test_a_rounding_that_fails_last_takes_nothing_from_the_better_one_before(
    setup: RefinerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is not tried again on the next finalist."""
    expected, round_weights, tried = version(setup, Rounding.ADAQUANT), steps.round_weights, []

    def fail(*parts: Any, space: Any, **others: Any) -> RoundedWeights:
        tried.append(rounding := space.schemes[0].rounding)
        if rounding is Rounding.ADAROUND:
            raise DataError("odd numbers")
        return round_weights(*parts, space=space, **others)

    monkeypatch.setattr("autoquant.api.steps.round_weights", fail)
    refiner = setup()
    worse = iter([10.0, 20.0, 10.0, 20.0])
    monkeypatch.setattr(Refiner, "_snr_db", lambda *_: next(worse))
    (found, notes), (again, later) = (refiner.refine(uniform(setup), math.inf) for _ in range(2))
    assert found.candidate.digest == again.candidate.digest == expected.digest
    assert notes == ["refinement: adaround is left out, the other roundings stay: odd numbers"]
    assert later == []
    assert tried == [Rounding.GPTQ, Rounding.ADAQUANT, Rounding.ADAROUND]


def test_scales_that_must_be_wide_enough_are_not_learned(setup: RefinerSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    ingredients, round_weights, tried = setup.ingredients, steps.round_weights, []
    wide = replace(setup, ingredients=replace(ingredients, definition=ingredients.definition.unsaturated()))

    def noted(*parts: Any, space: Any, **others: Any) -> RoundedWeights:
        tried.append(space.schemes[0].rounding)
        return round_weights(*parts, space=space, **others)

    monkeypatch.setattr("autoquant.api.steps.round_weights", noted)
    wide().refine(uniform(wide), math.inf)
    assert tried == [Rounding.GPTQ, Rounding.ADAROUND]


def test_what_is_done_once_is_counted_with_the_first_finalist_alone(setup: RefinerSetup) -> None:
    refiner = setup()
    first, again = (refiner.refine(uniform(setup), math.inf)[0] for _ in range(2))
    assert first.once_s == refiner.once_s > 0
    assert again.once_s == 0


def test_dynamic_regions_stay_as_they_are(setup: RefinerSetup) -> None:
    definition = read_space("default", ep="cpu")
    dynamic = next(scheme for scheme in definition.schemes if scheme.is_dynamic)
    ingredients = replace(setup.ingredients, definition=replace(definition, schemes=(dynamic,)))
    refiner = replace(setup, ingredients=ingredients)()
    assignment = {region.id: dynamic.name for region in ingredients.regions}
    refined, notes = refiner.refine(assignment, math.inf)
    plain = steps.builder_of(
        ingredients.prepared, ingredients.regions, ingredients.statistics, space=ingredients.definition
    ).build(assignment)
    assert refined.candidate.digest == plain.digest
    assert (refined.algorithms, notes) == ((), [])


def test_dynamic_regions_keep_the_rounding_of_trials_whatever_the_time(setup: RefinerSetup) -> None:
    default, quick = read_space("default", ep="cpu"), setup.ingredients.definition
    dynamic = next(scheme for scheme in default.schemes if scheme.is_blockwise)
    dynamic = replace(dynamic, weight=TensorFormat.parse("s4:block-128:sym"), rounding=Rounding.GPTQ)
    definition = replace(quick, schemes=(*quick.schemes, dynamic))
    plain_parts = setup.ingredients.prepared, setup.ingredients.regions, setup.ingredients.statistics
    rounder = steps.round_weights(*plain_parts, setup.calibration, space=definition)
    assert rounder.found
    ingredients = replace(setup.ingredients, definition=definition, rounder=rounder)
    regions, static = ingredients.regions, quick.schemes[0].name
    assignment = {region.id: dynamic.name if region.dynamic else static for region in regions}
    plain = ingredients.builder().build(assignment)
    for seconds in (0.0, math.inf):
        refined, _ = replace(setup, ingredients=ingredients, seconds=seconds)().refine(assignment, seconds)
        labels = refined.candidate.variants.items()
        kept = {name: label for name, label in labels if "s4:" in label}
        assert kept == {name: label for name, label in plain.variants.items() if "s4:" in label}
        assert any("gptq" in label for label in kept.values())
