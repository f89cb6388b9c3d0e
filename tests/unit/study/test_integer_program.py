import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy.optimize import milp

from autoquant.domain.region import RegionId
from autoquant.domain.scheme import Scheme
from autoquant.study.integer_program import fastest_within
from autoquant.study.landscape import Landscape
from autoquant.study.layout import Codes, Layout
from tests.unit.study.layouts import SCHEMES, WITH_DYNAMIC, a_landscape, a_layout, every_assignment

ONE = np.ones(1)


@pytest.mark.parametrize("schemes", [SCHEMES, WITH_DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("limit", [1e-5, 1e-4, 1e-3, 1.0])
def test_the_integer_program_finds_the_fastest_within_a_noise_power(
    schemes: Mapping[str, Scheme], seed: int, n_outputs: int, limit: float
) -> None:
    layout = a_layout(seed=seed, schemes=schemes)
    landscape = a_landscape(layout, n_outputs=n_outputs, seed=seed)
    every = every_assignment(layout)
    allowed = every[(landscape.noise_of(every) <= limit).all(axis=1)]
    solved = fastest_within(landscape, ONE, limit, seconds=600)
    found = solved.codes
    assert solved.is_proven
    assert (landscape.noise_of(found[None]) <= limit * (1 + 1e-6)).all()
    assert np.isclose(landscape.ratios_of(found[None])[0, 0], landscape.ratios_of(allowed)[:, 0].min())


def test_what_the_solver_prints_is_not_on_standard_output(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def chatty(*arguments: Any, **options: Any) -> Any:
        os.write(1, b"of the solver")
        return milp(*arguments, **options)

    monkeypatch.setattr("autoquant.study.integer_program.milp", chatty)
    layout = a_layout()
    fastest_within(a_landscape(layout), ONE, 1e-3, seconds=600)
    os.write(1, b"of the command")
    assert capfd.readouterr() == ("of the command", "of the solver")


@pytest.mark.parametrize("seed", range(3))
def test_the_integer_program_finds_the_next_best_where_the_best_are_excluded(seed: int) -> None:
    layout = a_layout(seed=seed)
    landscape = a_landscape(layout, seed=seed)
    every = every_assignment(layout)
    allowed = every[landscape.noise_of(every)[:, 0] <= 1e-3]
    ratios = np.sort(landscape.ratios_of(allowed)[:, 0])
    excluded: list[Codes] = []
    for ratio in ratios[:4]:
        excluded.append(fastest_within(landscape, ONE, 1e-3, seconds=600, excluded=excluded).codes)
        assert np.isclose(landscape.ratios_of(excluded[-1][None])[0, 0], ratio)
    assert len(np.unique(excluded, axis=0)) == 4


@pytest.mark.parametrize("seed", range(3))
def test_what_is_excluded_excludes_nothing_that_quantizes_more(seed: int) -> None:
    layout = a_layout(seed=seed)
    landscape = a_landscape(layout, seed=seed)
    best = fastest_within(landscape, ONE, 1e-3, seconds=600).codes
    assert np.count_nonzero(best) > 1
    fewer = np.where(np.arange(len(best)) == np.flatnonzero(best)[0], 0, best)
    assert (fastest_within(landscape, ONE, 1e-3, seconds=600, excluded=[fewer]).codes == best).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.3, 0.7)])
def test_several_targets_count_by_their_weights(weights: tuple[float, float], seed: int) -> None:
    layout = a_layout(seed=seed)
    landscape = a_landscape(layout, n_targets=2, seed=seed)
    every = every_assignment(layout)
    within = every[landscape.noise_of(every)[:, 0] <= 1e-4]
    found = fastest_within(landscape, np.array(weights), 1e-4, seconds=600).codes
    assert landscape.ratios_of(found[None]) @ weights == pytest.approx((landscape.ratios_of(within) @ weights).min())


def test_borders_that_save_latency_are_sought() -> None:
    layout = a_layout(4)
    free = a_landscape(layout)
    landscape = Landscape(layout, free.noise, free.constant, np.zeros_like(free.own), -np.ones_like(free.border))
    found = fastest_within(landscape, ONE, 1.0, seconds=600).codes
    assert landscape.ratios_of(found[None])[0, 0] == landscape.ratios_of(every_assignment(layout)).min() < 1


def test_regions_without_borders_each_take_what_is_fastest() -> None:
    choices = {RegionId(name): ("float", "a", "b") for name in "pqr"}
    layout = Layout.of(choices, SCHEMES, [], dict.fromkeys(choices, 0.5))
    landscape = a_landscape(layout)
    assert fastest_within(landscape, ONE, 1.0, seconds=600).codes.tolist() == landscape.own[0].argmin(axis=1).tolist()


@pytest.mark.parametrize("limit", [1e-9, 1e-20, 1e-30])
def test_no_noise_at_all_leaves_all_in_float(limit: float) -> None:
    found = fastest_within(a_landscape(a_layout()), ONE, limit, seconds=600)
    assert not found.codes.any()
    assert found.is_proven


def test_without_time_all_stays_float_and_nothing_is_proven() -> None:
    layout = a_layout(24, share_of_edges=0.5)
    found = fastest_within(a_landscape(layout), ONE, 1e-4, seconds=0.0)
    assert found.codes.tolist() == [0] * 24
    assert not found.is_proven


def test_where_nothing_may_be_quantized_the_integer_program_leaves_all_in_float() -> None:
    layout = Layout.of({RegionId("r"): ("float",)}, SCHEMES, [], {RegionId("r"): 1.0})
    found = fastest_within(a_landscape(layout), ONE, 1e-3, seconds=600)
    assert found.codes.tolist() == [0]
    assert found.is_proven
