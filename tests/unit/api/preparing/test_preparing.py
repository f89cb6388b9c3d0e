from dataclasses import replace

import pytest

from autoquant.api import steps
from autoquant.api.configuration import Budget, Demands
from autoquant.api.preparing import Preparing
from autoquant.domain.accuracy import Form
from autoquant.domain.sampler import SamplerName
from autoquant.domain.scheme import Rounding
from autoquant.errors import ProfileError, UsageError
from autoquant.space.resolve import resolve
from tests.unit.api.preparing.stubs import Evaluating, Make, an_earlier


def test_the_model_is_partitioned_and_calibrated(make: Make) -> None:
    found = make().ingredients()
    assert found.regions
    assert found.statistics.n_samples == 8
    assert found.form is Form.PLAIN
    assert found.rounder is None


def test_a_size_that_no_candidate_can_have_is_refused_with_the_least_one(make: Make) -> None:
    preparing = make()
    found = preparing.ingredients()
    least = steps.least_bytes(found.prepared, found.regions, found.definition)
    space, builder = resolve(found.definition, found.regions), found.builder()
    uniform = (builder.build(space.uniform(scheme.name)).size_bytes for scheme in found.definition.schemes)
    assert least == 8 * 8 + 8 * 4 + 8 + 4 < min(uniform)

    def within(size: int) -> Preparing:
        return replace(preparing, configuration=replace(preparing.configuration, demands=Demands(max_size_bytes=size)))

    with pytest.raises(UsageError, match=r"largest size is 107 bytes, but weights and other .* take 108 in every"):
        within(least - 1).ingredients()
    assert within(least).ingredients().regions


def test_a_short_budget_calibrates_on_fewer_samples_and_says_so(make: Make) -> None:
    preparing = make(Budget(seconds=1e-6))
    found = preparing.ingredients()
    assert found.statistics.n_samples == 1
    assert "calibration: there was time for 1 of the 8 samples" in preparing.notes


def test_weights_that_the_budget_has_no_time_to_round_are_named(make: Make) -> None:
    preparing = make(Budget(seconds=1e-6), rounding=Rounding.ADAROUND)
    found = preparing.rounded(preparing.ingredients())
    assert found.rounder is not None
    assert {weight for weight, _ in found.rounder.found} == {"wa"}
    assert preparing.notes[-1] == (
        "weights of the plain form are rounded to the nearest integers in some formats or all,"
        " as there was no time in 10% of the budget: wy"
    )


def test_without_a_limit_of_time_all_weights_are_rounded(make: Make) -> None:
    preparing = make(rounding=Rounding.GPTQ)
    found = preparing.rounded(preparing.ingredients())
    assert found.rounder is not None
    assert found.rounder.found
    assert not found.rounder.unfinished
    assert preparing.notes == []


def test_a_resumed_run_rounds_the_same_weights_whatever_its_time(make: Make) -> None:
    first = make(rounding=Rounding.GPTQ)
    whole = first.rounded(first.ingredients()).rounder
    assert whole is not None
    late = frozenset(asked for asked in whole.found if asked[0] == "wy")
    preparing = make(Budget(seconds=1e-6), an_earlier(Form.PLAIN, late), Rounding.GPTQ)
    again = preparing.rounded(preparing.ingredients()).rounder
    assert again is not None
    assert again.unfinished == late
    assert again.found.keys() == whole.found.keys() - late
    assert preparing.notes[-1].endswith("in some formats or all, as before: wy")


def test_the_search_goes_on_with_the_errors_of_what_regions_quantize(make: Make) -> None:
    preparing = make()
    plain = preparing.ingredients()
    region = plain.regions[0].id
    found = {region: {"any": 1e-3}}, {region: {"other": "any"}}
    chosen = preparing.with_own_errors(plain, Evaluating([], errors=found).real)
    assert (chosen.own_errors, chosen.known_twins()) == found
    assert not preparing.notes


@pytest.mark.parametrize(("errors", "reason"), [(None, "there was no time"), (ProfileError("it hung"), "it hung")])
def test_a_search_goes_on_without_them(errors: Exception | None, reason: str, make: Make) -> None:
    preparing = make()
    plain, evaluating = preparing.ingredients(), Evaluating([], errors=errors)
    assert preparing.with_own_errors(plain, evaluating.real) is plain
    assert evaluating.loaded == ([plain] if errors else [])  # another process has nothing
    assert preparing.notes == [f"noise is expected from each region's share of the arithmetic alone: {reason}"]


def test_they_are_not_asked_for_once_much_of_the_budget_is_gone(make: Make) -> None:
    preparing = make(Budget(seconds=60.0))
    plain = preparing.ingredients()
    preparing.deadline.spent_s = 30.0
    assert preparing.with_own_errors(plain, Evaluating([], errors=ProfileError("asked")).real).own_errors is None
    assert preparing.deadline.left_out == ["errors of what regions quantize"]
    assert not preparing.notes


def test_samplers_that_do_not_use_them_do_not_wait_for_them(make: Make) -> None:
    preparing = make()
    other = replace(preparing, configuration=replace(preparing.configuration, sampler=SamplerName.RANDOM))
    plain = other.ingredients()
    assert other.with_own_errors(plain, Evaluating([], errors=ProfileError("asked")).real) is plain
    assert not other.notes
