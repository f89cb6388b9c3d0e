import math

import pytest

from autoquant.domain.target import Target
from autoquant.report.prices import DecibelPrice, decibel_prices
from tests.records import a_front, a_member


def test_a_decibel_costs_what_lies_between_neighbours() -> None:
    front = a_front(
        a_member("m1", ratio=0.5, snr_db=30.0),
        a_member("m2", ratio=0.6, snr_db=40.0),
        a_member("m3", ratio=0.7, snr_db=42.0),
    )

    prices = decibel_prices(front)

    assert prices == {
        "m2": DecibelPrice(pytest.approx(100.0), "m1"),  # type: ignore[arg-type]
        "m3": DecibelPrice(pytest.approx(500.0), "m2"),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("snr_db", [30.0, 29.0, math.inf])
def test_what_gains_no_decibels_or_infinitely_many_has_no_price(snr_db: float) -> None:
    assert decibel_prices(a_front(a_member("m1", snr_db=30.0), a_member("m2", ratio=0.6, snr_db=snr_db))) == {}


def test_a_front_of_float_alone_has_no_prices() -> None:
    assert decibel_prices(a_front()) == {}


def test_neighbours_are_those_on_the_first_target() -> None:
    targets = (Target("cpu", 1), Target("cpu", 2))
    front = a_front(
        a_member("m2", ratio=0.6, snr_db=40.0, targets=targets),
        a_member("m1", ratio=0.5, snr_db=30.0, targets=targets),
        targets=targets,
    )

    assert list(decibel_prices(front)) == ["m2"]
