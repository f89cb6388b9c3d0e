import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from optuna.samplers import BaseSampler, RandomSampler

from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import BenchFacts
from autoquant.api.trials import Trials
from autoquant.domain.measurement import Measurement
from autoquant.domain.region import Assignment, RegionId
from autoquant.domain.space import SearchSpace
from autoquant.study.outlook import Outlook
from autoquant.study.study import Study
from tests.records import a_measured, a_region
from tests.unit.study.layouts import SCHEMES

IDS = tuple(RegionId(f"r{i}") for i in range(3))
SPACE = SearchSpace(choices=dict.fromkeys(IDS, ("float", "a", "b")), schemes=SCHEMES)


class Answers:
    """Answers at once; assignments with as many quantized regions run the same graph if ``is_coarse``."""

    opening_s = 0.0

    def __init__(self, *, is_coarse: bool = False) -> None:
        self.is_coarse = is_coarse
        self.seen: list[dict[RegionId, str]] = []

    def evaluate(self, assignment: Assignment, n_rounds: int, *, left_s: float) -> Measurement:  # noqa: ARG002 - of the port
        self.seen.append(dict(assignment))
        n = sum(name != "float" for name in assignment.values())
        text = str(n) if self.is_coarse else json.dumps(assignment, sort_keys=True)
        found = a_measured(snr_db=60 - 10.0 * n, ratio=1 - 0.1 * n).outcome
        assert isinstance(found, Measurement)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return replace(found, digest=digest, effective=assignment)


def some_trials(
    folder: Path,
    answers: Answers,
    *,
    is_structured: bool,
    sampler: BaseSampler | None = None,
    first: Sequence[Assignment] = (),
) -> Trials:
    return Trials(
        study=Study(folder / "study.journal", SPACE, sampler or RandomSampler(seed=0)),
        evaluator=answers,
        facts=BenchFacts(float_s={"cpu": 1e-3}, n_samples=4),
        n_final_samples=4,
        regions=[a_region(region) for region in IDS],
        space=SPACE,
        deadline=Deadline(None),
        on_progress=lambda _: None,
        size_bytes=1,
        is_structured=is_structured,
        first=first,
    )


class Stubborn(RandomSampler):
    """Proposes float in every region."""

    def sample_independent(self, *arguments: object, **named: object) -> str:  # noqa: ARG002
        return "float"


@pytest.mark.parametrize("is_structured", [True, False])
def test_uniform_recipes_come_first_for_every_sampler(tmp_path: Path, is_structured: bool) -> None:
    answers = Answers()
    some_trials(tmp_path, answers, is_structured=is_structured).run(3)
    assert answers.seen == [dict.fromkeys(IDS, name) for name in ("float", "a", "b")]


def test_only_the_structure_sampler_has_one_region_probes(tmp_path: Path) -> None:
    probed = []
    for is_structured in (True, False):
        answers, folder = Answers(), tmp_path / str(is_structured)
        folder.mkdir()
        some_trials(folder, answers, is_structured=is_structured).run(6)
        probed.append([sum(name != "float" for name in found.values()) for found in answers.seen[3:]] == [1, 1, 1])
    assert probed == [True, False]


def test_a_warm_start_comes_between_the_recipes_and_the_probes(tmp_path: Path) -> None:
    answers, first = Answers(), [{IDS[1]: "a"}, {IDS[0]: "a", IDS[2]: "b"}, {IDS[1]: "a"}]
    some_trials(tmp_path, answers, is_structured=True, first=first).run(8)
    warm = [dict.fromkeys(IDS, "float") | assignment for assignment in first[:2]]
    assert answers.seen[3:5] == warm
    assert [sum(name != "float" for name in found.values()) for found in answers.seen[5:7]] == [1, 1]


def test_a_warm_start_of_one_scheme_is_no_recipe_that_regions_are_probed_under(tmp_path: Path) -> None:
    answers = Answers()  # which likes few quantized regions
    some_trials(tmp_path, answers, is_structured=True, first=[{IDS[0]: "b"}]).run(7)
    probed = {region for found in answers.seen[4:] for region, name in found.items() if name == "a"}
    assert probed == set(IDS)


def test_an_assignment_is_measured_again_where_that_is_asked(tmp_path: Path) -> None:
    answers = Answers()
    trials = some_trials(tmp_path, answers, is_structured=True)
    trials.run(3)
    found = trials.measure(dict.fromkeys(IDS, "a"))
    assert found is not None
    assert found.trial.number == 3
    assert answers.seen[3] == answers.seen[1] == dict.fromkeys(IDS, "a")
    assert trials.study.evaluations[-1] == found


def test_a_generic_sampler_that_repeats_itself_goes_on(tmp_path: Path) -> None:
    trials = some_trials(tmp_path, Answers(), is_structured=False, sampler=Stubborn())
    assert trials.run(150) == "trials"
    assert len(trials.study.evaluations) == 150


def test_a_structured_search_ends_where_only_known_graphs_are_proposed(tmp_path: Path) -> None:
    assert some_trials(tmp_path, Answers(), is_structured=True, sampler=Stubborn()).run(150) == "exhausted"


@pytest.mark.parametrize("is_coarse", [True, False])
def test_a_generic_search_ends_when_every_assignment_was_evaluated_and_not_before(
    tmp_path: Path, is_coarse: bool
) -> None:
    answers = Answers(is_coarse=is_coarse)
    assert some_trials(tmp_path, answers, is_structured=False).run(5000) == "exhausted"
    assert len({tuple(found.items()) for found in answers.seen}) == 27
    assert len(answers.seen) > 27


def test_a_resumed_search_knows_what_was_evaluated(tmp_path: Path) -> None:
    first = Answers()
    some_trials(tmp_path, first, is_structured=False).run(20)
    second = Answers()
    assert some_trials(tmp_path, second, is_structured=False).run(5000) == "exhausted"
    assert len({tuple(found.items()) for found in first.seen + second.seen}) == 27


def test_a_plateau_ends_the_search_and_gains_that_can_be_shown_go_on(tmp_path: Path) -> None:
    for name, next_gain in {"flat": 1e-9, "steep": 1.0}.items():
        (tmp_path / name).mkdir()
        trials = some_trials(tmp_path / name, Answers(), is_structured=True)
        trials.outlook = lambda gain=next_gain: Outlook(saving=0.1, attainable=0.2, next_gain=gain, noise=0.001)  # type: ignore[misc]
        assert trials.run(200) == {"flat": "plateau", "steep": "exhausted"}[name]
