"""What is learned of latencies is in test_latency.py."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.study.latency_design import LatencyDesign
from tests.unit.study.layouts import a_layout, every_assignment

LAYOUT = a_layout(4, share_of_edges=0.0)
EVERY = every_assignment(LAYOUT)


@given(st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=12), min_size=1, max_size=5))
def test_rows_that_are_known_are_the_same_as_if_they_were_new(calls: list[list[int]]) -> None:
    design = LatencyDesign(LAYOUT)
    for numbers in calls:
        known, fresh = design.know(EVERY[numbers]), LatencyDesign(LAYOUT).know(EVERY[numbers])
        assert known.means == pytest.approx(fresh.means)
        assert known.design == pytest.approx(fresh.design)
        assert known.products == pytest.approx(known.design @ known.design.T)


def test_the_products_of_further_rows_are_with_those_that_are_known() -> None:
    design = LatencyDesign(LAYOUT)
    assert design.further(EVERY).products.shape == (len(EVERY), 0)
    known, further = design.know(EVERY[:5]), design.further(EVERY[5:])
    assert further.products == pytest.approx(further.design @ known.design.T)


def test_coefficients_of_weights_are_what_ratios_are_the_sums_of() -> None:
    design, weights = (
        LatencyDesign(LAYOUT),
        np.random.default_rng(0).standard_normal((3, LatencyDesign(LAYOUT).n_weights)),
    )
    rows, found = design.further(EVERY), design.coefficients(weights)
    constant, own, border = np.split(found, [1, 1 + LAYOUT.allowed.size], axis=1)
    by_region = own.reshape(3, *LAYOUT.allowed.shape)[:, np.arange(4), EVERY].sum(axis=2)
    expected = rows.means + weights @ rows.design.T
    assert constant + by_region + border @ LAYOUT.unlike(EVERY).T == pytest.approx(expected)
    assert np.array_equal(design.coefficients(weights[1:2]), found[1:2]), "to the last bit, however many there are"
