import math

import pytest

from autoquant.graph.rewriting import fast_kernels, rewritten
from experiments.bench.forms import CASES, Case, measure_form, model_of, render_forms

SMALL = Case("a line", (1, 8, 64), "y = Conv<pads = [3, 3]>(x, w)", {"w": (1, 8, 7)}, {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_model_has_another_form(case: Case) -> None:
    model = model_of(case)
    assert list(rewritten(model, fast_kernels(is_for_cpu=True)).graph.node) != list(model.graph.node)


def test_both_are_measured_together() -> None:
    found = measure_form(SMALL, 1.0)
    assert found["snr_db"] > 100
    low, high = found["ratio_low"], found["ratio_high"]
    assert found["ratio"] > 0
    assert math.isnan(low) or low <= found["ratio"] <= high  # where there was time for one process alone
    part = {"ratio": 0.5, "ratio_low": 0.4, "ratio_high": 0.6, "snr_db": 130.0}
    rendered = render_forms({"parts": {"a line": part, "another": part | {"snr_db": None}}})
    assert "| a line | 0.50 (0.40 to 0.60) | 130 |" in rendered
    assert "| another | 0.50 (0.40 to 0.60) | equal |" in rendered
