"""Corrected biases and other roundings, made again by onnxruntime's quantize_static of the changed float model."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

from autoquant.api import steps
from autoquant.domain.region import TensorName
from autoquant.domain.scheme import BiasCorrection, Rounding, Scheme, TensorFormat
from autoquant.domain.space import SpaceDefinition
from autoquant.model.dequantized import float_model
from autoquant.model.fragments import inline_external
from autoquant.model.graph import Graph
from autoquant.qdq.overrides import stored_scales, tensor_quant_overrides
from autoquant.runtime.overrides import load_overrides
from autoquant.space.schema import read_space
from tests.models import Array, Floats, a_convnet, floats, model_of, saved


class Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, name: str, data: Array) -> None:
        self._feeds: Iterator[dict[str, Any]] = iter([{name: data[i : i + 1]} for i in range(len(data))])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def a_net_with_rare_biases() -> onnx.ModelProto:
    """A bias that would overflow, one that Gemm multiplies, and a convolution without any."""
    body = """a = Conv(x, w, b) r = Relu(a) c = Conv(r, v) p = GlobalAveragePool(c) f = Flatten(p)
              y = Gemm<beta=2.0>(f, g, h)"""
    constants = {"w": floats(8, 3, 3, 3), "b": floats(8), "v": floats(4, 8, 1, 1), "g": floats(4, 5), "h": floats(5)}
    constants["w"][0] *= 1e-9
    constants["b"][0] = 3
    return model_of("(float[1,3,8,8] x) => (float[1,5] y)", body, dict(constants))


def a_net_whose_weight_is_an_output() -> onnx.ModelProto:
    body = "a = Conv(x, w, b) r = Relu(a) c = Conv(r, v) p = GlobalAveragePool(c) f = Flatten(p) y = Gemm(f, g)"
    constants = {"w": floats(8, 3, 3, 3), "b": floats(8), "v": floats(4, 8, 1, 1), "g": floats(4, 5)}
    return model_of("(float[1,3,8,8] x) => (float[1,5] y, float[4,8,1,1] v, float[8] b)", body, constants)


def space_of(rounding: Rounding, bias: BiasCorrection, weight: str) -> SpaceDefinition:
    found = read_space("default", ep="cpu")
    scheme: Scheme = replace(
        found.schemes[0], name="a", weight=TensorFormat.parse(weight), rounding=rounding, bias=bias
    )
    return replace(found, schemes=(scheme,))


def integers(model: onnx.ModelProto) -> dict[str, Array]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.name.endswith("_quantized")}


def outputs(path: Path, feed: dict[str, Floats]) -> Floats:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    found: Floats = session.run(None, feed)[0]
    return found


def test_constants_that_float_operators_share_with_integer_ones_stay_as_they_were(tmp_path: Path) -> None:
    body = "a = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(a) c = Conv<pads=[1,1,1,1]>(r, w, b) y = Relu(c)"
    model = model_of("(float[1,3,8,8] x) => (float[1,3,8,8] y)", body, {"w": floats(3, 3, 3, 3), "b": floats(3)})
    path, space = (
        saved(model, tmp_path / "model.onnx"),
        space_of(Rounding.NEAREST, BiasCorrection.MEAN, "s8:channel:sym"),
    )
    samples = steps.read_data(path, {"x": np.concatenate([floats(1, 3, 8, 8, seed=seed) for seed in range(6)])})
    prepared = steps.prepare(path, samples)
    regions = steps.find_regions(prepared, space=space)
    statistics = steps.calibrate(prepared, samples, space=space, cache_folder=tmp_path)
    assignment = {region.id: "a" for region in regions if "a" in region.nodes}
    assert 0 < len(assignment) < len(regions)
    steps.build(prepared, regions, statistics, assignment, space=space).save(tmp_path / "member.onnx")
    onnx.save(prepared.graph.model, tmp_path / "prepared.onnx")
    changed = float_model(tmp_path / "member.onnx", tmp_path / "prepared.onnx")
    onnx.checker.check_model(changed)
    graph = Graph(changed)
    reads = {str(node.name): node.inputs[1:] for node in graph.nodes if node.op_type == "Conv"}
    assert reads["a"] == ("w", "b")
    for name, now, before in zip(("w", "b"), reads["a"], reads["c"], strict=True):
        np.testing.assert_array_equal(graph.constant(before), prepared.graph.constant(TensorName(name)))
        assert 0 < np.abs(graph.constant(now) - graph.constant(before)).max() < 0.1


@pytest.mark.parametrize("weight", ["s8:channel:sym", "s8:tensor:sym"])
@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize(
    "model",
    [a_convnet(), a_net_with_rare_biases(), a_net_whose_weight_is_an_output()],
    ids=["convnet", "rare biases", "weight as output"],
)
def test_the_changed_float_model_and_the_overrides_make_the_member_again(
    model: onnx.ModelProto, rounding: Rounding, weight: str, tmp_path: Path
) -> None:
    path = saved(model, tmp_path / "model.onnx")
    data = np.concatenate([floats(1, 3, 8, 8, seed=seed) for seed in range(6)])
    samples, space = steps.read_data(path, {"x": data}), space_of(rounding, BiasCorrection.MEAN, weight)
    prepared = steps.prepare(path, samples)
    regions = steps.find_regions(prepared, space=space)
    statistics = steps.calibrate(prepared, samples, space=space, cache_folder=tmp_path)
    rounder = steps.round_weights(prepared, regions, statistics, samples, space=space)
    builder = steps.builder_of(prepared, regions, statistics, space=space, rounder=rounder)
    assignment = {region.id: "a" for region in regions}
    candidate, plan, graph = builder.build(assignment), builder.plan(assignment), prepared.graph
    ours = inline_external(candidate.skeleton, candidate.constants, {})
    onnx.save(ours, tmp_path / "member.onnx")
    onnx.save(graph.model, tmp_path / "prepared.onnx")
    changed = float_model(tmp_path / "member.onnx", tmp_path / "prepared.onnx")
    onnx.checker.check_model(changed)
    onnx.save(changed, tmp_path / "changed.onnx")
    overrides = {
        **tensor_quant_overrides(plan, builder.planner),
        **stored_scales(candidate, graph),
    }
    (tmp_path / "overrides.json").write_text(json.dumps(overrides))
    quantize_static(
        tmp_path / "changed.onnx",
        tmp_path / "again.onnx",
        Reader("x", data),
        quant_format=QuantFormat.QDQ,
        nodes_to_quantize=[graph.nodes[index].name for index in plan.integer | plan.absorbed.keys()],
        extra_options={
            "TensorQuantOverrides": load_overrides(tmp_path / "overrides.json"),
            "OpTypesToExcludeOutputQuantization": ["Gemm"],
        },
    )
    found, theirs = integers(ours), integers(onnx.load(tmp_path / "again.onnx"))
    weights = [name for name, values in found.items() if values.dtype == np.int8]
    assert len(weights) >= 3
    for name in weights:
        np.testing.assert_array_equal(theirs[name], found[name])
    for seed in range(10, 13):
        feed = {"x": floats(1, 3, 8, 8, seed=seed)}
        ours_out, theirs_out = (outputs(tmp_path / f"{each}.onnx", feed) for each in ("member", "again"))
        np.testing.assert_allclose(theirs_out, ours_out, atol=1e-5 * np.abs(ours_out).max())
