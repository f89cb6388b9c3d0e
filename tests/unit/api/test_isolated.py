import math
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoquant.api import steps
from autoquant.api.evaluator import Evaluator
from autoquant.api.evaluator_setup import EvaluatorSetup
from autoquant.api.ingredients import Ingredients
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.domain.accuracy import Accuracy, Form
from autoquant.domain.measurement import Failure, Measurement
from autoquant.domain.region import Assignment
from autoquant.domain.target import Target
from autoquant.errors import DataError, ModelError, ProfileError, UsageError
from autoquant.isolation.process import Worker, WorkerLostError
from autoquant.space.schema import read_space
from tests.doubles import MisbehavingSetup
from tests.faults import crash, lack_memory
from tests.models import a_convnet, floats, saved

SCHEME = "u8s8-channel-minmax"


class Place:
    """A model, its data and what candidates are built from."""

    def __init__(self, folder: Path) -> None:
        self.model = saved(a_convnet(), folder / "model.onnx")
        samples = steps.read_data(self.model, {"x": np.concatenate([floats(1, 3, 8, 8, seed=s) for s in range(6)])})
        prepared = steps.prepare(self.model, samples)
        definition = read_space("default", ep="cpu")
        regions = steps.find_regions(prepared, space=definition)
        statistics = steps.calibrate(prepared, samples, space=definition, cache_folder=folder)
        self.ingredients = Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=definition)
        self.samples = samples
        self.setup = EvaluatorSetup(model=self.model, samples=samples, targets=(Target(),), seed=0)
        self.quantized: Assignment = {regions[0].id: SCHEME}
        self.deadly: Assignment = {region.id: SCHEME for region in regions}

    def evaluator(self, fault: str) -> IsolatedEvaluator:
        faults = {frozenset(self.deadly.items()): fault}
        made = IsolatedEvaluator(self.misbehaving(faults=faults), memory_bytes=10**9)
        made.load(self.ingredients, rewrites=frozenset())
        return made

    def misbehaving(self, **how: Any) -> MisbehavingSetup:
        return MisbehavingSetup(model=self.model, samples=self.samples, targets=(Target(),), seed=0, **how)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def evaluator(place: Place) -> Iterator[IsolatedEvaluator]:
    made = place.evaluator("crash")
    yield made
    made.close()


def test_the_other_process_measures_what_this_one_would(place: Place, evaluator: IsolatedEvaluator) -> None:
    found = evaluator.evaluate(place.quantized, 6, left_s=60)
    assert isinstance(found, Measurement)
    here = place.setup()
    here.load(place.ingredients, frozenset(), ())
    outcome = here.evaluate(place.quantized, 6).outcome
    assert isinstance(outcome, Measurement)
    assert (found.digest, found.effective, found.quality) == (outcome.digest, outcome.effective, outcome.quality)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_the_other_process_stays_on_the_cores_of_the_target(place: Place) -> None:
    core = min(os.sched_getaffinity(0))
    with closing(IsolatedEvaluator(replace(place.setup, targets=(Target(affinity=(core,)),)))) as evaluator:
        evaluator.facts()
        assert evaluator.pid is not None
        assert os.sched_getaffinity(evaluator.pid) == {core}


def test_a_form_that_the_process_has_is_not_sent_again(place: Place, evaluator: IsolatedEvaluator) -> None:
    sent = evaluator.loading_s
    fewer = replace(place.ingredients, definition=read_space("default", ep="cpu", accuracy=Accuracy.NONE))
    evaluator.load(fewer, rewrites=frozenset())
    assert evaluator.loading_s == sent
    assert isinstance(evaluator.evaluate(place.quantized, 6, left_s=60), Measurement)
    balanced = replace(place.ingredients, form=Form.EQUALISED)
    evaluator.load(balanced, rewrites=frozenset())
    after = evaluator.loading_s
    assert after != sent
    evaluator.settle()
    evaluator.load(place.ingredients, rewrites=frozenset())
    assert evaluator.loading_s != after


def test_two_models_are_compared_without_being_loaded(place: Place) -> None:
    with closing(IsolatedEvaluator(place.setup)) as evaluator:
        evaluator.facts()
        builder = place.ingredients.builder()
        found = evaluator.compare(builder.build({}), builder.build(place.quantized), 0.1, 0.1)
        assert found.keys() == {place.setup.targets[0].name}
        assert all(timings.ratio > 0 and len(timings.session) >= 5 for timings in found.values())


def test_a_process_that_is_begun_later_is_sent_everything(place: Place, evaluator: IsolatedEvaluator) -> None:
    sent = evaluator.loading_s
    assert isinstance(evaluator.evaluate(place.deadly, 6, left_s=60), Failure)
    evaluator.load(place.ingredients, rewrites=frozenset())
    assert evaluator.loading_s != sent
    assert isinstance(evaluator.evaluate(place.quantized, 6, left_s=60), Measurement)


