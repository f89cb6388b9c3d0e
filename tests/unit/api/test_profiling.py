from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

from autoquant.api.profiling import profiled_prior
from autoquant.domain.prior import LatencyPrior, Profiled
from autoquant.domain.region import NodeName, RegionId, TensorName
from autoquant.domain.scheme import RangeMethod, Scheme, TensorFormat
from autoquant.domain.statistics import CalibrationRange
from autoquant.errors import ProfileError
from autoquant.graph.regions import borders
from autoquant.measurement.bench import Bench
from autoquant.measurement.profile import Profile
from autoquant.qdq.builder import Builder
from autoquant.study.layout import Layout
from tests.graphs import OP_TYPES, case_of
from tests.models import floats, model_of
from tests.records import a_region
from tests.unit.study.layouts import SCHEMES, WITH_DYNAMIC

WIDE = 2000
CASE = case_of(
    model_of(
        "(float[4,4] x) => (float[4,4] y)",
        "a = Sigmoid(x) b = Gemm(a, wb) c = Sigmoid(b) y = Gemm(c, wy)",
        {"wb": floats(4, WIDE), "wy": floats(WIDE, 4)},
    )
)
REGIONS = tuple(replace(a_region(name), nodes=(NodeName(name),)) for name in "abcy")
MODEL_US = (40.0, 20.0, 30.0, 10.0)
FLOAT_US = (20.0, 30.0, 20.0, 40.0)
MIXED_US = (22.0, 10.0, 32.0, 10.0)
ALL_US = (15.0, 10.0, 20.0, 40.0)
LINEAR_US = (20.0, 20.0, 20.0, 10.0)
DYNAMIC_US = (20.0, 25.0, 20.0, 35.0)


@dataclass
class Profiling:
    """Gives made-up kernel times, those of the user's model first, and keeps what it was asked.

    The first time all candidates take ``disturbed`` times as long.
    """

    times: Sequence[Sequence[float]]
    disturbed: float = 1.0
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def profile(self, candidates: Sequence[Any], seconds: float, most_s: float) -> tuple[Profile, ...]:
        self.asked.append((candidates, seconds, most_s))
        assert len(self.times) == 1 + len(candidates)
        slower = self.disturbed if len(self.asked) == 1 else 1.0
        found = [self.times[0], *([slower * us for us in times] for times in self.times[1:])]
        return tuple(Profile(CASE.graph, dict(zip("abcy", times, strict=True))) for times in found)

    @property
    def real(self) -> Bench:
        return cast("Bench", self)


def a_layout(schemes: Mapping[str, Scheme] = SCHEMES) -> Layout:
    """Of the two products the second one may not take the scheme of all operators."""
    names = {"a": ("float", "a"), "b": ("float", *schemes), "c": ("float", "a"), "y": ("float", *list(schemes)[1:])}
    choices = {RegionId(region): taken for region, taken in names.items()}
    return Layout.of(choices, schemes, list(borders(CASE.graph, REGIONS)), dict.fromkeys(choices, 0.25))


def a_builder(schemes: Mapping[str, Scheme] = SCHEMES) -> Builder:
    return Builder(CASE.graph, REGIONS, schemes, OP_TYPES, CASE.ranges)


def profiled(profiling: Profiling, schemes: Mapping[str, Scheme] = SCHEMES) -> Profiled:
    layout = a_layout(schemes)
    return profiled_prior(profiling.real, a_builder(schemes), CASE.graph, REGIONS, layout, (1.5, 9.0))


def prior_of(profiling: Profiling, schemes: Mapping[str, Scheme] = SCHEMES) -> LatencyPrior:
    return profiled(profiling, schemes).prior


STATIC = (MODEL_US, FLOAT_US, MIXED_US, ALL_US, LINEAR_US)


