import json

import numpy as np
import optuna
import pytest
from optuna.samplers import BaseSampler, PartialFixedSampler

from autoquant.study.proposal import Fixed, asked_for, publish
from autoquant.study.sampler import StructureSampler
from tests.unit.study.layouts import a_layout

LAYOUT = a_layout(3, share_of_edges=0.0)
FIRST, MIDDLE, LAST = LAYOUT.regions


def a_trial(enqueued: dict[str, object], sampler: BaseSampler | None = None) -> optuna.Study:
    """A study with one trial, which runs and has no parameters so far."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=sampler or StructureSampler(LAYOUT))
    study.enqueue_trial(enqueued)
    study.ask()
    return study


def fixed_in(study: optuna.Study) -> list[int]:
    (trial,) = study.trials
    search_space = study.sampler.infer_relative_search_space(study, trial)
    return [int(code) for code in Fixed.of(LAYOUT, study, trial, search_space).codes]


def test_what_a_trial_was_enqueued_with_is_fixed() -> None:
    assert fixed_in(a_trial({})) == [-1, -1, -1]
    assert fixed_in(a_trial({MIDDLE: "b", "threshold": 0.5})) == [-1, 2, -1]


def test_what_samplers_around_it_fix_is_fixed_unless_the_trial_was_enqueued_with_something_else() -> None:
    inner = PartialFixedSampler({LAST: "b"}, StructureSampler(LAYOUT))
    around = PartialFixedSampler({FIRST: "a"}, inner)
    assert fixed_in(a_trial({}, around)) == [1, -1, 2]
    assert fixed_in(a_trial({FIRST: "float"}, around)) == [0, -1, 2]


def test_what_a_region_may_not_take_is_not_fixed() -> None:
    assert fixed_in(a_trial({LAST: "a"})) == [-1, -1, -1]


def test_assignments_and_choices_keep_to_what_is_fixed() -> None:
    fixed = Fixed(np.array([-1, 2, -1]))
    assert fixed.is_free.tolist() == [True, False, True]
    assert fixed.hold(np.array([[0, 0, 0], [1, 2, 2]])).tolist() == [[0, 2, 0], [1, 2, 2]]
    allowed = np.array([[True, True, False], [True, True, False], [True, False, False]])
    assert fixed.narrow(allowed).tolist() == [[True, True, False], [False, False, True], [True, False, False]]


@pytest.mark.parametrize(("enqueued", "expected"), [({}, [1, 0, 2]), ({FIRST: "b"}, [2, 0, 2])])
def test_a_proposal_is_known_before_any_parameter_is(enqueued: dict[str, object], expected: list[int]) -> None:
    study = a_trial(enqueued)
    assert asked_for(LAYOUT, study.trials[0]) is None
    publish(study, study.trials[0], np.array([1, 0, 2]))
    found = asked_for(LAYOUT, study.trials[0])
    assert found is not None
    assert found.tolist() == expected
    assert asked_for(a_layout(4), study.trials[0]) is None


def test_a_trial_that_waits_is_known_where_it_was_enqueued_as_a_whole() -> None:
    study = optuna.create_study()
    study.enqueue_trial({FIRST: "a", MIDDLE: "b", LAST: "b"})
    study.enqueue_trial({FIRST: "a"})
    found = asked_for(LAYOUT, study.trials[0])
    assert found is not None
    assert found.tolist() == [1, 2, 2]
    assert asked_for(LAYOUT, study.trials[1]) is None


def test_a_proposal_of_many_regions_is_one_short_attribute() -> None:
    study = a_trial({})
    publish(study, study.trials[0], np.full(200, 99))
    (text,) = (value for name, value in study.trials[0].system_attrs.items() if name != "fixed_params")
    assert len(json.dumps(text)) <= 2045