@pytest.mark.parametrize(
    ("fault", "reason"), [("crash", "SIGSEGV"), ("hang", "it took more than 2 s"), ("eat", "more memory than there is")]
)
def test_a_candidate_that_ends_its_process_costs_one_trial(place: Place, fault: str, reason: str) -> None:
    evaluator = place.evaluator(fault)
    before = evaluator.evaluate(place.quantized, 6, left_s=60)
    evaluator.trial_s = 2.0 if fault == "hang" else None
    lost = evaluator.evaluate(place.deadly, 6, left_s=60)
    evaluator.trial_s = None
    assert isinstance(lost, Failure)
    assert reason in lost.reason
    assert evaluator.evaluate(place.deadly, 6, left_s=60) is lost
    after = evaluator.evaluate(place.quantized, 6, left_s=60)
    assert isinstance(before, Measurement)
    assert after == before
    other = evaluator.evaluate({}, 6, left_s=60)
    assert isinstance(other, Measurement)
    evaluator.close()


def test_a_trial_that_the_search_has_no_time_for_is_no_failure(place: Place) -> None:
    evaluator = place.evaluator("hang")
    assert evaluator.evaluate(place.deadly, 6, left_s=0.3) is None
    assert isinstance(evaluator.evaluate(place.quantized, 6, left_s=60), Measurement)
    evaluator.close()


def test_a_process_that_there_is_no_time_to_begin_again_is_no_failure(place: Place) -> None:
    evaluator = place.evaluator("crash")
    assert isinstance(evaluator.evaluate(place.deadly, 6, left_s=60), Failure)
    evaluator.trial_s = 1e-3
    assert evaluator.evaluate(place.quantized, 6, left_s=1e-2) is None
    evaluator.trial_s = None
    assert isinstance(evaluator.evaluate(place.quantized, 6, left_s=60), Measurement)
    evaluator.close()


