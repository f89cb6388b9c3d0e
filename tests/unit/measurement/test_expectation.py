from dataclasses import replace

import numpy as np
import pytest

from autoquant.measurement.expectation import KernelTimes, expected_latency

EDGES = np.array([[0, 1], [1, 2]])
TIMES = KernelTimes(
    model_us=1000.0,
    float_us=np.array([500.0, 300.0, 100.0]),
    all_us=np.array([200.0, 100.0, 110.0]),
    linear_us=np.array([250.0, 300.0, 100.0]),
    mixed_us=np.array([500.0, 230.0, 190.0]),
    mixed_kinds=np.array([0, 1, 0]),
)


def test_a_region_changes_by_the_difference_of_its_kernels() -> None:
    prior = expected_latency(TIMES, EDGES, [1000, 1000])
    assert prior.base == pytest.approx(0.9)
    assert prior.change == pytest.approx(np.array([[-0.3, -0.25], [-0.2, 0.0], [0.01, 0.0]]))


def test_changes_sum_to_the_uniform_candidates() -> None:
    prior = expected_latency(TIMES, EDGES, [1000, 1000])
    assert prior.base + prior.change[:, 0].sum() == pytest.approx(TIMES.all_us.sum() / TIMES.model_us)
    assert prior.base + prior.change[:, 1].sum() == pytest.approx(TIMES.linear_us.sum() / TIMES.model_us)


def test_borders_make_up_for_what_the_mixed_candidate_takes_beyond_its_regions() -> None:
    prior = expected_latency(TIMES, EDGES, [1000, 7000])
    assert prior.border.sum() == pytest.approx(0.92 - (0.9 - 0.2))
    assert prior.border[1] == pytest.approx(3 * prior.border[0])


def test_borders_that_the_mixed_candidate_lacks_cost_as_much_per_element() -> None:
    times = replace(TIMES, mixed_us=np.array([500.0, 300.0, 130.0]), mixed_kinds=np.array([0, 0, 1]))
    prior = expected_latency(times, EDGES, [8000, 3000])
    assert prior.border == pytest.approx(np.array([0.04, 0.02]))


def test_borders_are_free_where_the_mixed_candidate_is_no_slower() -> None:
    prior = expected_latency(replace(TIMES, mixed_us=np.array([450.0, 90.0, 90.0])), EDGES, [1000, 1000])
    assert prior.border.tolist() == [0, 0]
    assert (prior.border_spread > 0).all()


def test_a_model_of_one_region_has_no_borders() -> None:
    times = KernelTimes(
        model_us=10.0,
        float_us=np.array([10.0]),
        all_us=np.array([5.0]),
        linear_us=np.array([6.0]),
        mixed_us=np.array([10.0]),
        mixed_kinds=np.array([0]),
    )
    prior = expected_latency(times, np.zeros((0, 2), dtype=np.int64), [])
    assert prior.border.shape == (0,)
    assert prior.change == pytest.approx(np.array([[-0.5, -0.4]]))


def test_what_takes_longer_is_less_sure_and_nothing_is_certain() -> None:
    spread = expected_latency(TIMES, EDGES, [1000, 1000]).spread
    assert spread[0, 0] > spread[1, 0] > spread[2, 0] > 0


def test_a_region_with_dynamic_ranges_changes_by_its_own_kernels() -> None:
    times = replace(TIMES, dynamic_us=np.array([300.0, 300.0, 60.0]))
    prior = expected_latency(times, EDGES, [1000, 1000])
    assert prior.change[:, 2] == pytest.approx(np.array([-0.2, 0.0, -0.04]))
    assert prior.border == pytest.approx(expected_latency(TIMES, EDGES, [1000, 1000]).border)
