import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoquant.api import steps
from autoquant.api.evaluator import Evaluator, Ingredients, ScoringTimes
from autoquant.api.evaluator_setup import EvaluatorSetup
from autoquant.calibration.batches import select
from autoquant.domain.measurement import Failure, Measurement, Quality, State
from autoquant.domain.objective import DEFAULT_OBJECTIVES, Bounds, Objectives
from autoquant.domain.region import Assignment
from autoquant.domain.scheme import Operators
from autoquant.domain.target import Target
from autoquant.errors import DataError, MetricError, ProfileError
from autoquant.measurement.bench import Bench, Progress
from autoquant.metrics.custom import Labels, OutputsByName
from autoquant.metrics.grammar import parse_metrics
from autoquant.model.io import size_bytes_of
from autoquant.qdq.builder import Builder
from autoquant.space.schema import read_space
from tests.models import a_convnet, floats, model_of, saved
from tests.records import a_latency, a_measured

N_SAMPLES = 24
HERE = "tests.unit.api.test_evaluator"


def is_float(outputs: list[OutputsByName], _: object, labels: Labels) -> list[bool]:
    (name,) = outputs[0]
    return [np.array_equal(out[name], ref) for out, ref in zip(outputs, labels[f"float:{name}"], strict=True)]


def refuses(outputs: list[OutputsByName], _: object, labels: Labels) -> float:
    if not all(is_float(outputs, _, labels)):
        raise ValueError("no candidates")
    return 1.0


