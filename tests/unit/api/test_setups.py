from pathlib import Path

import pytest

from autoquant.api.configuration import Budget, Configuration, Demands
from autoquant.api.data import read_search_data
from autoquant.api.setups import evaluator_setup
from autoquant.domain.feed import InputSignature
from autoquant.domain.target import Target
from tests.models import floats


@pytest.mark.parametrize(("n_samples", "n_search"), [(8, 8), (32, 16)])
def test_samples_that_the_search_does_not_run_have_their_share_of_the_time(n_samples: int, n_search: int) -> None:
    asked = Configuration(
        model=Path("model.onnx"),
        calibration={"x": floats(4, 4)},
        evaluation={"x": floats(n_samples, 4, seed=1)},
        targets=(Target(),),
        budget=Budget(seconds=100),
        demands=Demands(),
        out=Path("run"),
        space="default",
        n_regions=9,
    )
    data = read_search_data(asked, (InputSignature("x", "float32", ("N", 4)),))
    found = evaluator_setup(asked, data)
    assert len(found.samples) == n_search
    assert found.seconds == pytest.approx(15 * n_search / n_samples)
    assert evaluator_setup(asked, data.united).seconds == pytest.approx(15)
    assert evaluator_setup(asked, data.united).held_out is None
