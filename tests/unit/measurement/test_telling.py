import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoquant.measurement.telling import TellingSamples

N_SAMPLES, N_OUTPUTS = 8, 2
Floats = npt.NDArray[np.float64]


def taught(*noises: Floats) -> TellingSamples:
    telling = TellingSamples(N_SAMPLES, N_OUTPUTS)
    for noise in noises:
        telling.learn(noise)
    return telling


def noise_in(*samples: int, scale: float = 1.0) -> Floats:
    """Little noise everywhere and much in some samples."""
    noise = np.full((N_SAMPLES, N_OUTPUTS), 0.01 * scale)
    noise[list(samples)] = scale
    return noise


def test_samples_keep_their_order_until_enough_candidates_were_seen() -> None:
    telling = taught(noise_in(5), noise_in(5), noise_in(5))
    assert not telling.is_known
    assert telling.order == list(range(N_SAMPLES))
    np.testing.assert_allclose(telling.shares(2), 0.25)


def test_samples_with_the_most_noise_come_first() -> None:
    telling = taught(noise_in(5, 2), noise_in(5, scale=1e6), noise_in(2, 5), noise_in(5))
    assert telling.is_known
    assert telling.order[:2] == [5, 2]
    assert sorted(telling.order) == list(range(N_SAMPLES))


def test_a_sample_that_tells_of_one_output_alone_counts() -> None:
    noise = np.full((N_SAMPLES, N_OUTPUTS), 0.01)
    noise[3, 1] = 1.0
    telling = taught(*[noise] * 4)
    assert telling.order[0] == 3
    few, many = telling.shares(1)
    assert few < 0.2 < 0.9 < many


def test_the_noise_over_all_samples_is_estimated_from_the_first_ones() -> None:
    telling = taught(*[noise_in(5, 2)] * 4)
    unseen = noise_in(5, 2, scale=37.0)
    part = unseen[telling.order[:2]].sum(axis=0)
    np.testing.assert_allclose(part / telling.shares(2), unseen.sum(axis=0))


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_candidates_without_noise_or_with_broken_outputs_teach_nothing(value: float) -> None:
    telling = taught(*[np.full((N_SAMPLES, N_OUTPUTS), value)] * 9)
    assert not telling.is_known


def test_an_output_without_noise_is_spread_evenly() -> None:
    noise = noise_in(4)
    noise[:, 1] = 0
    np.testing.assert_allclose(taught(*[noise] * 4).shares(2)[1], 0.25)


def test_what_is_known_does_not_change_any_more() -> None:
    telling = taught(*[noise_in(1)] * 4)
    order = telling.order
    telling.learn(noise_in(6))
    assert telling.order == order


@given(st.lists(hnp.arrays(np.float64, (N_SAMPLES, N_OUTPUTS), elements=st.floats(1e-3, 1e3)), min_size=4, max_size=4))
def test_shares_grow_to_one(noises: list[Floats]) -> None:
    telling = taught(*noises)
    shares = np.array([telling.shares(n) for n in range(N_SAMPLES + 1)])
    assert (np.diff(shares, axis=0) > 0).all()
    np.testing.assert_allclose(shares[0], 0)
    np.testing.assert_allclose(shares[-1], 1)


def test_the_error_of_a_few_samples_is_how_candidates_differ_in_them() -> None:
    alike, unlike = taught(*[noise_in(5, 2)] * 4), taught(noise_in(5, 2), noise_in(1), noise_in(5), noise_in(7))
    assert alike.error_db(2, 0) == pytest.approx(0, abs=1e-9)
    assert unlike.error_db(1, 0) > unlike.error_db(4, 0) > unlike.error_db(N_SAMPLES, 0)
    assert unlike.error_db(N_SAMPLES, 0) == pytest.approx(0, abs=1e-9)


def test_outputs_without_noise_do_not_hide_the_error_of_the_others() -> None:
    unlike = [noise_in(5, 2), noise_in(1), noise_in(5), noise_in(7)]
    without = [noise.copy() for noise in unlike]
    for noise in without:
        noise[:, 1:] = 0
    assert taught(*without).error_db(2, 0) == pytest.approx(taught(*unlike).error_db(2, 0))


