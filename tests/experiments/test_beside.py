from experiments.bench.beside import ratio_text


def test_a_ratio_is_told_with_its_interval_if_it_has_one() -> None:
    assert ratio_text(0.5, 0.4, 0.625) == "0.50 (0.40 to 0.62)"
    assert ratio_text(0.5, 0.4, 0.625, digits=3) == "0.500 (0.400 to 0.625)"
    assert ratio_text(0.5, None, None) == "0.50 (no interval)"
