import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.api import steps
from autoquant.api.finalists import Finalist, Finalists, Refine, Refined, _one_a_line
from autoquant.api.folder import RunFolder
from autoquant.api.ingredients import Ingredients
from autoquant.domain.accuracy import Form
from autoquant.domain.measurement import Evaluation, Measurement, Quality, State, Trial
from autoquant.domain.region import Assignment
from autoquant.domain.scheme import Rounding
from autoquant.measurement.costs import FileCosts
from autoquant.qdq.builder import Builder
from autoquant.rounding.rounded import RoundedWeights
from autoquant.space.schema import read_space
from tests.models import a_convnet, floats, model_of, saved
from tests.records import a_latency

COSTS = FileCosts(n_samples=3, opening_s=0.1)


def ingredients_of(float_model: onnx.ModelProto, folder: Path) -> Ingredients:
    model = saved(float_model, folder / "model.onnx")
    samples = steps.read_data(model, {"x": np.concatenate([floats(1, 3, 8, 8, seed=s) for s in range(3)])})
    prepared = steps.prepare(model, samples)
    definition = read_space("quick", ep="cpu")
    regions = steps.find_regions(prepared, space=definition)
    statistics = steps.calibrate(prepared, samples, space=definition, cache_folder=folder)
    return Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=definition)


@pytest.fixture(scope="module")
def ingredients(tmp_path_factory: pytest.TempPathFactory) -> Ingredients:
    return ingredients_of(a_convnet(), tmp_path_factory.mktemp("place"))


