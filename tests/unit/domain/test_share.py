import pytest

from autoquant.domain.share import wilson_interval


def test_wilson_as_published() -> None:
    # Brown, Cai and DasGupta, "Interval Estimation for a Binomial Proportion", 2001: n = 10, none and half are right
    assert wilson_interval(0.0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson_interval(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_what_was_the_same_in_all_samples_may_not_be_so_in_others(share: float) -> None:
    low, high = wilson_interval(share, 16)
    assert 0 <= low <= high <= 1
    assert high - low > 0.1