def test_the_float_a_mixed_and_the_uniform_candidates_are_profiled_within_the_budget() -> None:
    profiling = Profiling((*STATIC, DYNAMIC_US))
    prior_of(profiling, WITH_DYNAMIC)
    ((candidates, *budget),) = profiling.asked
    assert budget == [1.5, 9.0]
    expected: list[dict[str, str]] = [
        {},
        {"b": "a", "y": "b"},
        {"a": "a", "b": "a", "c": "a"},
        {"b": "b", "y": "b"},
        {"b": "d", "y": "d"},
    ]
    for (skeleton, constants), names in zip(candidates, expected, strict=True):
        assignment = {RegionId(region): scheme for region, scheme in names.items()}
        built = a_builder(WITH_DYNAMIC).build(assignment)
        assert skeleton == built.skeleton
        assert constants.keys() == built.constants.keys()
        assert constants


def test_regions_change_by_what_their_kernels_take_beyond_float_as_a_share_of_the_model() -> None:
    found = prior_of(Profiling((*STATIC, DYNAMIC_US)), WITH_DYNAMIC)
    assert found.base == pytest.approx(1.1)
    expected = np.array([[-0.05, 0, 0], [-0.2, -0.1, -0.05], [0, 0, 0], [0, -0.3, -0.05]])
    np.testing.assert_allclose(found.change, expected, atol=1e-12)


def test_what_is_in_no_region_is_a_share_of_the_users_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert profiled(Profiling(STATIC)).outside == {}
    monkeypatch.setattr("autoquant.api.profiling.outside_us", lambda found, *_: {"Sin": found.kernel_us["y"]})
    assert profiled(Profiling(STATIC)).outside == {"Sin": FLOAT_US[3] / sum(MODEL_US)}


def test_without_dynamic_schemes_there_are_two_ways() -> None:
    assert prior_of(Profiling(STATIC)).change.shape == (4, 2)


def test_what_the_mixed_candidate_takes_beyond_its_regions_is_shared_by_the_elements_that_cross() -> None:
    """It takes 0.74 of the model and all float 1.1; its regions change that by 0.2 and 0.3."""
    found = prior_of(Profiling(STATIC))
    sizes = np.array([16 + 2000, 4 * WIDE + 2000, 4 * WIDE + 2000])
    np.testing.assert_allclose(found.border, 0.14 * sizes / sizes.sum())


@pytest.mark.parametrize(("float_us", "is_refused"), [(37.5, False), (40.0, True)])
def test_a_float_candidate_much_slower_than_its_model_is_refused(float_us: float, is_refused: bool) -> None:
    profiling = Profiling((MODEL_US, (float_us,) * 4, *STATIC[2:]))
    if is_refused:
        with pytest.raises(ProfileError, match=r"other work disturbed the profiles, .* 1\.6 times as slow$"):
            prior_of(profiling)
    else:
        assert prior_of(profiling).base == 1.5


def test_profiles_that_were_disturbed_are_taken_again() -> None:
    profiling = Profiling(STATIC, disturbed=2.0)
    assert prior_of(profiling).base == pytest.approx(1.1)
    (_, *first), (_, *second) = profiling.asked
    assert first == [1.5, 9.0]
    assert second[0] == 1.5
    assert 4.5 < second[1] < 9.0


def test_profiles_that_were_disturbed_are_not_taken_again_without_time() -> None:
    profiling = Profiling(STATIC, disturbed=2.0)
    with pytest.raises(ProfileError, match=r"other work disturbed the profiles, .* 2\.2 times as slow$"):
        profiled_prior(profiling.real, a_builder(), CASE.graph, REGIONS, a_layout(), (1.5, 0.0))
    assert len(profiling.asked) == 1


def test_kernels_that_take_no_time_are_refused() -> None:
    with pytest.raises(ProfileError, match="too short for the profiler"):
        prior_of(Profiling(((0.0,) * 4, *STATIC[1:])))


def builder_without(error: Exception) -> Builder:
    def ranges(tensor: TensorName, tensor_format: TensorFormat, method: RangeMethod) -> CalibrationRange:
        raise error

    return Builder(CASE.graph, REGIONS, SCHEMES, OP_TYPES, ranges)


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), AssertionError("x")])
def test_a_candidate_that_cannot_be_built_has_no_profile(error: Exception) -> None:
    with pytest.raises(ProfileError, match=f"a candidate cannot be built: {type(error).__name__}: "):
        profiled_prior(Profiling(STATIC).real, builder_without(error), CASE.graph, REGIONS, a_layout(), (1.0, 1.0))