def test_the_error_of_an_output_is_not_that_of_the_others() -> None:
    noises = [noise_in(5, 2), noise_in(1), noise_in(5), noise_in(7)]
    for noise in noises:
        noise[:, 1] = 1.0
    telling = taught(*noises)
    assert telling.error_db(2, 0) > 1
    assert telling.error_db(2, 1) == pytest.approx(0, abs=1e-9)


def test_the_error_is_infinite_until_enough_candidates_were_seen() -> None:
    assert taught(noise_in(5)).error_db(4, 0) == np.inf


def test_candidates_whose_noise_lies_where_that_of_the_others_does_do_not_scatter() -> None:
    telling = taught(*[noise_in(5, 2)] * 4)
    noise = noise_in(5, 2, scale=37.0)[telling.order]
    assert telling.scatter_db(noise[:, 0], 0) == pytest.approx(0, abs=1e-9)
    assert telling.scatter_db(noise_in(7)[telling.order][:, 0], 0) > 3


def test_the_scatter_is_how_much_the_noise_over_as_many_other_samples_differs() -> None:
    rng = np.random.default_rng(0)
    telling = TellingSamples(64, 1)
    assert telling.scatter_db(rng.gamma(0.5, size=64), 0) == 0, "nothing is known of the others"
    for _ in range(4):
        telling.learn(np.ones((64, 1)))
    drawn = rng.gamma(0.5, size=(300, 64))
    found = [telling.scatter_db(noise, 0) for noise in drawn]
    assert np.mean(found) == pytest.approx(np.std(10 * np.log10(drawn.sum(axis=1))), rel=0.1)


@pytest.mark.parametrize("freedom", [1, 16])
@pytest.mark.parametrize("heaviest", [1.0, 30.0])
def test_it_is_also_how_much_the_noise_of_one_sample_differs_from_candidate_to_candidate(
    freedom: int, heaviest: float
) -> None:
    rng = np.random.default_rng(0)
    levels = np.append(heaviest, np.ones(15))[:, np.newaxis]
    found = []
    for _ in range(60):
        telling = TellingSamples(16, 1)
        for _ in range(4):
            telling.learn(levels * rng.chisquare(freedom, size=(16, 1)))
        lucky = 0.01 * levels[telling.order, 0]  # the same in all of them
        found.append(telling.scatter_db(lucky, 0))
    drawn = (levels.T * rng.chisquare(freedom, size=(4000, 16))).sum(axis=1)
    assert np.median(found) == pytest.approx(np.std(10 * np.log10(drawn)), rel=0.35)


@pytest.mark.parametrize("noise", [[1.0], [0.0, 0.0], [1.0, np.inf], [1.0, np.nan]])
def test_nothing_is_said_of_the_scatter_of_one_sample_and_of_broken_outputs(noise: list[float]) -> None:
    assert taught(*[noise_in(5)] * 4).scatter_db(np.array(noise), 0) == 0


def test_samples_of_unlike_sizes_take_turns_the_most_telling_of_each_third_first() -> None:
    telling = TellingSamples(N_SAMPLES, N_OUTPUTS, sizes=[10, 20, 30, 40, 50, 60, 70, 80])
    assert telling.order == [3, 0, 6, 4, 1, 7, 5, 2]
    by_sample = noise_in(7, 6, 2)
    by_sample[7] *= 2
    for _ in range(4):
        telling.learn(by_sample[telling.order])
    assert telling.order == [3, 2, 7, 4, 0, 6, 5, 1]
    part = by_sample[telling.order[:3]].sum(axis=0)
    np.testing.assert_allclose(part / telling.shares(3), by_sample.sum(axis=0))


def test_equal_sizes_are_in_one_third() -> None:
    one_is_large = TellingSamples(N_SAMPLES, N_OUTPUTS, sizes=[10] * 7 + [20])
    for _ in range(4):
        one_is_large.learn(noise_in(5, 2)[one_is_large.order])
    assert one_is_large.order[:3] == [2, 7, 5]


@pytest.mark.parametrize("sizes", [[10] * 8, [*range(100, 108)], [10] * 8 + [99]], ids=["equal", "nearly", "later"])
def test_samples_of_like_sizes_are_ordered_by_what_they_tell_alone(sizes: list[int]) -> None:
    telling = TellingSamples(N_SAMPLES, N_OUTPUTS, sizes=sizes)
    assert telling.order == list(range(N_SAMPLES))
    for _ in range(4):
        telling.learn(noise_in(5, 2))
    assert telling.order[:2] == [2, 5]
