import pytest

from tests.records import a_region_cost


def test_what_saves_more_or_makes_less_noise_is_the_better_bargain() -> None:
    usual = a_region_cost(change_us=-100.0, snr_db=40.0)

    assert a_region_cost(change_us=-200.0, snr_db=40.0).saved_per_noise("cpu-1t") > usual.saved_per_noise("cpu-1t")
    assert a_region_cost(change_us=-100.0, snr_db=50.0).saved_per_noise("cpu-1t") == pytest.approx(
        10 * usual.saved_per_noise("cpu-1t")
    )


def test_what_saves_nothing_is_no_bargain_however_quiet() -> None:
    assert a_region_cost(change_us=5.0, snr_db=90.0).saved_per_noise("cpu-1t") < 0
