from pathlib import Path
from typing import cast

import pytest

from autoquant.api import search as module
from autoquant.api.checking import check
from autoquant.api.configuration import Budget, Configuration, Demands
from autoquant.api.deadline import Deadline
from autoquant.api.folder import RunFolder
from autoquant.api.ingredients import Ingredients
from autoquant.api.interrupts import Interrupts
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.api.run import Opened, Run
from autoquant.api.trials import Trials
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.sampler import SamplerName
from autoquant.domain.target import Target
from autoquant.examples import example
from autoquant.study.layout import Layout
from autoquant.study.samplers import make_sampler
from experiments.search.ablated import AblatedRun, without
from experiments.search.blocks import FAMILIES, Answers, make_blocks
from experiments.search.blocks import Budget as Evaluations
from experiments.search.granularity import trials_of
from experiments.search.parts import Part

BLOCKS = make_blocks(16, FAMILIES["alike"], seed=0)


class OfBlocks:
    """What ``layout_of`` wants of ingredients."""

    def layout(self) -> Layout:
        return BLOCKS.problem.layout


def a_run(part: Part | None, out: Path) -> AblatedRun:
    digits = example("digits")
    asked = Configuration(
        model=digits.model,
        calibration=digits.calibration,
        evaluation=digits.evaluation,
        targets=(Target(),),
        budget=Budget(trials=1),
        demands=Demands(),
        space="default",
        out=out,
        n_regions=100,
    )
    return AblatedRun(asked, check(asked), Deadline(None), lambda _: None, Interrupts(), part=part)


@pytest.mark.parametrize(("part", "n_schemes"), [(Part.RANGES, 5), (Part.BORDERS, 10), (None, 10)])
def test_the_space_lacks_ranges_or_nothing(part: Part | None, n_schemes: int, tmp_path: Path) -> None:
    run = a_run(part, tmp_path)
    assert len(run.checked.definition.schemes) == n_schemes


@pytest.mark.parametrize(("part", "n_regions"), [(Part.FINENESS, 40), (Part.BORDERS, 100), (None, 100)])
def test_regions_are_coarser_or_not(part: Part | None, n_regions: int, tmp_path: Path) -> None:
    run = a_run(part, tmp_path)
    assert run.configuration_document["n_regions"] == n_regions


def test_the_sampler_is_told_of_no_borders(tmp_path: Path) -> None:
    ingredients = cast("Ingredients", OfBlocks())
    assert len(a_run(Part.BORDERS, tmp_path).layout_of(ingredients).edges) == 0
    assert len(a_run(Part.PROBES, tmp_path).layout_of(ingredients).edges) > 0


@pytest.mark.parametrize("part", [None, *Part])
def test_profiles_are_not_taken_or_lose_their_borders(
    part: Part | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def profile(run: Run, evaluator: IsolatedEvaluator, ingredients: Ingredients) -> None:
        run.prior = BLOCKS.prior

    monkeypatch.setattr(Run, "profile", profile)
    run = a_run(part, tmp_path)
    run.profile(cast("IsolatedEvaluator", None), cast("Ingredients", OfBlocks()))
    if part is Part.PROFILES:
        assert run.prior is None
    else:
        assert isinstance(run.prior, LatencyPrior)
        assert run.prior.border.size == (0 if part is Part.BORDERS else BLOCKS.prior.border.size)


def test_trials_lack_probes_or_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_trials(run: Run, folder: RunFolder, opened: Opened) -> Trials:
        sampler = make_sampler(SamplerName.STRUCTURE, BLOCKS.problem.layout)
        trials = trials_of(Answers(BLOCKS, Evaluations(seconds=1.0)), BLOCKS.problem, sampler, tmp_path)
        trials.has_prior = True
        return trials

    monkeypatch.setattr(Run, "open_trials", open_trials)
    nothing = cast("RunFolder", None), cast("Opened", None)
    found = {part: a_run(part, tmp_path).open_trials(*nothing) for part in (None, Part.PROBES, Part.RACING)}
    assert [trials.has_probes for trials in found.values()] == [True, False, True]
    assert [trials.has_prior for trials in found.values()] == [True, True, False]


def test_searches_outside_are_whole_again(tmp_path: Path) -> None:
    before = vars(module)["Run"]
    with without(Part.BORDERS):
        whole = a_run(None, tmp_path)
        made = vars(module)["Run"](whole.configuration, whole.checked, Deadline(None), lambda _: None, Interrupts())
    assert isinstance(made, AblatedRun)
    assert made.part is Part.BORDERS
    assert vars(module)["Run"] is before
    with without(None):
        assert vars(module)["Run"] is before
