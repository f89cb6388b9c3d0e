"""Recipes, a warm start and probes."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.samplers import RandomSampler

from autoquant.domain.measurement import State
from autoquant.domain.region import RegionId
from autoquant.domain.scheme import TensorFormat
from autoquant.domain.space import SearchSpace
from tests.unit.api.answers import IDS, Answers, some_trials
from tests.unit.study.layouts import WITH_DYNAMIC


@pytest.mark.parametrize("is_structured", [True, False])
def test_uniform_recipes_come_first_for_every_sampler(tmp_path: Path, is_structured: bool) -> None:
    answers = Answers()
    some_trials(tmp_path, answers, is_structured=is_structured).run(3)
    assert answers.seen == [dict.fromkeys(IDS, name) for name in ("float", "a", "b")]


def test_a_single_trial_is_one_of_a_recipe(tmp_path: Path) -> None:
    answers = Answers()
    some_trials(tmp_path, answers, is_structured=True).run(1)
    assert answers.seen == [dict.fromkeys(IDS, "a")]


def test_only_the_structure_sampler_has_one_region_probes(tmp_path: Path) -> None:
    probed = []
    for is_structured in (True, False):
        answers, folder = Answers(n_most=6), tmp_path / str(is_structured)
        folder.mkdir()
        some_trials(folder, answers, is_structured=is_structured).run(None)
        probed.append([sum(name != "float" for name in found.values()) for found in answers.seen[3:]] == [1, 1, 1])
    assert probed == [True, False]


def test_a_warm_start_comes_between_the_recipes_and_the_probes(tmp_path: Path) -> None:
    answers, first = Answers(n_most=8), [{IDS[1]: "a"}, {IDS[0]: "a", IDS[2]: "b"}, {IDS[1]: "a"}]
    some_trials(tmp_path, answers, is_structured=True, first=first).run(None)
    warm = [dict.fromkeys(IDS, "float") | assignment for assignment in first[:2]]
    assert answers.seen[3:5] == warm
    assert [sum(name != "float" for name in found.values()) for found in answers.seen[5:7]] == [1, 1]


def test_a_warm_start_of_one_scheme_is_no_recipe_that_regions_are_probed_under(tmp_path: Path) -> None:
    answers = Answers(n_most=7)  # which likes few quantized regions
    some_trials(tmp_path, answers, is_structured=True, first=[{IDS[0]: "b"}]).run(None)
    probed = {region for found in answers.seen[4:] for region, name in found.items() if name == "a"}
    assert probed == set(IDS)


def test_what_a_dynamic_recipe_leaves_float_is_probed_under_a_static_one(tmp_path: Path) -> None:
    ids = tuple(RegionId(f"r{i}") for i in range(4))
    choices = dict.fromkeys(ids, ("float", "a")) | dict.fromkeys(ids[:2], ("float", "a", "d"))
    space = SearchSpace(choices=choices, schemes={"a": WITH_DYNAMIC["a"], "d": WITH_DYNAMIC["d"]})
    answers = Answers(n_most=7)  # which likes few quantized regions
    some_trials(tmp_path, answers, is_structured=True, space=space).run(None)
    probed = [{r: name for r, name in found.items() if name != "float"} for found in answers.seen[3:]]
    assert probed == [{ids[0]: "d"}, {ids[1]: "d"}, {ids[2]: "a"}, {ids[3]: "a"}]


def test_regions_are_probed_under_blocks_where_nothing_else_quantizes_them(tmp_path: Path) -> None:
    blocks = TensorFormat.parse("s8:block-32:sym")
    schemes = {"a": WITH_DYNAMIC["a"], "e": replace(WITH_DYNAMIC["d"], name="e", activation=blocks, weight=blocks)}
    ids = tuple(RegionId(f"r{i}") for i in range(4))
    choices = dict.fromkeys(ids, ("float", "a")) | {ids[0]: ("float", "a", "e"), ids[3]: ("float", "e")}
    answers = Answers(n_most=7)  # which likes the recipe of blocks most, as it quantizes fewer regions
    some_trials(tmp_path, answers, is_structured=True, space=SearchSpace(choices=choices, schemes=schemes)).run(None)
    probed = [{r: name for r, name in found.items() if name != "float"} for found in answers.seen[3:]]
    assert probed == [{ids[0]: "a"}, {ids[1]: "a"}, {ids[2]: "a"}, {ids[3]: "e"}]


def test_regions_are_probed_where_none_may_take_a_scheme_of_the_space(tmp_path: Path) -> None:
    choices = dict.fromkeys(IDS, ("float", "a"))
    space = SearchSpace(choices=choices, schemes={"a": WITH_DYNAMIC["a"], "d": WITH_DYNAMIC["d"]})
    answers = Answers(n_most=5)
    some_trials(tmp_path, answers, is_structured=True, space=space).run(None)
    probed = [{r: name for r, name in found.items() if name != "float"} for found in answers.seen[2:]]
    assert probed == [{region: "a"} for region in IDS]


@pytest.mark.parametrize("has_prior", [True, False])
def test_probes_are_timed_where_nothing_is_expected_of_latencies(tmp_path: Path, has_prior: bool) -> None:
    answers = Answers(n_most=8)
    trials = some_trials(tmp_path, answers, is_structured=True, has_prior=has_prior)
    trials.run(None)
    assert [n == 0 for n in answers.n_rounds] == [False] * 3 + [has_prior] * 3 + [False] * 2
    states = [evaluation.outcome.state for evaluation in trials.study.evaluations]
    assert states[3:6] == [State.UNTIMED if has_prior else State.COMPLETE] * 3


class Again(RandomSampler):
    """Proposes the first probe, for ever."""

    def sample_independent(self, *arguments: Any, **named: object) -> str:  # noqa: ARG002
        return "a" if arguments[2] == IDS[0] else "float"


def test_a_probe_that_is_proposed_later_is_timed_and_no_repetition(tmp_path: Path) -> None:
    answers = Answers(n_most=7)
    trials = some_trials(tmp_path, answers, is_structured=True, has_prior=True, sampler=Again())
    trials.run(None)
    assert answers.seen[3] == answers.seen[6] == {IDS[0]: "a", IDS[1]: "float", IDS[2]: "float"}
    assert (answers.n_rounds[3], answers.n_rounds[6]) == (0, trials.n_rounds)
    assert trials._n_repeated == 0
    assert trials.n_evaluations == 6
    answers.n_most = math.inf
    assert trials.run(200) == "exhausted"


def test_probes_of_a_resumed_search_are_not_asked_again(tmp_path: Path) -> None:
    first, second = Answers(n_most=4), Answers(n_most=3)
    some_trials(tmp_path, first, is_structured=True, has_prior=True).run(None)
    some_trials(tmp_path, second, is_structured=True, has_prior=True, sampler=Again()).run(None)
    assert first.n_rounds[3:] == [0]
    assert second.n_rounds[:2] == [0, 0]
    assert second.n_rounds[2] > 0
    assert second.seen[2] == first.seen[3]


def test_a_resumed_search_does_not_probe_again_in_other_groups(tmp_path: Path) -> None:
    first, second = Answers(n_most=6), Answers()
    some_trials(tmp_path, first, is_structured=True, has_prior=True).run(None)
    some_trials(tmp_path, second, is_structured=True, has_prior=True).run(8)
    assert first.n_rounds[3:] == [0, 0, 0]
    assert len(second.n_rounds) == 8
    assert min(second.n_rounds) > 0


def test_probes_take_a_share_of_the_trials(tmp_path: Path) -> None:
    answers = Answers()
    some_trials(tmp_path, answers, is_structured=True, has_prior=True).run(11)
    assert [sum(name != "float" for name in found.values()) for found in answers.seen[3:5]] == [2, 1]
    assert answers.n_rounds[3:6] == [0, 0, 16]


def test_the_best_recipe_is_tried_without_the_ends_before_probes(tmp_path: Path) -> None:
    answers = Answers(n_most=7)
    trials = some_trials(tmp_path, answers, is_structured=True)
    trials.ends = {IDS[1]}
    trials.run(None)
    quantized = [{r: name for r, name in found.items() if name != "float"} for found in answers.seen[3:]]
    assert quantized[0] == {IDS[0]: "a", IDS[2]: "a"}
    assert [len(found) for found in quantized[1:]] == [1, 1, 1]


@pytest.mark.parametrize("ends", [set(), set(IDS[:2]), set(IDS)], ids=["no ends", "most of it", "all"])
def test_a_recipe_without_ends_is_none_or_little_is_not_tried(tmp_path: Path, ends: set[RegionId]) -> None:
    answers = Answers(n_most=6)
    trials = some_trials(tmp_path, answers, is_structured=True)
    trials.ends = ends
    trials.run(None)
    assert [sum(name != "float" for name in found.values()) for found in answers.seen[3:]] == [1, 1, 1]
