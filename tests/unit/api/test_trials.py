import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.samplers import BruteForceSampler, RandomSampler
from optuna.trial import FrozenTrial

from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import BenchFacts
from autoquant.api.trials import SearchProgress
from autoquant.domain.measurement import Failure, Measurement
from autoquant.domain.region import Assignment, RegionId
from autoquant.domain.space import SearchSpace
from autoquant.errors import AutoquantError, DataError, ModelError, OutputError, SamplerError, TargetError
from autoquant.study.outlook import Outlook
from autoquant.study.study import Study
from tests.unit.api.answers import IDS, Answers, some_trials
from tests.unit.study.layouts import SCHEMES


class Stubborn(RandomSampler):
    """Proposes float in every region."""

    def sample_independent(self, *arguments: object, **named: object) -> str:  # noqa: ARG002
        return "float"


def test_without_regions_the_preprocessed_model_is_measured(tmp_path: Path) -> None:
    answers = Answers()
    trials = some_trials(tmp_path, answers, is_structured=True, space=SearchSpace(choices={}, schemes={}))
    assert trials.run(None) == "exhausted"
    assert trials.run(None) == "exhausted"  # as a resumed search does
    assert answers.seen == [{}]


def test_without_regions_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    def interrupted(_: SearchProgress) -> None:
        raise KeyboardInterrupt

    trials = some_trials(tmp_path, Answers(), is_structured=True, space=SearchSpace(choices={}, schemes={}))
    trials.on_progress = interrupted
    assert trials.run(None) == "interrupted"
    assert len(trials.study.evaluations) == 1


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


def test_a_search_by_an_exhaustive_sampler_of_optuna_ends_when_that_says_so(tmp_path: Path) -> None:
    answers = Answers()
    trials = some_trials(tmp_path, answers, is_structured=False, sampler=BruteForceSampler(seed=0))
    assert trials.run(None) == "exhausted"
    assert len(answers.seen) == len({json.dumps(each) for each in answers.seen}) == 27
    trials.study.has_stopped, trials._asked = True, set()
    assert trials.run(None) == "stopped"


def test_a_resumed_search_knows_what_was_evaluated(tmp_path: Path) -> None:
    first = Answers()
    some_trials(tmp_path, first, is_structured=False).run(20)
    second = Answers()
    resumed, told = some_trials(tmp_path, second, is_structured=False), list[SearchProgress]()
    resumed.on_progress = told.append
    assert resumed.run(5000) == "exhausted"
    assert len({tuple(found.items()) for found in first.seen + second.seen}) == 27
    assert told[0].best == {30: pytest.approx(0.7), 40: pytest.approx(0.8), 50: pytest.approx(0.9)}, "of both runs"


def test_a_plateau_ends_the_search_and_gains_that_can_be_shown_go_on(tmp_path: Path) -> None:
    gains = {"flat": (1e-9, 0.001), "flat without any member": (1e-22, 0.0), "steep": (1.0, 0.001)}
    for name, (next_gain, noise) in gains.items():
        (tmp_path / name).mkdir()
        trials = some_trials(tmp_path / name, Answers(), is_structured=True)
        expected = Outlook(saving=0.1, attainable=0.2, next_gain=next_gain, noise=noise, demands_db=(8.0, 64.0))
        trials.outlook = lambda expected=expected: expected  # type: ignore[misc]
        assert trials.run(200) == ("exhausted" if name == "steep" else "plateau")


def test_what_is_expected_of_a_latency_goes_with_the_assignment(tmp_path: Path) -> None:
    answers = Answers()
    trials = some_trials(tmp_path, answers, is_structured=False)
    trials.least_ratios = lambda assignment: [0.25] if assignment[IDS[0]] == "a" else []
    trials.run(2)
    assert answers.least_ratios == [{}, {"cpu-1t": 0.25}]


def test_recipes_and_probes_do_not_count_in_the_time_saved(tmp_path: Path) -> None:
    answers = Answers(n_most=6)
    trials = some_trials(tmp_path, answers, is_structured=True)
    trials.run(None)
    assert trials.seconds_saved is None
    answers.n_most = 7
    trials.run(None)
    assert trials.seconds_saved == 0


class SlowAnswers(Answers):
    """Each takes two seconds of the deadline, but for those that fail at once."""

    def __init__(self, deadline: Deadline, n_failing: int) -> None:
        super().__init__()
        self.deadline, self.n_failing = deadline, n_failing

    def evaluate(self, *arguments: Any, **named: Any) -> Measurement | Failure | None:
        found = super().evaluate(*arguments, **named)
        if len(self.seen) <= self.n_failing:
            return Failure(stage="open", reason="refused")
        self.deadline.spent_s += 2.0
        return found


@pytest.mark.parametrize(("n_failing", "is_resumed"), [(0, False), (1, False), (0, True)])
def test_probes_keep_to_their_share_of_the_time(tmp_path: Path, n_failing: int, is_resumed: bool) -> None:
    regions = [RegionId(f"r{i}") for i in range(16)]
    space = SearchSpace(choices=dict.fromkeys(regions, ("float", "a", "b")), schemes=SCHEMES)
    deadline = Deadline(80.0)
    answers = SlowAnswers(deadline, n_failing)
    trials = some_trials(tmp_path, answers, is_structured=True, space=space)
    trials.facts = BenchFacts(float_s={"cpu-1t": 0.2}, n_samples=4, opening_s=0.0)
    trials.deadline = deadline
    if is_resumed:
        some_trials(tmp_path, Answers(), is_structured=False, space=space).run(3)
        trials = replace(trials, study=Study(tmp_path / "study.journal", space, RandomSampler(seed=0)))
    trials.run(None)
    is_part = [0 < sum(name != "float" for name in asked.values()) < 16 for asked in answers.seen]
    probes = [asked for asked, part in zip(answers.seen, is_part, strict=True) if part][:4]
    assert all(len({name for name in asked.values() if name != "float"}) == 1 for asked in probes[:3])
    assert all(sum(name != "float" for name in asked.values()) > 1 for asked in probes[:3])


