from threadpoolctl import threadpool_limits

from experiments.believe.subjects import subject_of
from experiments.rounding import measure_rounding, render_rounding


def test_both_roundings_of_each_recipe_are_measured() -> None:
    with threadpool_limits(limits=1):
        found = measure_rounding(subject_of("example:digits"), n_mixes=3, n_samples=4)
    for place in ("output", "inner"):
        alone = found["uniform"]["weights alone, tensor"]
        assert alone["gptq"][place] > alone["nearest"][place] > 15
    assert [mix["share"] for mix in found["mixes"]] == [0.1, 0.25, 0.5]
    lines = render_rounding({"parts": {"digits": {"found": found}}}).splitlines()[2:]
    assert [line[:18] for line in lines] == ["| digits | output ", "| digits | inner |"]
