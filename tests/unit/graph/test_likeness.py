"""How near preprocessed models are to the user's file."""

import time
from pathlib import Path
from typing import Any

import pytest

from autoquant.graph import likeness
from autoquant.graph.likeness import keeps_outputs
from autoquant.graph.preprocess import prepare
from autoquant.runtime.samples import run_sample
from tests.models import a_convnet, feed_of, model_of, saved


@pytest.mark.parametrize(
    ("difference_db", "expected"), [(39.0, (False, False)), (44.0, (True, False)), (60.0, (True, True))]
)
def test_outputs_of_a_float16_model_may_differ_by_its_own_rounding(
    difference_db: float, expected: tuple[bool, bool]
) -> None:
    model = model_of("(float[1,3] x) => (float[1,3] y)", "y = Relu(x)")
    found = tuple(keeps_outputs(model, difference_db, from_halves=from_halves) for from_halves in (True, False))
    assert found == expected


def test_a_model_that_takes_long_is_told_to_be_faster_preprocessed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*given: Any, **named: Any) -> Any:
        time.sleep(0.1)
        return run_sample(*given, **named)

    model = a_convnet()
    monkeypatch.setattr(likeness, "run_sample", slow)  # the user's file alone is run by it
    assert prepare(saved(model, path), [feed_of(model)]).latency_ratio < 0.9
