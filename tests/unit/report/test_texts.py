import math
from dataclasses import replace

import pytest

from autoquant.report.texts import snr_text, worst_text
from tests.records import a_float_member, a_member


@pytest.mark.parametrize(
    ("worst_db", "text"),
    [(41.96, "42.0 dB"), (-3.25, "-3.2 dB"), (0.0, "0.0 dB"), (math.inf, "equal"), (-math.inf, "no signal")],
)
def test_decibels_are_told_with_one_digit_and_infinite_ones_in_words(worst_db: float, text: str) -> None:
    assert worst_text(worst_db) == text
    assert snr_text(a_member(snr_db=worst_db)) == text


def test_the_worst_output_of_a_member_counts() -> None:
    member = a_member()
    assert member.quality is not None
    quality = replace(member.quality, per_output={"a": 50.0, "b": 30.0, "c": math.inf})
    assert snr_text(replace(member, quality=quality)) == "30.0 dB"


def test_the_float_model_is_the_reference() -> None:
    assert snr_text(a_float_member()) == "reference"
