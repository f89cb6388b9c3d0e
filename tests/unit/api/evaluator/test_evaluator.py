from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoquant.api import steps
from autoquant.api.evaluator import Evaluator
from autoquant.api.steps.probing import Probed
from autoquant.domain.measurement import Failure, Measurement, State
from autoquant.domain.objective import Bounds
from autoquant.domain.rewrite import Rewrite
from autoquant.domain.scheme import Operators
from autoquant.errors import MetricError, ProfileError
from autoquant.metrics.custom import Labels, OutputsByName
from autoquant.model.io import size_bytes_of
from autoquant.qdq.builder import Builder
from tests.unit.api.evaluator.places import N_SAMPLES, TOP1, Place

HERE = "tests.unit.api.evaluator.test_evaluator"


def is_float(outputs: list[OutputsByName], _: object, labels: Labels) -> list[bool]:
    (name,) = outputs[0]
    return [np.array_equal(out[name], ref) for out, ref in zip(outputs, labels[f"float:{name}"], strict=True)]


def refuses(outputs: list[OutputsByName], _: object, labels: Labels) -> float:
    if not all(is_float(outputs, _, labels)):
        raise ValueError("no candidates")
    return 1.0


def test_candidates_are_scored_as_if_the_samples_that_they_did_not_run_were_right(place: Place) -> None:
    unlike = []
    for outcome in place.outcomes(f"{HERE}:is_float"):
        assert isinstance(outcome, Measurement)
        n_run = outcome.quality.n_samples
        if outcome.quality.worst_db < 90:
            assert outcome.drops["is_float"] == pytest.approx(n_run / N_SAMPLES)
            unlike.append(n_run)
    assert min(unlike) < N_SAMPLES
    assert max(unlike) == N_SAMPLES


def test_without_a_demand_candidates_are_not_scored(place: Place) -> None:
    assert all(isinstance(o, Measurement) and not o.drops for o in place.outcomes("top1", has_drops=False))


def test_a_metric_that_fails_on_a_candidate_is_its_failure(place: Place) -> None:
    *_, last = place.outcomes(f"{HERE}:refuses")
    assert isinstance(last, Failure)
    assert last.stage == "metric"
    assert "no candidates" in last.reason


def test_a_candidate_without_a_drop_that_is_demanded_now_is_measured_again(place: Place) -> None:
    _, before, *_ = place.outcomes("top1", has_drops=False)
    assert isinstance(before, Measurement)
    bounds = Bounds(max_drops={"top1": 0.1})
    evaluator = replace(place.setup, metrics=TOP1, has_drops=True, bounds=bounds)()
    evaluator.load(place.ingredients, rewrites=frozenset(), known=[before])
    again = evaluator.evaluate(place.quantized[0], 6).outcome
    assert isinstance(again, Measurement)
    assert again.digest == before.digest
    assert set(again.drops) == {"top1"}