@dataclass
class Clock:
    """Stands still unless somebody works."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("time.perf_counter", made)
    return made


@dataclass
class Refining:
    """Gives other biases; the first call takes ``first_s`` longer, as ``once_s`` says or not."""

    ingredients: Ingredients
    clock: Clock
    each_s: float = 1.0
    first_s: float = 0.0
    tells: bool = True
    once_s: float = 0.0
    asked: list[Assignment] = field(default_factory=list)
    is_closed: bool = False
    n_most: int = 100

    @property
    def is_over(self) -> bool:
        return len(self.asked) >= self.n_most

    def __call__(self, assignment: Assignment) -> Refined | None:
        if self.is_over:
            return None
        self.clock.now += self.each_s + (0.0 if self.asked else self.first_s)
        self.once_s = self.first_s if self.tells else 0.0
        self.asked.append(assignment)
        builder = self.ingredients.builder()
        shifts = {name: shift + 0.1 for name, shift in builder.expected_shifts(assignment).items()}
        return Refined(candidate=builder.build(assignment, shifts), algorithms=("rounding gptq",))

    def close(self) -> None:
        self.is_closed = True


def evaluations(ingredients: Ingredients, n: int) -> list[Evaluation]:
    """One more region quantized in each."""
    scheme = ingredients.definition.schemes[0].name
    outcome = Measurement(
        quality=Quality(per_output={"y": 40.0}, agreement={}, n_samples=3),
        latency={"cpu-1t": a_latency(0.5, float_ms=1.0)},
        digest="d",
        effective={},
        state=State.COMPLETE,
        size_bytes=1000,
    )
    names = [region.id for region in ingredients.regions]
    return [
        Evaluation(
            trial=Trial(number=k, assignment={r: scheme if i <= k else "float" for i, r in enumerate(names)}),
            outcome=outcome,
        )
        for k in range(n)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run", resume=False)


def written(
    ingredients: Ingredients, folder: RunFolder, refine: Refine | None, n: int = 2, end: float = math.inf
) -> dict[str, Finalist]:
    finalists = Finalists(ingredients=ingredients, builder=ingredients.builder(), refine=refine, folder=folder)
    return finalists.write(evaluations(ingredients, n), end, float_s={"cpu-1t": 0.001}, costs=COSTS)


def metadata(path: Path) -> dict[str, str]:
    return {prop.key: prop.value for prop in onnx.load(path).metadata_props}


def test_a_finalist_is_a_file_with_what_it_is_made_of(ingredients: Ingredients, folder: RunFolder) -> None:
    found = written(ingredients, folder, None)
    assert list(found) == ["t0000", "t0001"]
    for finalist in found.values():
        said = metadata(finalist.path)
        quantized = {r: s for r, s in finalist.evaluation.trial.assignment.items() if s != "float"}
        assert json.loads(said["autoquant.assignment"]) == quantized
        assert json.loads(said["autoquant.accuracy"]) == list(finalist.algorithms) == ["bias mean"]
        assert json.loads(said["autoquant.measured_in_search"])["ratio"] == {"cpu-1t": 0.5}
        assert finalist.path.with_suffix(".overrides.json").exists()
        assert finalist.plain is None


def test_a_finalist_names_the_operators_that_write_floats(ingredients: Ingredients, folder: RunFolder) -> None:
    found = written(ingredients, folder, None, n=len(ingredients.regions))
    said = [json.loads(metadata(finalist.path)["autoquant.op_types_with_float_outputs"]) for finalist in found.values()]
    assert said[0] == []
    assert said[-1] == ["Gemm"]


def test_where_operators_of_one_type_write_both_none_are_named(folder: RunFolder, tmp_path: Path) -> None:
    constants = {"w": floats(192, 8), "v": floats(8, 5)}
    body = "flat = Flatten(x) a = Gemm(flat, w) y = Gemm(a, v)"
    both = ingredients_of(model_of("(float[1,3,8,8] x) => (float[1,5] y)", body, dict(constants)), tmp_path)
    *_, last = written(both, folder, None, n=len(both.regions)).values()
    said = metadata(last.path)
    assert len(json.loads(said["autoquant.nodes_to_quantize"])) >= 2
    assert "autoquant.op_types_with_float_outputs" not in said


def test_a_refinement_is_a_second_file_that_names_its_own_algorithms(
    ingredients: Ingredients, folder: RunFolder, clock: Clock
) -> None:
    equalised = replace(ingredients, form=Form.EQUALISED)
    refining = Refining(equalised, clock)
    found = written(equalised, folder, refining)
    assert list(found) == ["t0000", "t0000-refined", "t0001", "t0001-refined"]
    assert found["t0001-refined"].plain == "t0001"
    said = metadata(found["t0001-refined"].path)
    assert json.loads(said["autoquant.accuracy"]) == ["equalised", "rounding gptq"]
    assert "autoquant.measured_in_search" not in said
    assert refining.is_closed


def test_a_refinement_that_changes_nothing_is_no_second_file(
    ingredients: Ingredients, folder: RunFolder, clock: Clock
) -> None:
    class Same(Refining):
        def __call__(self, assignment: Assignment) -> Refined | None:
            return Refined(candidate=self.ingredients.builder().build(assignment), algorithms=())

    assert list(written(ingredients, folder, Same(ingredients, clock))) == ["t0000", "t0001"]


@pytest.mark.parametrize(("tells", "n_refined"), [(True, 2), (False, 1)])
def test_what_the_first_refinement_does_once_is_not_expected_of_the_next_one(
    ingredients: Ingredients, folder: RunFolder, clock: Clock, tells: bool, n_refined: int
) -> None:
    refining = Refining(ingredients, clock, first_s=60.0, tells=tells)
    assert len(written(ingredients, folder, refining, end=98.0)) == 2 * n_refined
    assert len(refining.asked) == n_refined


def test_no_time_is_kept_for_second_versions_that_will_not_come(
    ingredients: Ingredients, folder: RunFolder, clock: Clock
) -> None:
    found = {
        n_most: list(written(ingredients, folder, Refining(ingredients, clock, 0.0, n_most=n_most), n=5, end=2.9))
        for n_most in (1, 5)
    }
    assert found[1] == ["t0000", "t0000-refined", "t0001", "t0002", "t0003", "t0004"]
    assert len(found[5]) < 10


def test_the_first_finalist_is_written_whatever_the_time_and_no_other_one_then(
    ingredients: Ingredients, folder: RunFolder, clock: Clock
) -> None:
    clock.now = 100.0
    refining = Refining(ingredients, clock)
    assert list(written(ingredients, folder, refining, end=98.0)) == ["t0000", "t0000-refined"]
    assert refining.is_closed


@pytest.mark.parametrize(("end", "n_written"), [(0.3, 1), (0.45, 2), (0.6, 3), (2.0, 3), (2.3, 4), (2.8, 5)])
def test_a_few_finalists_are_written_for_one_process_and_more_only_for_several(
    ingredients: Ingredients, folder: RunFolder, clock: Clock, end: float, n_written: int
) -> None:
    assert len(written(ingredients, folder, None, n=5, end=end)) == n_written


def test_roundings_are_named_that_some_weight_took(ingredients: Ingredients, folder: RunFolder) -> None:
    schemes = tuple(replace(scheme, rounding=Rounding.GPTQ) for scheme in ingredients.definition.schemes)
    asked = replace(ingredients, definition=replace(ingredients.definition, schemes=schemes))
    late = replace(asked, rounder=RoundedWeights({}))
    found = written(late, folder, None)
    assert {finalist.algorithms for finalist in found.values()} == {("bias mean",)}


def test_biases_are_named_where_some_operator_takes_one(
    ingredients: Ingredients, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Builder, "expected_shifts", lambda *_: {})
    assert {finalist.algorithms for finalist in written(ingredients, folder, None).values()} == {()}


def test_an_infinite_snr_is_written_as_json_can_say_it(ingredients: Ingredients, folder: RunFolder) -> None:
    finalists = Finalists(ingredients=ingredients, builder=ingredients.builder(), refine=None, folder=folder)
    (evaluation, *_) = evaluations(ingredients, 1)
    outcome = evaluation.outcome
    assert isinstance(outcome, Measurement)
    equal = replace(evaluation, outcome=replace(outcome, quality=replace(outcome.quality, per_output={"y": math.inf})))
    found = finalists.write([equal], math.inf, float_s={"cpu-1t": 0.001}, costs=COSTS)
    said = json.loads(metadata(found["t0000"].path)["autoquant.measured_in_search"], parse_constant=pytest.fail)
    assert said["snr_db"] == 200


def test_a_latency_that_was_not_measured_is_not_written(ingredients: Ingredients, folder: RunFolder) -> None:
    finalists = Finalists(ingredients=ingredients, builder=ingredients.builder(), refine=None, folder=folder)
    (evaluation, *_) = evaluations(ingredients, 1)
    assert isinstance(evaluation.outcome, Measurement)
    expected = replace(evaluation, outcome=replace(evaluation.outcome, state=State.UNTIMED))
    found = finalists.write([expected], math.inf, float_s={"cpu-1t": 0.001}, costs=COSTS)
    assert json.loads(metadata(found["t0000"].path)["autoquant.measured_in_search"])["ratio"] == {}


def test_overrides_have_a_line_for_each_tensor(ingredients: Ingredients, folder: RunFolder) -> None:
    found = written(ingredients, folder, None)
    for finalist in found.values():
        text = finalist.path.with_suffix(".overrides.json").read_text()
        assert json.loads(text)
        assert len(text.splitlines()) == len(json.loads(text)) + 2


@pytest.mark.parametrize("values", [{}, {"a": [{"scale": 0.5}]}, {'"b"': [], "c\n": [1, 2.5]}])
def test_what_is_written_a_line_for_each_name_is_json(values: dict[str, object]) -> None:
    assert json.loads(_one_a_line(values)) == values
