from pathlib import Path

import numpy as np
import pytest
from optuna.samplers import RandomSampler

from autoquant.domain.prior import LatencyPrior
from autoquant.space.schema import read_space
from autoquant.study.study import Study
from experiments.search.blocks import FAMILIES, Answers, Budget, make_blocks
from experiments.search.granularity import trials_of
from experiments.search.parts import Part, layout_without, narrowed, one_range_each, prior_without, switch_off
from tests.unit.api.answers import Answers as MadeUp
from tests.unit.api.answers import some_trials
from tests.unit.api.test_few_trials import first_trials
from tests.unit.api.test_trials import Stubborn

BLOCKS = make_blocks(16, FAMILIES["alike"], seed=0)
LAYOUT = BLOCKS.problem.layout


@pytest.mark.parametrize("part", [None, *Part])
def test_a_layout_lacks_borders_or_likeness_and_nothing_else(part: Part | None) -> None:
    found = layout_without(part, LAYOUT)
    assert len(found.edges) == (0 if part is Part.BORDERS else len(LAYOUT.edges))
    assert len(set(found.patterns.tolist())) == (16 if part is Part.LIKENESS else 8)
    np.testing.assert_array_equal(found.work, LAYOUT.work)


def test_a_prior_lacks_its_borders_or_is_none() -> None:
    prior = prior_without(Part.BORDERS, BLOCKS.prior)
    assert isinstance(prior, LatencyPrior)
    assert prior.border.size == prior.border_spread.size == 0
    assert prior_without(Part.PROFILES, BLOCKS.prior) is None
    assert prior_without(Part.RACING, BLOCKS.prior) is BLOCKS.prior
    assert prior_without(Part.BORDERS, None) is None


def test_probes_and_stages_are_switched_off_where_trials_are_run(tmp_path: Path) -> None:
    answers = Answers(BLOCKS, Budget(seconds=1.0))
    trials = trials_of(answers, BLOCKS.problem, RandomSampler(), tmp_path)
    trials.has_prior, trials.least_ratios = True, lambda _: (0.5,)
    switch_off(Part.BORDERS, trials)
    assert trials.has_probes
    assert trials.has_prior
    switch_off(Part.PROBES, trials)
    assert not trials.has_probes
    switch_off(Part.RACING, trials)
    assert not trials.has_prior
    assert trials.least_ratios({}) == ()
    assert isinstance(trials.study, Study)


def test_without_probes_recipes_are_timed_or_not_as_with_them(tmp_path: Path) -> None:
    answers = MadeUp(n_most=7)
    trials = first_trials(tmp_path, answers, 60.0)
    switch_off(Part.PROBES, trials)
    trials.run(None)
    assert answers.n_rounds[:4] == [3, 3, 3, 0]  # the last one has the kernels of the first
    assert [sum(name != "float" for name in found.values()) for found in answers.seen[4:]] != [1, 1, 1]


def test_without_probes_a_search_ends_where_only_known_graphs_are_proposed(tmp_path: Path) -> None:
    trials = some_trials(tmp_path, MadeUp(), is_structured=True, sampler=Stubborn())
    switch_off(Part.PROBES, trials)
    assert trials.run(150) == "exhausted"


def test_one_scheme_stays_of_those_that_differ_in_ranges_alone() -> None:
    kept = [scheme.name for scheme in one_range_each(read_space("default", ep="cpu").schemes)]
    static = ["u8s8-channel-minmax", "u8s8-linear-minmax", "u8s8-tensor-minmax"]
    assert kept == [*static, "dynamic-channel", "dynamic-block-128"]


def test_the_first_scheme_stays_where_none_takes_the_extremes() -> None:
    schemes = [scheme for scheme in read_space("default", ep="cpu").schemes if "minmax" not in scheme.name]
    kept = [scheme.name for scheme in one_range_each(schemes)]
    assert kept == ["u8s8-channel-p99.999", "u8s8-linear-p99.999", "dynamic-channel", "dynamic-block-128"]


def test_a_narrowed_space_has_float_and_what_was_kept() -> None:
    space = BLOCKS.problem.space
    found = narrowed(space, one_range_each(space.schemes.values()))
    assert set(found.choices) == set(space.choices)
    assert all(
        names == ("float", "u8s8-channel-minmax", "u8s8-linear-minmax", "u8s8-tensor-minmax")
        for names in found.choices.values()
    )
    assert list(found.schemes) == ["u8s8-channel-minmax", "u8s8-linear-minmax", "u8s8-tensor-minmax"]