class Place:
    """A model and everything that its candidates are built from."""

    def __init__(self, folder: Path) -> None:
        model = saved(a_convnet(), folder / "model.onnx")
        data = np.concatenate([floats(1, 3, 8, 8, seed=s) for s in range(N_SAMPLES)])
        samples = steps.read_data(model, {"x": data, "label": np.zeros(N_SAMPLES)})
        prepared = steps.prepare(model, samples)
        definition = read_space("default", ep="cpu")
        regions = steps.find_regions(prepared, space=definition)
        statistics = steps.calibrate(prepared, samples, space=definition, cache_folder=folder)
        self.ingredients = Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=definition)
        self.setup = EvaluatorSetup(model=model, samples=samples, targets=(Target(),), seed=0)
        names = [scheme.name for scheme in definition.schemes]
        self.quantized: list[Assignment] = [{region.id: name for region in regions} for name in names[:6]]

    def outcomes(self, *metrics: str, has_drops: bool = True) -> list[Measurement | Failure]:
        evaluator = replace(self.setup, metrics=parse_metrics(metrics), has_drops=has_drops)()
        evaluator.load(self.ingredients, has_plain_sums=False, known=())
        return [evaluator.evaluate(assignment, 6).outcome for assignment in ({}, *self.quantized)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


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


@pytest.mark.parametrize(("metric", "phrase"), [("top1@z", "no output 'z'"), (f"{HERE}:gone", "has no function")])
def test_a_metric_that_does_not_fit_is_refused_before_anything_is_built(place: Place, metric: str, phrase: str) -> None:
    with pytest.raises(MetricError, match=phrase):
        replace(place.setup, metrics=parse_metrics([metric]))()


TOP1 = parse_metrics(["top1"])
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
    evaluator.load(place.ingredients, has_plain_sums=False, known=())
    *first, last = place.quantized
    for assignment in first:
        evaluator.evaluate(assignment, 6)
    evaluator.load(place.ingredients, has_plain_sums=False, known=[rival])
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
    evaluator.load(place.ingredients, has_plain_sums=False, known=())
    *first, last = place.quantized
    for assignment in first:
        evaluator.evaluate(assignment, 6)
    evaluator.load(place.ingredients, has_plain_sums=False, known=[rival])
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
    evaluator.load(place.ingredients, has_plain_sums=False, known=known)
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
    evaluator.load(place.ingredients, has_plain_sums=False, known=())
    *first, last = place.quantized
    for assignment in first:
        evaluator.evaluate(assignment, 6)
    rival = a_rival(snr_db=math.inf, size_bytes=10, drop=0.4)
    evaluator.load(place.ingredients, has_plain_sums=False, known=[rival])
    outcome = evaluator.evaluate(last, 6, {Target().name: 0.5}).outcome
    assert isinstance(outcome, Measurement)
    assert (outcome.state is State.REJECTED_EARLY and not outcome.latency) is is_stopped


def test_a_candidate_without_a_drop_that_is_demanded_now_is_measured_again(place: Place) -> None:
    _, before, *_ = place.outcomes("top1", has_drops=False)
    assert isinstance(before, Measurement)
    bounds = Bounds(max_drops={"top1": 0.1})
    evaluator = replace(place.setup, metrics=TOP1, has_drops=True, bounds=bounds)()
    evaluator.load(place.ingredients, has_plain_sums=False, known=[before])
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
    evaluator.load(place.ingredients, has_plain_sums=False, known=())
    monkeypatch.setattr(Evaluator, "_drops", fail)
    untimed, timed = (evaluator.evaluate(place.quantized[0], n_rounds).outcome for n_rounds in (0, 6))
    assert isinstance(untimed, Measurement)
    assert untimed.state is State.UNTIMED
    assert timed == Failure(stage="metric", reason="one class alone")


def test_a_candidate_whose_quality_alone_is_known_is_measured_again_where_it_is_to_be_timed(place: Place) -> None:
    evaluator = replace(place.setup, metrics=TOP1, has_drops=True)()
    evaluator.load(place.ingredients, has_plain_sums=False, known=())
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
    evaluator.load(place.ingredients, has_plain_sums=False, known=())
    prior, layout = evaluator.profile(0.1, 60.0), place.ingredients.layout()
    assert prior.change.shape == prior.spread.shape == (len(layout.regions), layout.n_kinds)
    assert prior.border.shape == prior.border_spread.shape == (len(layout.edges),)
    assert 0.2 < prior.base < 5
    assert all(np.isfinite(values).all() for values in (prior.change, prior.spread, prior.border))
    assert (prior.spread > 0).all()


def test_a_candidate_that_cannot_be_built_has_no_profile(place: Place) -> None:
    evaluator = place.setup()
    none = replace(place.ingredients.statistics, tensors={})
    evaluator.load(replace(place.ingredients, statistics=none), has_plain_sums=False, known=())
    with pytest.raises(ProfileError, match="a candidate cannot be built: UsageError: the statistics do not hold"):
        evaluator.profile(0.1, 60.0)


def test_a_fault_in_building_one_candidate_costs_one_trial(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = place.setup()
    evaluator.load(place.ingredients, has_plain_sums=False, known=())

    def build(*_: object, **__: object) -> None:
        raise IndexError("no such axis")

    monkeypatch.setattr(Builder, "build", build)
    found = evaluator.evaluate(place.quantized[0], 6).outcome
    assert isinstance(found, Failure)
    assert (found.stage, found.reason) == ("build", "IndexError: no such axis")


def test_a_space_without_linear_schemes_has_a_prior_too(place: Place) -> None:
    definition = place.ingredients.definition
    schemes = tuple(scheme for scheme in definition.schemes if scheme.operators is Operators.ALL)
    ingredients = replace(place.ingredients, definition=replace(definition, schemes=schemes))
    evaluator = place.setup()
    evaluator.load(ingredients, has_plain_sums=False, known=())
    assert evaluator.profile(0.1, 60.0).change.shape == (len(ingredients.regions), 3)


def test_what_was_measured_elsewhere_is_not_measured_again(place: Place) -> None:
    first, second = place.setup(), place.setup()
    for evaluator in (first, second):
        evaluator.load(place.ingredients, has_plain_sums=False, known=())
    outcome = first.evaluate(place.quantized[0], 6).outcome
    assert isinstance(outcome, Measurement)
    second.know([outcome])
    assert second.evaluate(place.quantized[0], 6).outcome == outcome


class Clock:
    """Time that passes where somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


CLOCK = Clock()


def is_slow(outputs: list[OutputsByName], *_: object) -> float:
    CLOCK.now += len(outputs)
    return 1.0


@pytest.mark.parametrize("n_held_out", [0, 8])
@pytest.mark.parametrize("has_drops", [False, True])
def test_what_metrics_take_is_known_before_anything_is_built(
    place: Place, monkeypatch: pytest.MonkeyPatch, n_held_out: int, has_drops: bool
) -> None:
    monkeypatch.setattr("autoquant.api.evaluator_setup.time", CLOCK)
    held_out = select(place.setup.samples, range(n_held_out), "held-out") if n_held_out else None
    setup = replace(place.setup, metrics=parse_metrics([f"{HERE}:is_slow"]), has_drops=has_drops, held_out=held_out)
    facts = setup().facts()
    assert facts.scoring.trial_s == (N_SAMPLES if has_drops else 0)
    assert facts.scoring.file_s == (22 if n_held_out else 11) * (N_SAMPLES + n_held_out)
    assert facts.file_costs(4, 0.0).scoring_s == facts.scoring.file_s
    assert place.setup().facts().scoring == ScoringTimes()


def is_even(outputs: list[OutputsByName], *_: object) -> float:
    if len(outputs) % 2:
        raise ValueError("an odd number of samples")
    return 1.0


def test_metrics_are_tried_on_what_the_last_measurement_will_run_too(place: Place) -> None:
    setup = replace(place.setup, metrics=parse_metrics([f"{HERE}:is_even", "accuracy"]))
    n_search = N_SAMPLES // 2 * 2
    search = replace(setup, samples=select(setup.samples, range(n_search), "search"))
    search()
    replace(search, held_out=select(setup.samples, range(2), "held-out"))()
    with pytest.raises(MetricError, match="an odd number of samples"):
        replace(search, held_out=select(setup.samples, range(1), "held-out"))()


@pytest.mark.parametrize("seconds", [math.inf, 0.0])
def test_a_held_out_sample_without_finite_outputs_is_refused(place: Place, seconds: float) -> None:
    """Also where there is no time for all samples: the first held-out one is run in any case."""
    data = floats(8, 3, 8, 8)
    data[5] = 3e38
    bad = select(steps.read_data(place.setup.model, {"x": data}, role="evaluation"), [5, 2], "held-out")
    with pytest.raises(DataError, match=r"^evaluation data <dict>, sample 5: the float model's output"):
        replace(place.setup, held_out=bad, seconds=seconds)()


def test_an_output_that_is_zero_but_on_held_out_samples_is_judged_also_by_who_does_not_run_them(
    tmp_path: Path,
) -> None:
    body = "y = Relu(x) d = Sub(x, c) z = Relu(d)"
    model = model_of("(float[1,3,8,8] x) => (float[1,3,8,8] y, float[1,3,8,8] z)", body, {"c": 50.0})
    path, data = saved(model, tmp_path / "model.onnx"), floats(2, 3, 8, 8)
    samples, held_out = (steps.read_data(path, {"x": scale * data}) for scale in (1, 100))
    setup = EvaluatorSetup(model=path, samples=samples, targets=(Target(),), seed=0)
    assert setup().facts().silent == ("z",)
    facts = replace(setup, held_out=held_out)().facts()
    assert facts.silent == ()
    assert replace(setup, signal=facts.signal)().facts().silent == ()
    assert replace(setup, held_out=held_out).pinned(1)().facts().silent == ()
