from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import BenchFacts
from autoquant.api.first_trials import one_of_each_kind
from autoquant.api.trials import Trials
from autoquant.domain.region import Assignment, RegionId
from autoquant.domain.scheme import RangeKind
from autoquant.domain.space import SearchSpace
from tests.records import a_region
from tests.unit.api.answers import IDS, Answers, some_trials
from tests.unit.study.layouts import SCHEMES, WITH_DYNAMIC, a_scheme

WITH_TWIN = {"a": SCHEMES["a"], "m": a_scheme("m", ranges=RangeKind.MSE), "b": SCHEMES["b"]}


def first_trials(folder: Path, answers: Answers, seconds: float | None, **options: Any) -> Trials:
    """Of a model of 0.2 s, in a space in which ``m`` has the kernels of ``a``."""
    space = SearchSpace(choices=dict.fromkeys(IDS, ("float", *WITH_TWIN)), schemes=WITH_TWIN)
    defaults: dict[str, Any] = {"is_structured": True, "space": space}
    return replace(
        some_trials(folder, answers, **{**defaults, **options}),
        facts=BenchFacts(float_s={"cpu-1t": 0.2}, n_samples=4, opening_s=0.0),
        deadline=Deadline(seconds),
    )


@pytest.mark.parametrize(
    ("seconds", "options", "names", "n_rounds"),
    [
        (90.0, {}, ["a", "b", "float", "m"], [3, 3, 3, 0]),
        (90.0, {"is_structured": False}, ["a", "b", "float", "m"], [3, 3, 3, 3]),
        (90.0, {"first": [dict.fromkeys(IDS, "m")]}, ["a", "b", "float", "m"], [3, 3, 3, 3]),
        (20.0, {}, ["a"], [3]),
        (20.0, {"is_structured": False}, ["a", "b", "float"], [3, 3, 3]),
        (600.0, {}, ["float", "a", "m", "b"], [6, 6, 6, 6]),
        (None, {}, ["float", "a", "m", "b"], [6, 6, 6, 6]),
    ],
    ids=["few", "generic", "asked for", "very few", "very few, generic", "many", "endless"],
)
def test_where_there_is_time_for_few_trials_the_same_kernels_come_last_and_are_timed_once(
    tmp_path: Path, seconds: float | None, options: dict[str, Any], names: list[str], n_rounds: list[int]
) -> None:
    answers = Answers(n_most=len(names))
    first_trials(tmp_path, answers, seconds, **options).run(None)
    assert answers.seen == [dict.fromkeys(IDS, name) for name in names]
    assert answers.n_rounds == n_rounds


def test_of_few_trials_by_number_each_is_timed(tmp_path: Path) -> None:
    answers = Answers()
    first_trials(tmp_path, answers, 60.0).run(4)
    assert answers.n_rounds == [3] * 4


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({IDS[0]: ("float", "b"), IDS[1]: ("float", "b")}, [dict.fromkeys(IDS[:2], "b"), {}]),
        ({IDS[0]: ("float", "a", "b"), IDS[1]: ("float", "a", "m", "b")}, None),
    ],
    ids=["float is timed", "other regions"],
)
def test_what_a_recipe_leaves_float_is_part_of_its_kernels(
    tmp_path: Path, choices: dict[RegionId, tuple[str, ...]], expected: list[Assignment] | None
) -> None:
    answers = Answers(n_most=2 if expected else 4)
    space = SearchSpace(choices=choices, schemes=WITH_TWIN)
    first_trials(tmp_path, answers, 60.0, space=space).run(None)
    assert 0 not in answers.n_rounds
    if expected is not None:
        quantized = [{region: name for region, name in one.items() if name != "float"} for one in answers.seen]
        assert quantized == expected


@pytest.mark.parametrize(("seconds", "has_it"), [(60.0, False), (1200.0, True)])
def test_where_time_is_short_a_recipe_that_is_nearly_float_is_left_to_the_sampler(
    tmp_path: Path, seconds: float, *, has_it: bool
) -> None:
    ids = tuple(RegionId(f"r{i}") for i in range(4))
    choices = dict.fromkeys(ids, ("float", "a")) | {ids[0]: ("float", "a", "d")}
    space = SearchSpace(choices=choices, schemes={"a": WITH_DYNAMIC["a"], "d": WITH_DYNAMIC["d"]})
    answers = Answers(n_most=12)
    first_trials(tmp_path, answers, seconds, space=space).run(None)
    nearly_float = dict.fromkeys(ids, "float") | {ids[0]: "d"}
    assert (nearly_float in answers.seen[:3]) is has_it


