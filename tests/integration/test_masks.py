from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoquant import Budget, search
from autoquant.api.steps import (
    build,
    calibrate,
    definition_of,
    find_regions,
    measure,
    prepare,
    read_data,
)
from autoquant.domain.measurement import Measurement
from autoquant.domain.target import Target
from autoquant.errors import DataError
from autoquant.measurement.bench import Bench
from autoquant.qdq.masks import masked as masked_scores
from tests.graphs import OP_TYPES
from tests.models import Array, floats, model_of, saved


@pytest.mark.parametrize("masked", ["m = Where(seen, s, never)", "b = Where(seen, zero, never) m = Add(s, b)"])
@pytest.mark.parametrize("never", [-np.inf, np.finfo(np.float32).min, -10000])
def test_an_attention_behind_a_mask_is_quantized_around_it(never: float, masked: str, tmp_path: Path) -> None:
    """As exporters write that of a causal decoder."""
    body = (
        "q = MatMul(x, wq) k = MatMul(x, wk) kt = Transpose<perm=[0,2,1]>(k) s = MatMul(q, kt)"
        f" {masked} p = Softmax(m) y = MatMul(p, x)"
    )
    constants: dict[str, Array | float] = {
        "wq": floats(4, 4, seed=1),
        "wk": floats(4, 4, seed=2),
        "seen": np.tri(3, dtype=np.bool_),
        "zero": 0.0,
        "never": np.array(never, np.float32),
    }
    model = saved(model_of("(float[1,3,4] x) => (float[1,3,4] y)", body, constants), tmp_path / "model.onnx")
    samples = read_data(model, {"x": floats(4, 3, 4)})
    prepared = prepare(model, samples)
    found = find_regions(prepared)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path)
    assert len(masked_scores(prepared.graph, statistics)) == 1
    assignment = {region.id: "u8s8-channel-minmax" for region in found}
    measured = measure(
        Bench(model, [Target()], samples.feeds), build(prepared, found, statistics, assignment), assignment, found
    )
    assert isinstance(measured, Measurement)
    assert 25 < measured.quality.worst_db < 60


@pytest.mark.parametrize("never", [np.finfo(np.float32).min, -65504, -10000])
def test_a_mask_works_that_calibration_never_saw(never: float, tmp_path: Path) -> None:
    """As exporters write that of an encoder, whose samples may all be as long."""
    body = (
        "q = MatMul(x, wq) k = MatMul(x, wk) kt = Transpose<perm=[0,2,1]>(k) s = MatMul(q, kt) a = Sub(one, mask)"
        " f = Mul(a, never) m = Add(s, f) p = Softmax(m) y = MatMul(p, x)"
    )
    constants: dict[str, Array | float] = {"wq": floats(4, 4, seed=1), "wk": floats(4, 4, seed=2), "one": 1.0}
    constants["never"] = np.array(never, np.float32)
    signature = "(float[1,3,4] x, float[1,1,3] mask) => (float[1,3,4] y)"
    model = saved(model_of(signature, body, constants), tmp_path / "model.onnx")
    unpadded, mask = {"x": floats(4, 3, 4), "mask": np.ones((4, 1, 3), np.float32)}, np.ones((4, 1, 3), np.float32)
    mask[:, :, 2] = 0
    samples = read_data(model, unpadded)
    prepared = prepare(model, samples)
    found = find_regions(prepared)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path)
    assignment = {region.id: "u8s8-channel-minmax" for region in found}
    candidate = build(prepared, found, statistics, assignment)
    padded = read_data(model, {"x": floats(4, 3, 4), "mask": mask})
    measured = measure(Bench(model, [Target()], padded.feeds), candidate, assignment, found)
    assert isinstance(measured, Measurement)
    assert measured.quality.worst_db > 25


def test_what_masks_that_leave_nothing_make_of_a_row_stays_float(tmp_path: Path) -> None:
    """As exporters of torch write it: the Softmax of a row that is masked whole is NaN, which becomes 0."""
    body = (
        "q = MatMul(x, wq) k = MatMul(x, wk) kt = Transpose<perm=[0,2,1]>(k) s = MatMul(q, kt)"
        " m = Where(seen, s, never) p = Softmax(m) n = IsNaN(p) g = Where(n, zero, p)"
        " a = MatMul(g, x) y = MatMul(a, wy)"
    )
    weights = {name: floats(4, 4, seed=seed) for seed, name in enumerate(("wq", "wk", "wy"))}
    constants: dict[str, Array | float] = {**weights, "zero": 0.0, "never": -np.inf}
    constants["seen"] = np.tri(3, k=-1, dtype=np.bool_)
    model = saved(model_of("(float[1,3,4] x) => (float[1,3,4] y)", body, constants), tmp_path / "model.onnx")
    samples = read_data(model, {"x": floats(4, 3, 4)})
    prepared = prepare(model, samples)
    space = replace(definition_of("default", "cpu"), op_types=OP_TYPES)
    found = find_regions(prepared, space=space)
    statistics = calibrate(prepared, samples, space=space, cache_folder=tmp_path)
    assert statistics.unbounded == {"m", "p"}
    assignment = {region.id: "u8s8-channel-minmax" for region in found}
    candidate = build(prepared, found, statistics, assignment, space=space)
    assert candidate.integer_nodes
    measured = measure(Bench(model, [Target()], samples.feeds), candidate, assignment, found)
    assert isinstance(measured, Measurement)
    assert measured.quality.worst_db > 25


@pytest.mark.parametrize("end", ["y = MatMul(s, w)", "z = MatMul(s, w) y = Cast<to=10>(z)"])
def test_a_sample_that_the_float_model_cannot_take_is_named(end: str, tmp_path: Path) -> None:
    kind = "float16" if "Cast" in end else "float"
    model = model_of(f"(float[1,4] x) => ({kind}[1,4] y)", f"s = Mul(x, x) {end}", {"w": floats(4, 4)})
    data = floats(6, 4)
    data[4] = 1e30
    path = saved(model, tmp_path / "model.onnx")
    samples = read_data(path, {"x": data})
    with pytest.raises(
        DataError, match="calibration data <dict>, sample 4: the float model's output 'y' holds NaN or infinity"
    ):
        calibrate(prepare(path, samples), samples, cache_folder=tmp_path)


@pytest.mark.parametrize("never", [-np.inf, np.nan])
def test_an_output_whose_masked_places_hold_no_number_is_compared_at_the_others(never: float, tmp_path: Path) -> None:
    """As models of sets write it that are padded to one size."""
    body = "a = MatMul(x, w) r = Relu(a) b = MatMul(r, v) y = Where(seen, b, never)"
    constants: dict[str, Array | float] = {"w": floats(8, 8, seed=1), "v": floats(8, 8, seed=2), "never": never}
    signature = "(float[1,4,8] x, bool[1,4,1] seen) => (float[1,4,8] y)"
    model = saved(model_of(signature, body, constants), tmp_path / "model.onnx")
    seen = np.ones((6, 4, 1), np.bool_)
    seen[:, 3], seen[::2, 2] = False, False
    data, other = ({"x": floats(6, 4, 8, seed=seed), "seen": seen} for seed in (3, 4))
    result = search(model, calibration=data, evaluation=other, budget=Budget(trials=3), out=tmp_path / "run")
    decibels = result.trials["snr_db"]
    assert ((decibels > 20) & (decibels < 60)).any()
    assert any("NaN or infinity at 37.5 % of the elements of 'y'" in note for note in result.notes)
