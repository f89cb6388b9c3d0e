from pathlib import Path
from typing import Any

import pytest

from autoquant.api.configuration import Budget, Configuration, Demands
from autoquant.api.data import read_search_data
from autoquant.api.setups import evaluator_setup, file_bench_setup
from autoquant.domain.feed import InputSignature
from autoquant.domain.objective import Bounds, Objectives
from autoquant.domain.target import Target
from autoquant.metrics.grammar import parse_metrics
from tests.models import floats

SIGNATURES = (InputSignature("x", "float32", ("N", 4)),)


def a_configuration(n_samples: int = 8, **asked: Any) -> Configuration:
    return Configuration(
        model=Path("model.onnx"),
        calibration={"x": floats(4, 4)},
        evaluation={"x": floats(n_samples, 4, seed=1)},
        targets=(Target(),),
        budget=Budget(seconds=100),
        out=Path("run"),
        space="default",
        n_regions=9,
        **{"demands": Demands(), **asked},
    )


@pytest.mark.parametrize(("n_samples", "n_search"), [(8, 8), (32, 16)])
def test_samples_that_the_search_does_not_run_have_their_share_of_the_time(n_samples: int, n_search: int) -> None:
    asked = a_configuration(n_samples)
    data = read_search_data(asked, SIGNATURES)
    found = evaluator_setup(asked, data)
    assert len(found.samples) == n_search
    assert found.seconds == pytest.approx(15 * n_search / n_samples)
    assert evaluator_setup(asked, data.united).seconds == pytest.approx(15)
    assert evaluator_setup(asked, data.united).held_out is None


@pytest.mark.parametrize("has_snr", [True, False])
def test_a_demanded_snr_binds_candidates_where_it_is_no_objective(has_snr: bool) -> None:
    metrics = parse_metrics(["top1"])
    demands = Demands(min_snr_db=40, max_latency_ratio=0.5, max_size_bytes=9, max_drop=0.1)
    asked = a_configuration(demands=demands, metrics=metrics, objectives=Objectives(has_snr=has_snr, metrics=metrics))
    found = evaluator_setup(asked, read_search_data(asked, SIGNATURES)).bounds
    assert found == Bounds(min_snr_db=None if has_snr else 40, max_size_bytes=9, max_drops={"top1": 0.1})


def test_the_last_measurement_knows_what_the_user_calls_its_samples() -> None:
    asked = a_configuration(32)
    data = read_search_data(asked, SIGNATURES)
    found = file_bench_setup(asked, data, data.division(8), frozenset({"y"}))
    assert found.numbers == {"y"}
    assert len(found.sample_names) == len(found.feeds) == 16
    assert found.sample_names == data.names(data.division(8))
