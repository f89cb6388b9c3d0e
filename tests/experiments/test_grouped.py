from experiments.bench.grouped import Case, measure_grouped, render_grouped


def test_every_width_is_measured_and_one_of_them_is_chosen() -> None:
    case = Case(32, 8, 6)
    found = measure_grouped(case, 2.0)
    assert list(found["ratios"]) == ["8", "16", "32"]
    assert all(each["ratio"] > 0 for each in found["ratios"].values())
    assert found["chosen"] == "32"
    text = render_grouped({"parts": {"small": {"model": str(case), **found}}})
    assert text.count("| 32 channels of 6 x 6 in groups of 8 |") == 3
    assert text.count("| yes |") == 1
