"""A float Add before a LayerNormalization, fused by onnxruntime or not."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from autoquant.domain.region import NodeName, Region, RegionId, TensorName
from autoquant.domain.rewrite import Rewrite
from autoquant.domain.scheme import RangeMethod, Scheme, TensorFormat
from autoquant.domain.statistics import CalibrationRange
from autoquant.domain.target import Target
from autoquant.model.graph import Graph
from autoquant.model.optimized import read_optimized
from autoquant.model.rewrite import infer_shapes
from autoquant.qdq.builder import Builder
from autoquant.runtime.session import open_session

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
agraph (float[1, 6, 8] x, float[1, 6, 8] y) => (float[1, 6, 8] z)
<float[8] gamma = {1, 1, 1, 1, 1, 1, 1, 1}, float[8] beta = {0, 0, 0, 0, 0, 0, 0, 0}>
{
   [add] s = Add (x, y)
   [norm] z = LayerNormalization (s, gamma, beta)
}
"""
U8 = Scheme(
    name="u8",
    activation=TensorFormat.parse("u8:tensor:asym"),
    weight=TensorFormat.parse("s8:channel:sym"),
    ranges=RangeMethod.parse("min-max"),
)
REGION = Region(
    id=RegionId("r"),
    nodes=(NodeName("add"),),
    inputs=(TensorName("x"), TensorName("y")),
    outputs=(TensorName("s"),),
    pattern="p",
    op_types=("Add",),
    work=1.0,
)


@pytest.fixture
def builder() -> Builder:
    graph = Graph(infer_shapes(onnx.parser.parse_model(MODEL)))
    return Builder(graph, [REGION], {"u8": U8}, frozenset({"Add"}), lambda *_: CalibrationRange(-4.0, 4.0))


def kernels(builder: Builder, path: Path, assignment: dict[RegionId, str]) -> tuple[str, ...]:
    candidate = builder.build(assignment)
    open_session(candidate.skeleton, Target(), optimized_path=path)
    return read_optimized(path).kernels


def test_onnxruntime_fuses_the_add_by_default(builder: Builder, tmp_path: Path) -> None:
    assert builder.possible == {Rewrite.PLAIN_SUMS}
    assert kernels(builder, tmp_path / "o.onnx", {}) == ("com.microsoft:SkipLayerNormalization",)


def test_a_plain_sum_is_not_fused_and_computes_the_same(builder: Builder, tmp_path: Path) -> None:
    fused = builder.build({}).skeleton
    builder.write(frozenset({Rewrite.PLAIN_SUMS}))
    assert kernels(builder, tmp_path / "o.onnx", {}) == ("Sum", "LayerNormalization")
    rng = np.random.default_rng(0)
    feed = {name: rng.normal(size=(1, 6, 8)).astype(np.float32) for name in "xy"}
    first, second = (open_session(s, Target()).run(None, feed)[0] for s in (fused, builder.build({}).skeleton))
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


def test_a_quantized_add_stays_an_add(builder: Builder, tmp_path: Path) -> None:
    builder.write(frozenset({Rewrite.PLAIN_SUMS}))
    assert "com.microsoft:QLinearAdd" in kernels(builder, tmp_path / "o.onnx", {REGION.id: "u8"})
