"""Whatever a model's weights and data are like, no NaN and no infinity gets into a file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autoquant.api import steps
from autoquant.domain.feed import Feed
from autoquant.domain.scheme import Rounding
from autoquant.model.fragments import inline_external
from autoquant.qdq.candidate import Candidate
from autoquant.space.schema import read_space
from tests.graphs import run
from tests.models import Floats, floats, model_of, saved

BODY = """a = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(a) c = Conv<group=4>(r, v) p = GlobalAveragePool(c)
          f = Flatten(p) y = Gemm(f, g, h)"""


def a_model(weight: Floats, *, is_output: bool = False) -> onnx.ModelProto:
    constants = {"w": weight, "b": floats(4), "v": floats(4, 1, 1, 1), "g": floats(4, 3), "h": floats(3)}
    constants["v"][1] = 0
    constants["g"][:, 2] = 0
    constants["h"][2] = 0
    model = model_of("(float[1,3,6,6] x) => (float[1,3] y)", BODY, dict(constants))
    if is_output:
        model.graph.output.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, weight.shape))
    return model


def dead() -> Floats:
    weight = floats(4, 3, 3, 3)
    weight[2] = 0
    return weight


odd_models = pytest.mark.parametrize(
    ("model", "scale"),
    [
        (a_model(dead()), 1.0),
        (a_model(dead(), is_output=True), 1.0),
        (a_model(dead() * np.float32(1e-30)), 1.0),
        (a_model(dead() * np.float32(1e18)), 1e-18),
        (a_model(dead()), 0.0),
    ],
    ids=["dead channels", "a weight that is an output", "tiny weights", "huge weights", "inputs of zeros"],
)


def check_finite(candidate: Candidate, feed: Feed) -> None:
    whole = inline_external(candidate.skeleton, candidate.constants, {})
    for tensor in whole.graph.initializer:
        values = numpy_helper.to_array(tensor)
        assert values.dtype.kind != "f" or np.isfinite(values).all(), tensor.name
    assert all(np.isfinite(out).all() for out in run(whole, feed))


@pytest.mark.parametrize("rounding", Rounding)
@odd_models
def test_every_constant_is_finite(model: onnx.ModelProto, scale: float, rounding: Rounding, tmp_path: Path) -> None:
    path = saved(model, tmp_path / "model.onnx")
    data = np.concatenate([floats(1, 3, 6, 6, seed=seed) for seed in range(3)]) * np.float32(scale)
    samples = steps.read_data(path, {"x": data})
    prepared = steps.prepare(path, samples)
    regions = steps.find_regions(prepared)
    statistics = steps.calibrate(prepared, samples, cache_folder=tmp_path)
    space = read_space("default", ep="cpu")
    schemes = tuple(s if s.is_dynamic else replace(s, rounding=rounding) for s in space.schemes)
    space = replace(space, schemes=schemes)
    rounder = steps.round_weights(prepared, regions, statistics, samples, space=space)
    builder = steps.builder_of(prepared, regions, statistics, space=space, rounder=rounder)
    for scheme in schemes:
        check_finite(builder.build({region.id: scheme.name for region in regions}), samples.feeds[0])


@odd_models
def test_every_constant_is_finite_after_equalisation_and_with_observed_biases(
    model: onnx.ModelProto, scale: float, tmp_path: Path
) -> None:
    path = saved(model, tmp_path / "model.onnx")
    data = np.concatenate([floats(1, 3, 6, 6, seed=seed) for seed in range(3)]) * np.float32(scale)
    samples = steps.read_data(path, {"x": data})
    plain = steps.prepare(path, samples)
    statistics = steps.calibrate(plain, samples, cache_folder=tmp_path)
    equalised = steps.equalise(plain, statistics)
    if equalised.tensors:
        plain = steps.compared(equalised.prepared, samples)
        statistics = steps.calibrate(plain, samples, cache_folder=tmp_path)
    regions = steps.find_regions(plain)
    builder = steps.builder_of(plain, regions, statistics)
    for scheme in (scheme for scheme in read_space("default", ep="cpu").schemes if not scheme.is_dynamic):
        assignment = {region.id: scheme.name for region in regions}
        shifts = steps.observe_shifts(plain, builder, assignment, samples)
        assert all(np.isfinite(shift).all() for shift in shifts.values())
        check_finite(builder.build(assignment, shifts), samples.feeds[0])