@pytest.mark.parametrize(("seconds", "first"), [(7.5, "a"), (120.0, "a"), (1200.0, "float")])
def test_where_there_is_time_for_few_trials_a_recipe_comes_first(tmp_path: Path, seconds: float, first: str) -> None:
    answers = Answers(n_most=2)
    trials = some_trials(tmp_path, answers, is_structured=True)
    trials.facts = BenchFacts(float_s={"cpu-1t": 0.2}, n_samples=4, opening_s=0.0)
    trials.deadline = Deadline(seconds)
    trials.run(None)
    assert answers.seen[0] == dict.fromkeys(IDS, first)


@pytest.mark.parametrize("seconds", [20.0, 90.0])
def test_where_there_is_time_for_few_trials_a_faster_float_model_is_tried_second(
    tmp_path: Path, seconds: float
) -> None:
    answers = Answers(n_most=2)
    trials = first_trials(tmp_path, answers, seconds)
    trials.is_float_faster = True
    trials.run(None)
    assert answers.seen == [dict.fromkeys(IDS, name) for name in ("a", "float")]


@pytest.mark.parametrize(("late_s", "n_expected"), [(9.0, 1), (11.0, 0)])
def test_a_first_candidate_may_take_a_tenth_of_the_budget_beyond_its_time(
    tmp_path: Path, late_s: float, n_expected: int
) -> None:
    answers = Answers(n_most=1)
    trials = first_trials(tmp_path, answers, None)
    trials.n_rounds = 4
    finish_s = trials.finish.seconds([], trials._costs, Deadline(100.0), has_size=False)
    trials.deadline = Deadline(100.0, spent_s=100.0 - finish_s - 1.2 * trials.first_seconds + late_s)
    assert trials.run(None) == "time"
    assert len(answers.seen) == n_expected


@pytest.mark.parametrize(("is_float_faster", "n_expected"), [(False, 1), (True, 2)])
def test_a_faster_float_model_may_take_a_tenth_of_the_budget_beyond_the_time_as_well(
    tmp_path: Path, n_expected: int, *, is_float_faster: bool
) -> None:
    answers = Answers(n_most=2)
    trials = first_trials(tmp_path, answers, None)
    trials.is_float_faster = is_float_faster
    trials.measure(dict.fromkeys(IDS, "a"))
    finish_s = trials.finish.seconds(trials.study.evaluations, trials._costs, Deadline(100.0), has_size=False)
    trials.deadline = Deadline(100.0, spent_s=100.0 - finish_s + 9.0)
    assert trials.run(None) == "time"
    assert len(answers.seen) == n_expected


@pytest.mark.parametrize("is_float_faster", [False, True])
@pytest.mark.parametrize(("works", "has_dynamic"), [((0.4, 0.3, 0.3), True), ((0.8, 0.1, 0.1), False)])
def test_where_there_is_time_for_a_handful_of_trials_one_recipe_of_each_kind_is_tried(
    works: Sequence[float], has_dynamic: bool, is_float_faster: bool
) -> None:
    schemes = {
        "a": SCHEMES["a"],
        "b": SCHEMES["b"],
        "d": WITH_DYNAMIC["d"],
        "e": replace(WITH_DYNAMIC["d"], name="e"),
    }
    choices = dict.fromkeys(IDS, ("float", "a", "b", "d", "e")) | {IDS[0]: ("float", "a", "b")}
    space, warm = SearchSpace(choices=choices, schemes=schemes), {IDS[1]: "b"}
    regions = [a_region(name, work=work) for name, work in zip(IDS, works, strict=True)]
    found = one_of_each_kind(space, regions, [warm], is_float_faster=is_float_faster)
    dynamic = [dict.fromkeys(IDS[1:], "d")] if has_dynamic else []
    assert found == [dict.fromkeys(IDS, "a"), *([{}] if is_float_faster else []), *dynamic, warm]


@pytest.mark.parametrize("spelled", ["ad", "da"])
@pytest.mark.parametrize(("works", "is_first"), [((0.1, 0.5, 0.4), True), ((0.3, 0.4, 0.3), False)])
def test_a_dynamic_recipe_of_nearly_all_work_comes_before_the_static_one(
    works: Sequence[float], is_first: bool, spelled: str
) -> None:
    names = "da" if is_first else spelled
    schemes = {name: {"a": SCHEMES["a"], "d": WITH_DYNAMIC["d"]}[name] for name in spelled}
    space = SearchSpace(choices=dict.fromkeys(IDS, ("float", "a", "d")) | {IDS[0]: ("float", "a")}, schemes=schemes)
    regions = [a_region(name, work=work) for name, work in zip(IDS, works, strict=True)]
    recipes = {name: space.uniform(name) for name in names}
    assert one_of_each_kind(space, regions, [], is_float_faster=False) == list(recipes.values())
    assert one_of_each_kind(space, regions, [], is_float_faster=True)[1] == {}
