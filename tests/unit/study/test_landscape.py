import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.study.landscape import Landscape
from autoquant.study.layout import Codes
from autoquant.study.noise import FLOAT_NOISE
from tests.unit.study.layouts import WITH_DYNAMIC, a_landscape, a_layout

LAYOUT = a_layout(5, schemes=WITH_DYNAMIC)
LANDSCAPE = a_landscape(LAYOUT, n_outputs=3, n_targets=2)
INTEGER = (1, 2)
"""Codes of schemes that read and write integers; those of the dynamic one and of float do not."""

assignments = st.lists(
    st.tuples(*(st.sampled_from(np.flatnonzero(row).tolist()) for row in LAYOUT.allowed)), min_size=1, max_size=4
)


def ratio(landscape: Landscape, target: int, codes: Codes) -> float:
    own = sum(landscape.own[target, region, code] for region, code in enumerate(codes))
    crossed = [e for e, (a, b) in enumerate(LAYOUT.edges) if (codes[a] in INTEGER) != (codes[b] in INTEGER)]
    return float(landscape.constant[target] + own + sum(landscape.border[target, e] for e in crossed))


@given(assignments)
def test_noise_powers_of_regions_add_up_to_that_of_an_output(chosen: list[tuple[int, ...]]) -> None:
    found = LANDSCAPE.noise_of(np.array(chosen))
    expected = [
        [FLOAT_NOISE + sum(LANDSCAPE.noise[o, r, code] for r, code in enumerate(codes)) for o in range(3)]
        for codes in chosen
    ]
    assert found.shape == (len(chosen), 3)
    np.testing.assert_allclose(found, expected)


@given(assignments)
def test_a_ratio_is_the_constant_with_what_regions_and_unlike_borders_change(chosen: list[tuple[int, ...]]) -> None:
    found = LANDSCAPE.ratios_of(np.array(chosen))
    assert found.shape == (len(chosen), 2)
    expected = [[ratio(LANDSCAPE, target, np.array(codes)) for target in (0, 1)] for codes in chosen]
    np.testing.assert_allclose(found, expected)


def test_all_float_has_the_noise_of_a_float_model_and_the_constant() -> None:
    codes = np.zeros((1, 5), np.int64)
    assert LANDSCAPE.noise_of(codes).tolist() == [[FLOAT_NOISE] * 3]
    assert LANDSCAPE.ratios_of(codes).tolist() == [LANDSCAPE.constant.tolist()]


def test_regions_that_do_not_touch_pay_no_border() -> None:
    layout = a_layout(1)
    landscape = a_landscape(layout)
    assert landscape.ratios_of(np.array([[2]])).tolist() == [[1 + landscape.own[0, 0, 2]]]


@given(assignments, st.floats(0, 1))
def test_the_weighted_terms_are_those_of_the_weighted_ratio(chosen: list[tuple[int, ...]], share: float) -> None:
    weights, codes = np.array([share, 1 - share]), np.array(chosen)
    own, border = LANDSCAPE.weighted(weights)
    mean = Landscape(LAYOUT, LANDSCAPE.noise, np.ones(1), own[None], border[None])
    expected = 1 + (LANDSCAPE.ratios_of(codes) - LANDSCAPE.constant) @ weights
    assert mean.ratios_of(codes)[:, 0] == pytest.approx(expected)
