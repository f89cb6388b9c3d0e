import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoquant.api import steps
from autoquant.api.evaluator import BenchFacts, ScoringTimes
from autoquant.api.evaluator_setup import EvaluatorSetup
from autoquant.calibration.batches import select
from autoquant.domain.target import Target
from autoquant.errors import DataError, MetricError
from autoquant.metrics.custom import OutputsByName
from autoquant.metrics.grammar import parse_metrics
from tests.models import Array, floats, model_of, saved
from tests.unit.api.evaluator.places import N_SAMPLES, Place

HERE = "tests.unit.api.evaluator.test_evaluator_setup"


@pytest.mark.parametrize(("metric", "phrase"), [("top1@z", "no output 'z'"), (f"{HERE}:gone", "has no function")])
def test_a_metric_that_does_not_fit_is_refused_before_anything_is_built(place: Place, metric: str, phrase: str) -> None:
    with pytest.raises(MetricError, match=phrase):
        replace(place.setup, metrics=parse_metrics([metric]))()


class Clock:
    """Time that passes where somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


CLOCK = Clock()


def is_slow(outputs: list[OutputsByName], *_: object) -> float:
    CLOCK.now += len(outputs)
    return 1.0


@pytest.mark.parametrize("n_held_out", [0, 8])
@pytest.mark.parametrize("has_drops", [False, True])
def test_what_metrics_take_is_known_before_anything_is_built(
    place: Place, monkeypatch: pytest.MonkeyPatch, n_held_out: int, has_drops: bool
) -> None:
    monkeypatch.setattr("autoquant.api.evaluator_setup.time", CLOCK)
    held_out = select(place.setup.samples, range(n_held_out), "held-out") if n_held_out else None
    setup = replace(place.setup, metrics=parse_metrics([f"{HERE}:is_slow"]), has_drops=has_drops, held_out=held_out)
    facts = setup().facts()
    assert facts.scoring.trial_s == (N_SAMPLES if has_drops else 0)
    assert facts.scoring.file_s == (22 if n_held_out else 11) * (N_SAMPLES + n_held_out)
    assert facts.file_costs(4, 0.0).scoring_s == facts.scoring.file_s
    assert place.setup().facts().scoring == ScoringTimes()


def is_even(outputs: list[OutputsByName], *_: object) -> float:
    if len(outputs) % 2:
        raise ValueError("an odd number of samples")
    return 1.0


def test_metrics_are_tried_on_what_the_last_measurement_will_run_too(place: Place) -> None:
    setup = replace(place.setup, metrics=parse_metrics([f"{HERE}:is_even", "accuracy"]))
    n_search = N_SAMPLES // 2 * 2
    search = replace(setup, samples=select(setup.samples, range(n_search), "search"))
    search()
    replace(search, held_out=select(setup.samples, range(2), "held-out"))()
    with pytest.raises(MetricError, match="an odd number of samples"):
        replace(search, held_out=select(setup.samples, range(1), "held-out"))()


@pytest.mark.parametrize("seconds", [math.inf, 0.0])
def test_a_held_out_sample_without_finite_outputs_is_refused(place: Place, seconds: float) -> None:
    """Also where there is no time for all samples: the first held-out one is run in any case."""
    data = floats(8, 3, 8, 8)
    data[5] = 3e38
    bad = select(steps.read_data(place.setup.model, {"x": data}, role="evaluation"), [5, 2], "held-out")
    with pytest.raises(DataError, match=r"^evaluation data <dict>, sample 5: the float model's output"):
        replace(place.setup, held_out=bad, seconds=seconds)()


def test_an_output_that_is_zero_but_on_held_out_samples_is_judged_also_by_who_does_not_run_them(
    tmp_path: Path,
) -> None:
    body = "y = Relu(x) d = Sub(x, c) z = Relu(d)"
    model = model_of("(float[1,3,8,8] x) => (float[1,3,8,8] y, float[1,3,8,8] z)", body, {"c": 50.0})
    path, data = saved(model, tmp_path / "model.onnx"), floats(2, 3, 8, 8)
    samples, held_out = (steps.read_data(path, {"x": scale * data}) for scale in (1, 100))
    setup = EvaluatorSetup(model=path, samples=samples, targets=(Target(),), seed=0)
    assert setup().facts().silent == ("z",)
    facts = replace(setup, held_out=held_out)().facts()
    assert facts.silent == ()
    assert replace(setup, signal=facts.signal)().facts().silent == ()
    assert replace(setup, held_out=held_out).pinned(1)().facts().silent == ()


@pytest.mark.parametrize("output", ["z = Relu(d)", "m = Greater(d, c) f = Reshape(m, all) z = Compress(d, f)"])
def test_a_model_whose_outputs_are_all_0_or_empty_is_refused(tmp_path: Path, output: str) -> None:
    constants: dict[str, Array | float] = {"c": 50.0, "all": np.array([-1], np.int64)}
    model = model_of("(float[1,3,8,8] x) => (float z)", f"d = Sub(x, c) {output}", constants)
    path = saved(model, tmp_path / "model.onnx")
    samples, held_out = (steps.read_data(path, {"x": scale * floats(2, 3, 8, 8)}) for scale in (1, 100))
    setup = EvaluatorSetup(model=path, samples=samples, targets=(Target(),), seed=0)
    with pytest.raises(DataError, match=r"model\.onnx: every output is 0 or empty on all evaluation samples, so that"):
        setup()
    assert replace(setup, held_out=held_out)().facts().silent == ()


@pytest.mark.parametrize(
    ("names", "expected"), [(["cpu-1t"], True), (["cpu-2t"], False), (["cpu-1t", "cpu-2t"], False)], ids=str
)
def test_outputs_are_compared_beside_float_on_one_thread_of_the_cpu_alone(names: list[str], expected: bool) -> None:
    facts = BenchFacts(n_samples=4, float_s=dict.fromkeys(names, 0.1), opening_s=0.0)
    assert facts.file_costs(4, 0.0).is_beside == expected