@pytest.mark.parametrize("kind", [DataError, ModelError, TargetError])
@pytest.mark.parametrize(("n_before", "expected"), [(3, "lost"), (1, None)])
def test_a_process_that_cannot_be_begun_again_ends_the_search_with_what_it_has(
    tmp_path: Path, n_before: int, expected: str | None, kind: type[AutoquantError]
) -> None:
    class Lost(Answers):
        def evaluate(self, *arguments: Any, **options: Any) -> Measurement | Failure | None:
            if len(self.seen) == n_before:
                raise kind("running it on cpu-1t failed")
            return super().evaluate(*arguments, **options)

    trials = some_trials(tmp_path, Lost(), is_structured=True)
    if expected is None:
        with pytest.raises(kind, match="running it on cpu-1t failed"):
            trials.run(None)
    else:
        assert trials.run(None) == expected
        assert len(trials.study.evaluations) == n_before


class Refusing(RandomSampler):
    """Proposes so often."""

    def __init__(self, n_most: int) -> None:
        super().__init__(seed=0)
        self.n_most = n_most

    def before_trial(self, study: object, trial: FrozenTrial) -> None:  # noqa: ARG002
        if trial.number == self.n_most:
            raise ImportError("torch is missing")


@pytest.mark.parametrize(("n_most", "expected"), [(5, "sampler"), (1, None)])
def test_a_sampler_that_cannot_go_on_ends_the_search_with_what_was_measured(
    tmp_path: Path, n_most: int, expected: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    trials = some_trials(tmp_path, Answers(), is_structured=False, sampler=Refusing(n_most))
    if expected is None:
        with pytest.raises(SamplerError, match=r"^sampler Refusing cannot go on, "):
            trials.run(None)
    else:
        assert trials.run(None) == expected
        assert "sampler Refusing cannot go on, put it right or give another one (ImportError: torch is" in caplog.text
        assert trials.error in caplog.text
    assert len(trials.study.evaluations) == n_most


class Forgetting(RandomSampler):
    """Fails after so many trials."""

    def __init__(self, n_most: int) -> None:
        super().__init__(seed=0)
        self.n_most = n_most

    def after_trial(self, study: object, trial: FrozenTrial, state: object, values: object) -> None:  # noqa: ARG002
        if trial.number + 1 == self.n_most:
            raise KeyError("after")


def test_a_trial_after_which_the_sampler_fails_is_counted(tmp_path: Path) -> None:
    trials = some_trials(tmp_path, Answers(), is_structured=False, sampler=Forgetting(5))
    assert trials.run(None) == "sampler"
    assert trials.n_evaluations == len(trials.study.evaluations) == 5


def test_where_the_process_that_measures_has_no_place_any_more_what_was_measured_is_kept(tmp_path: Path) -> None:
    class Full(Answers):
        def evaluate(self, *arguments: Any, **options: Any) -> Measurement | Failure | None:
            if len(trials.study.evaluations) == 4:
                raise OutputError("temporary files cannot be written")
            return super().evaluate(*arguments, **options)

    trials = some_trials(tmp_path, Full(), is_structured=False)
    assert trials.run(None) == "lost"
    assert len(trials.study.evaluations) == 4


def test_a_search_ends_where_one_trial_after_another_fails(tmp_path: Path) -> None:
    class Failing(Answers):
        def evaluate(self, *_: Any, **__: Any) -> Failure:
            return Failure(stage="run", reason="no memory")

    trials = some_trials(tmp_path, Failing(), is_structured=True)
    assert trials.run(150) == "failing"
    assert len(trials.study.evaluations) == 100


def test_failures_and_repetitions_in_turn_end_a_search_too(tmp_path: Path) -> None:
    class Moody(Answers):
        def evaluate(self, assignment: Assignment, *others: Any, **named: Any) -> Measurement | Failure | None:
            if len(self.seen) % 3:
                self.seen.append(dict(assignment))
                return Failure(stage="run", reason="no memory")
            return super().evaluate(assignment, *others, **named)

    trials = some_trials(tmp_path, Moody(is_coarse=True), is_structured=True, sampler=Stubborn())
    assert trials.run(400) == "failing"


def test_a_candidate_that_hangs_does_not_end_the_search(tmp_path: Path) -> None:
    deadline = Deadline(64.0)

    class Hanging(Answers):
        def evaluate(self, *arguments: Any, **named: Any) -> Measurement | Failure | None:
            found = super().evaluate(*arguments, **named)
            has_hung = len(self.seen) == 6
            deadline.spent_s += 10.0 if has_hung else 0.1
            return Failure(stage="process", reason="it took more than 10 s") if has_hung else found

    trials = some_trials(tmp_path, Hanging(), is_structured=False)
    trials.deadline = deadline
    deadline.spent_s = 36.0
    trials.run(20)
    assert len(trials.study.evaluations) == 20


def test_a_search_ends_when_all_that_differ_were_evaluated(tmp_path: Path) -> None:
    answers = Answers()
    trials = some_trials(tmp_path, answers, is_structured=False)
    trials.twins = {region: {"b": "a"} for region in IDS}
    assert trials.run(5000) == "exhausted"
    differ = {tuple("a" if name == "b" else name for name in asked.values()) for asked in answers.seen}
    assert len(differ) == 8