def test_a_metric_without_a_value_on_few_samples_leaves_the_quality(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MetricError("one class alone")

    evaluator = replace(place.setup, metrics=TOP1, has_drops=True)()
    evaluator.load(place.ingredients, rewrites=frozenset(), known=())
    monkeypatch.setattr(Evaluator, "_drops", fail)
    untimed, timed = (evaluator.evaluate(place.quantized[0], n_rounds).outcome for n_rounds in (0, 6))
    assert isinstance(untimed, Measurement)
    assert untimed.state is State.UNTIMED
    assert timed == Failure(stage="metric", reason="one class alone")


def test_a_candidate_whose_quality_alone_is_known_is_measured_again_where_it_is_to_be_timed(place: Place) -> None:
    evaluator = replace(place.setup, metrics=TOP1, has_drops=True)()
    evaluator.load(place.ingredients, rewrites=frozenset(), known=())
    states = []
    for n_rounds in (0, 0, 6, 0):
        outcome = evaluator.evaluate(place.quantized[0], n_rounds).outcome
        assert isinstance(outcome, Measurement)
        assert (outcome.latency == {}) is (outcome.state is State.UNTIMED)
        assert outcome.drops.keys() == {"top1"}
        states.append(outcome.state)
    assert states == [State.UNTIMED, State.UNTIMED, State.COMPLETE, State.COMPLETE]


def test_the_size_of_a_candidate_is_about_that_of_its_file(place: Place, tmp_path: Path) -> None:
    builder = place.ingredients.builder()
    for assignment, outcome in zip(({}, *place.quantized), place.outcomes("top1"), strict=True):
        assert isinstance(outcome, Measurement)
        candidate = builder.build(assignment)
        candidate.save(tmp_path / "model.onnx")
        assert outcome.size_bytes == pytest.approx(size_bytes_of(tmp_path / "model.onnx"), rel=0.05)


def test_latencies_are_expected_from_profiles_of_the_candidates(place: Place) -> None:
    evaluator = place.setup()
    evaluator.load(place.ingredients, rewrites=frozenset(), known=())
    found, layout = evaluator.profile(0.1, 60.0), place.ingredients.layout()
    prior = found.prior
    assert prior.change.shape == prior.spread.shape == (len(layout.regions), layout.n_kinds)
    assert prior.border.shape == prior.border_spread.shape == (len(layout.edges),)
    assert 0.2 < prior.base < 5
    assert all(np.isfinite(values).all() for values in (prior.change, prior.spread, prior.border))
    assert (prior.spread > 0).all()


def test_a_candidate_that_cannot_be_built_has_no_profile(place: Place) -> None:
    evaluator = place.setup()
    none = replace(place.ingredients.statistics, tensors={})
    evaluator.load(replace(place.ingredients, statistics=none), rewrites=frozenset(), known=())
    with pytest.raises(ProfileError, match="a candidate cannot be built: UsageError: the statistics do not hold"):
        evaluator.profile(0.1, 60.0)


def test_a_fault_in_building_one_candidate_costs_one_trial(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = place.setup()
    evaluator.load(place.ingredients, rewrites=frozenset(), known=())

    def build(*_: object, **__: object) -> None:
        raise IndexError("no such axis")

    monkeypatch.setattr(Builder, "build", build)
    found = evaluator.evaluate(place.quantized[0], 6).outcome
    assert isinstance(found, Failure)
    assert (found.stage, found.reason) == ("build", "IndexError: no such axis")


def test_a_fault_in_errors_of_regions_ends_no_search(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = place.setup()
    evaluator.load(place.ingredients, rewrites=frozenset(), known=())

    def faulty(*_: object, **__: object) -> None:
        raise IndexError("index 0 is out of bounds")

    monkeypatch.setattr("autoquant.api.steps.own_errors", faulty)
    with pytest.raises(ProfileError, match="IndexError: index 0 is out of bounds"):
        evaluator.errors_and_twins(60.0)


def test_a_space_without_linear_schemes_has_a_prior_too(place: Place) -> None:
    definition = place.ingredients.definition
    schemes = tuple(scheme for scheme in definition.schemes if scheme.operators is Operators.ALL)
    ingredients = replace(place.ingredients, definition=replace(definition, schemes=schemes))
    evaluator = place.setup()
    evaluator.load(ingredients, rewrites=frozenset(), known=())
    assert evaluator.profile(0.1, 60.0).prior.change.shape == (len(ingredients.regions), 3)


def test_what_was_measured_elsewhere_is_not_measured_again(place: Place) -> None:
    first, second = place.setup(), place.setup()
    for evaluator in (first, second):
        evaluator.load(place.ingredients, rewrites=frozenset(), known=())
    outcome = first.evaluate(place.quantized[0], 6).outcome
    assert isinstance(outcome, Measurement)
    second.know([outcome])
    assert second.evaluate(place.quantized[0], 6).outcome == outcome


def test_no_other_rewrites_are_probed_than_it_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    probed: list[object] = []

    found = Probed(["a note"], 0.9)

    def probe(*given: object) -> Probed:
        probed.append(given[-1])
        return found

    monkeypatch.setattr(steps, "probe_rewrites", probe)
    evaluator = place.setup()
    evaluator.load(place.ingredients, rewrites=frozenset(), known=())
    wanted = frozenset({Rewrite.PLAIN_SUMS})
    assert evaluator.probe_rewrites(wanted) == (frozenset(), found)
    assert probed == [wanted]
