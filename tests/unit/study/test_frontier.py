import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from autoquant.domain.scheme import Scheme
from autoquant.study.frontier import Frontier
from autoquant.study.integer_program import fastest_within
from autoquant.study.labelling import Labelling
from autoquant.study.layout import Codes, Layout
from autoquant.study.size import SizeTable
from autoquant.study.steering import SizeTerm
from tests.unit.study.layouts import SCHEMES, WITH_DYNAMIC, a_landscape, a_layout, every_assignment

ONE = np.ones(1)


@pytest.mark.parametrize("schemes", [SCHEMES, WITH_DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", range(5))
def test_the_frontier_holds_what_is_cheapest_at_any_price(schemes: Mapping[str, Scheme], seed: int) -> None:
    layout = a_layout(seed=seed, schemes=schemes)
    landscape = a_landscape(layout, seed=seed)
    every, found = every_assignment(layout), Frontier(layout).solve([landscape], ONE)
    for price in (0.1, 10.0, 1e3, 1e5):
        costs = [landscape.ratios_of(c)[:, 0] + price * landscape.noise_of(c)[:, 0] for c in (every, found)]
        cheapest = every[int(np.argmin(costs[0]))]
        noise = landscape.noise_of(cheapest[None])[0, 0]
        assert costs[1].min() <= costs[0].min() * 1.02 or noise in landscape.noise_of(found)


@pytest.mark.parametrize("seed", range(3))
def test_with_several_outputs_the_frontier_is_near_the_exact_one(seed: int) -> None:
    layout = a_layout(8, seed=seed)
    landscape = a_landscape(layout, n_outputs=3, seed=seed)
    every, found = every_assignment(layout), Frontier(layout).solve([landscape], ONE)
    for limit in (1e-4, 1e-3, 1e-2):
        best = [
            landscape.ratios_of(codes)[landscape.noise_of(codes).max(axis=1) <= limit, 0].min(initial=1.0)
            for codes in (every, found)
        ]
        assert best[1] <= best[0] + 0.1


def test_dynamic_schemes_alone_pay_no_border() -> None:
    layout = a_layout(schemes={"other": WITH_DYNAMIC["d"], "d": WITH_DYNAMIC["d"]})
    landscape = a_landscape(layout)
    fastest = landscape.ratios_of(Frontier(layout).solve([landscape], ONE)).min()
    assert fastest == pytest.approx(1 + np.where(layout.allowed, landscape.own[0], 0).min(axis=1).sum())


def test_the_weights_of_the_targets_decide() -> None:
    layout = a_layout(seed=1)
    landscape = a_landscape(layout, n_targets=2, seed=1)
    for target in (0, 1):
        weights = np.eye(2)[target]
        found = Frontier(layout).solve([landscape], weights)
        fastest = landscape.ratios_of(every_assignment(layout))[:, target].min()
        assert np.isclose(landscape.ratios_of(found)[:, target].min(), fastest)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("demand_db", [20.0, 35.0, 50.0])
def test_where_all_regions_touch_the_frontier_holds_its_hull_too(seed: int, demand_db: float) -> None:
    layout = a_layout(16, share_of_edges=1.0, seed=seed)
    assert not Labelling(16, layout.edges).is_narrow
    landscape = a_landscape(layout, seed=seed)
    found = Frontier(layout).solve([landscape], ONE)
    assert layout.allowed[np.arange(16), found].all()
    noise, ratios = landscape.noise_of(found)[:, 0], landscape.ratios_of(found)[:, 0]
    best = fastest_within(landscape, ONE, 10 ** (-demand_db / 10), seconds=600)
    assert best.is_proven
    least_noise, least_ratio = landscape.noise_of(best.codes[None])[0, 0], landscape.ratios_of(best.codes[None])[0, 0]
    for price in (1e-2, 1.0, 1e2, 1e4):
        assert (ratios + price * noise).min() <= (least_ratio + price * least_noise) * 1.02 + 1e-6


def test_where_all_regions_touch_schemes_that_are_left_out_are_not_proposed() -> None:
    layout = a_layout(16, share_of_edges=1.0)
    landscape, frontier = a_landscape(layout), Frontier(layout)
    allowed = layout.allowed.copy()
    allowed[3:, 1] = False
    frontier = frontier.within(allowed)
    found = frontier.solve([landscape], ONE)
    assert found.any()
    assert not (found[:, 3:] == 1).any()


@pytest.mark.parametrize(("n_regions", "share_of_edges"), [(6, 0.2), (16, 1.0)])
def test_a_region_that_may_not_stay_float_never_does(n_regions: int, share_of_edges: float) -> None:
    layout = a_layout(n_regions, share_of_edges=share_of_edges)
    allowed = layout.allowed.copy()
    allowed[2] = [False, False, True]
    found = Frontier(layout).within(allowed).solve([a_landscape(layout)], ONE)
    assert (found[:, 2] == 2).all()
    assert len(found) > 1


def test_nothing_but_allowed_schemes_is_proposed() -> None:
    layout = a_layout()
    found = Frontier(layout).solve([a_landscape(layout)], ONE)
    rows = np.arange(len(layout.regions))
    assert all(layout.allowed[rows, codes].all() for codes in found)
    assert len({codes.tobytes() for codes in found}) == len(found)
    assert any(len(set(pair)) == 2 for pair in itertools.pairwise(map(bytes, found)))


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_several_at_once_are_as_many_one_by_one(n_outputs: int) -> None:
    layout = a_layout()
    landscapes = [a_landscape(layout, n_outputs=n_outputs, seed=seed) for seed in range(3)]
    frontier = Frontier(layout)
    single = np.concatenate([frontier.solve([landscape], ONE) for landscape in landscapes])
    np.testing.assert_array_equal(frontier.solve(landscapes, ONE), np.unique(single, axis=0))


def a_size(layout: Layout, *prices: float) -> SizeTerm:
    shares = np.random.default_rng(7).dirichlet(np.ones(len(layout.regions)))
    own = -0.7 * shares[:, None] * np.array([0.0, 1.0, 1.02])
    return SizeTerm(SizeTable(1.0, own, np.full(len(layout.edges), 1e-3)), prices)


def test_each_price_of_the_size_has_a_lower_hull_of_its_own() -> None:
    layout = a_layout(seed=2)
    landscape = a_landscape(layout, n_outputs=2, seed=2)
    both = Frontier(layout).solve([landscape], ONE, a_size(layout, 0.0, 10.0))
    for price in (0.0, 10.0):
        alone = Frontier(layout).solve([landscape], ONE, a_size(layout, price))
        assert {codes.tobytes() for codes in alone} <= {codes.tobytes() for codes in both}
    free = Frontier(layout).solve([landscape], ONE)
    table = a_size(layout, 0.0).table
    assert {codes.tobytes() for codes in free} <= {codes.tobytes() for codes in both}
    limit = 0.5
    fastest = {
        name: landscape.ratios_of(codes)[table.of(codes, layout) <= limit].min(initial=9.0)
        for name, codes in (("free", free), ("both", both))
    }
    assert fastest["both"] <= fastest["free"]


def test_regions_that_all_touch_pay_for_their_size_too() -> None:
    layout = a_layout(16, share_of_edges=1.0)
    landscape, table = a_landscape(layout), a_size(layout).table
    free, paid = (Frontier(layout).solve([landscape], ONE, a_size(layout, price)) for price in (0.0, 10.0))

    def cheapest(codes: Codes) -> float:
        return float((landscape.ratios_of(codes)[:, 0] + 10.0 * table.of(codes, layout)).min())

    assert cheapest(paid) < cheapest(free)
