import pytest

from autoquant.rewrites.lines import lay_lines
from experiments.bench.rows import SHAPES, Shape, chain, measure_rows, render_rows
from tests.models import op_types


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_convolution_of_a_chain_is_laid_out(shape: Shape) -> None:
    assert op_types(lay_lines(chain(shape))) == ["Unsqueeze", *4 * ["Conv", "Relu"], "Squeeze"]


def test_both_are_measured_together() -> None:
    shape = Shape(16, 1, 3, 20)
    found = measure_rows(shape, 1.0)
    assert found["snr_db"] > 100
    assert found["ratio"] > 0
    assert not found["ratio_low"] > found["ratio_high"]  # NaN where there was time for one process alone
    equal = {"shape": [16, 1, 1, 20], "ratio": 0.5, "ratio_low": 0.4, "ratio_high": 0.6, "snr_db": None}
    assert "| 16 | 1 | 1 | 20 | 0.50 (0.40 to 0.60) | equal |" in render_rows({"parts": {"a": equal}})
    part = {"shape": [16, 1, 3, 20], "ratio": 0.5, "ratio_low": 0.4, "ratio_high": 0.6, "snr_db": 130.0}
    assert "| 16 | 1 | 3 | 20 | 0.50 (0.40 to 0.60) | 130 |" in render_rows({"parts": {"a": part}})
