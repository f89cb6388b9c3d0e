from autoquant.model.piecewise import split_prelu
from experiments.bench.slopes import SLOPES, chain, measure_slopes, render_slopes
from tests.models import op_types


def test_both_kinds_of_slopes_are_written_in_their_own_way() -> None:
    written = [set(op_types(split_prelu(chain((64, 16, 16), bounds)))) for bounds in SLOPES.values()]
    assert written == [{"Mul", "Max"}, {"Max", "Min", "Mul", "Add"}]


def test_a_chain_is_measured_beside_what_is_made_of_it() -> None:
    found = measure_slopes((8, 5, 5), SLOPES["mixed"], 2.0)
    assert found["snr_db"] == float("inf")
    assert found["ratio"] > 0
    lines = render_slopes({"parts": {"a": {"shape": (8, 5, 5), "slopes": "mixed", **found}}}).splitlines()
    assert [line[:16] for line in lines[2:]] == ["| 8x5x5 | mixed "]
