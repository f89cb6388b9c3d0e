from autoquant.rewrites.piecewise import split_prelu
from experiments.bench.slopes import SLOPES, chain, measure_slopes, render_slopes
from tests.models import op_types


def test_both_kinds_of_slopes_are_written_in_their_own_way() -> None:
    written = [set(op_types(split_prelu(chain((64, 16, 16), bounds)))) for bounds in SLOPES.values()]
    assert written == [{"Mul", "Max"}, {"Max", "Min", "Mul", "Add"}]


def test_a_chain_is_measured_beside_what_is_made_of_it() -> None:
    alone, behind = (measure_slopes((16, 5, 5), SLOPES["mixed"], 2.0, has_convs=each) for each in (False, True))
    assert alone["others"]["snr_db"] == float("inf")
    assert behind["convs"]["snr_db"] > 100
    assert alone.keys() < behind.keys()
    parts = {name: {"shape": (16, 5, 5), "slopes": "mixed", **found} for name, found in (("a", alone), ("b", behind))}
    lines = render_slopes({"parts": parts}).splitlines()
    assert [line[:22] for line in lines[2:]] == ["| 16x5x5 | mixed |  | ", "| 16x5x5 | mixed | Con"]