def test_a_process_without_the_memory_to_load_the_model_is_begun_anew(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = place.evaluator("crash")
    assert isinstance(evaluator.evaluate(place.deadly, 6, left_s=60), Failure)
    with monkeypatch.context() as patch:
        patch.setattr(IsolatedEvaluator, "_send", lambda *_, **__: lack_memory())
        assert isinstance(evaluator.evaluate({}, 6, left_s=60), Failure)
    assert isinstance(evaluator.evaluate(place.quantized, 6, left_s=60), Measurement)
    evaluator.close()


@pytest.mark.parametrize(
    ("memory_bytes", "error", "expected"),
    [
        (1_000_000, ModelError("model.onnx: onnxruntime cannot open it: std::bad_alloc"), UsageError),
        (1_000_000, MemoryError(), UsageError),
        (1_000_000, ModelError("model.onnx: onnxruntime cannot open it: it is no model"), ModelError),
        (None, MemoryError(), MemoryError),
    ],
)
def test_memory_that_the_float_model_does_not_fit_in_is_asked_for(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    memory_bytes: int | None,
    error: Exception,
    expected: type[Exception],
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Worker, "call", fails)
    said = r"model\.onnx: 1 MB are not enough .* give trials more memory" if expected is UsageError else None
    with pytest.raises(expected, match=said):
        IsolatedEvaluator(place.setup, memory_bytes=memory_bytes).facts()


def test_a_float_model_that_ends_the_process_is_an_error_of_the_model(place: Place) -> None:
    evaluator = IsolatedEvaluator(CrashingSetup(model=place.model, samples=place.samples, targets=(Target(),), seed=0))
    with pytest.raises(ModelError, match=r"model\.onnx: running it on cpu-1t failed, its process was ended by SIGSEGV"):
        evaluator.facts()


@pytest.mark.parametrize(("fault", "reason"), [("crash", "SIGSEGV"), ("eat", "more memory than there is")])
def test_profiles_that_end_the_process_cost_no_search(place: Place, fault: str, reason: str) -> None:
    evaluator = IsolatedEvaluator(place.misbehaving(profiling=fault), memory_bytes=10**9)
    evaluator.load(place.ingredients, rewrites=frozenset())
    with pytest.raises(ProfileError, match=reason):
        evaluator.profile(0.1, 60.0)
    evaluator.know([])
    assert isinstance(evaluator.evaluate(place.quantized, 6, left_s=60), Measurement)
    evaluator.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (WorkerLostError("it was ended by SIGSEGV"), "ended the process that measures: it was ended by SIGSEGV"),
        (MemoryError(), "needed more memory than there is"),
    ],
)
def test_uniform_recipes_that_end_the_process_or_lack_memory_cost_no_search(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    limits: list[float | None] = []

    def fails(*_: object, seconds: float | None) -> None:
        limits.append(seconds)
        raise error

    monkeypatch.setattr(Worker, "call", fails)
    evaluator = IsolatedEvaluator(place.setup)
    for seconds in (1.0, math.inf):
        with pytest.raises(ProfileError, match=f"^running uniform recipes {said}$"):
            evaluator.uniform_db(seconds, 1)
    assert limits == [13.0, None]


@pytest.mark.parametrize(("fault", "reason"), [("crash", "SIGSEGV"), ("eat", "more memory than there is")])
def test_models_that_end_the_process_while_they_are_compared_cost_no_search(
    place: Place, fault: str, reason: str
) -> None:
    candidate = place.ingredients.builder().build({})
    with closing(IsolatedEvaluator(place.misbehaving(comparing=fault), memory_bytes=10**9)) as evaluator:
        with pytest.raises(ProfileError, match=reason):
            evaluator.compare(candidate, candidate, 0.1, 0.1)
        evaluator.load(place.ingredients, rewrites=frozenset())
        assert isinstance(evaluator.evaluate(place.quantized, 6, left_s=60), Measurement)


@pytest.mark.parametrize(("fault", "reason"), [("crash", "SIGSEGV"), ("eat", "more memory than there is")])
def test_errors_of_regions_that_end_the_process_cost_no_search(place: Place, fault: str, reason: str) -> None:
    evaluator = IsolatedEvaluator(place.misbehaving(own_errors=fault), memory_bytes=10**9)
    evaluator.load(place.ingredients, rewrites=frozenset())
    with pytest.raises(ProfileError, match=reason):
        evaluator.errors_and_twins(60.0)
    evaluator.load(place.ingredients, rewrites=frozenset())
    assert evaluator.profile(0.1, 60.0).prior.change.shape == (len(place.ingredients.regions), 3)
    evaluator.close()


def test_the_other_process_computes_errors_of_regions(place: Place, evaluator: IsolatedEvaluator) -> None:
    found = evaluator.errors_and_twins(60.0)
    assert found is not None
    errors, twins = found
    assert errors.keys() == {region.id for region in place.ingredients.regions}
    known = place.ingredients.known_twins()
    assert all(twins[region].items() >= alike.items() for region, alike in known.items())
    assert twins != known, "entropy takes the extremes of one region here"
    assert evaluator.errors_and_twins(-1.0) is None


def test_the_other_process_takes_profiles(place: Place, evaluator: IsolatedEvaluator) -> None:
    assert evaluator.profile(0.1, 60.0).prior.change.shape == (len(place.ingredients.regions), 3)
    with pytest.raises(ProfileError, match="there is no time for profiles"):
        evaluator.profile(0.0, 0.0)


def test_the_other_process_is_told_what_was_measured(place: Place, evaluator: IsolatedEvaluator) -> None:
    first = place.evaluator("crash")
    measured = first.evaluate(place.quantized, 6, left_s=60)
    first.close()
    assert isinstance(measured, Measurement)
    evaluator.know([measured])
    assert evaluator.evaluate(place.quantized, 6, left_s=60) == measured


class CrashingSetup(EvaluatorSetup):
    def __call__(self) -> Evaluator:
        crash()
        raise AssertionError


def test_what_is_wrong_with_the_data_is_told_by_the_other_process_too(tmp_path: Path) -> None:
    model = saved(a_convnet(), tmp_path / "model.onnx")
    samples = steps.read_data(model, {"x": floats(1, 3, 8, 8) * 1e38})
    evaluator = IsolatedEvaluator(EvaluatorSetup(model=model, samples=samples, targets=(Target(),), seed=0))
    with pytest.raises(DataError, match="NaN or infinity"):
        evaluator.facts()
    evaluator.close()


@pytest.mark.parametrize(("seconds", "n_samples"), [(0.0, 2), (600.0, 6)])
def test_a_process_that_is_begun_later_has_no_less_samples(place: Place, seconds: float, n_samples: int) -> None:
    evaluator = IsolatedEvaluator(replace(place.setup, seconds=seconds, held_out=place.samples))
    facts = evaluator.facts()
    assert facts.n_samples == n_samples
    assert len(evaluator.setup.samples) == n_samples
    assert evaluator.setup.seconds == math.inf
    assert evaluator.setup.held_out is None
    assert evaluator.setup.signal == facts.signal != ()
    evaluator.close()


def test_samples_that_there_is_no_time_for_are_left_out(place: Place) -> None:
    setup = EvaluatorSetup(model=place.model, samples=place.setup.samples, targets=(Target(),), seed=0, seconds=0.0)
    assert setup().facts().n_samples == 2
    assert place.setup().facts().n_samples == 6
