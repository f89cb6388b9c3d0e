"""What a region may take runs, and makes at least one of its operators an integer kernel."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.api.steps import find_regions
from autoquant.domain.region import TensorName
from autoquant.domain.scheme import FLOAT, RangeKind, RangeMethod, TensorFormat
from autoquant.domain.statistics import CalibrationRange
from autoquant.model.fragments import inline_external
from autoquant.model.names import name_nodes
from autoquant.model.optimized import read_optimized
from autoquant.model.prepared import PreparedModel
from autoquant.model.rewrite import infer_shapes
from autoquant.qdq.builder import Builder
from autoquant.qdq.twins import find_twins
from autoquant.rewrites.affine import fold_affine
from autoquant.rewrites.fusions import lower_matmul
from autoquant.space.resolve import resolve
from autoquant.space.schema import read_space
from tests.graphs import Case, case_of, opened
from tests.models import Array, floats, model_of

SPACE, LARGE = read_space("default", ep="cpu"), read_space("extensive", ep="cpu")
SHAPES = {"matrix": "4,4", "image": "1,4,4,4", "sequence": "4,4,4"}
CONSTANTS: dict[str, Array | float] = {
    "w": floats(4, 4, scale=0.5),
    "b": floats(4),
    "one": floats(1),
    "column": floats(4, 1),
    "tall": floats(8, 4, scale=0.3),
    "batch": floats(4, 4, 4, scale=0.5),
    "kernel": floats(4, 4, 3, 3, scale=0.2),
    "depthwise": floats(4, 1, 1, 1),
    "input": floats(1, 16, 4),
    "recurrent": floats(1, 16, 4, seed=1),
    "first": np.array([1]),
    "same": np.ones(4, np.float32),
    "zero": 0.0,
    "half": 0.5,
}
ANYWHERE = [
    "{y} = MatMul({x}, w)",
    "{t} = MatMul({x}, w) {y} = Add({t}, b)",
    "{t} = MatMul({x}, w) {y} = Add(one, {t})",
    "{t} = MatMul({x}, column) {y} = Add({t}, b)",
    "{y} = MatMul(w, {x})",
    "{y} = MatMul({x}, {other})",
    "{t} = MatMul({x}, {other}) {u} = Mul({t}, half) {y} = Softmax({u})",
    "{y} = Add({x}, {other})",
    "{t} = Add({x}, b) {y} = Relu({t})",
    "{y} = Mul(half, {x})",
    "{y} = Sigmoid({x})",
    "{y} = LeakyRelu({x})",
    "{y} = Relu({x})",
    "{y} = Clip({x}, half, )",
    "{y} = Tanh({x})",
    "{y} = Erf({x})",
]
STEPS = {
    "matrix": [
        "{y} = Gemm<transB=1>({x}, w, b)",
        "{y} = Gemm<alpha=0.5, beta=2.0>({x}, w, b)",
        "{y} = Gemm({x}, w, w)",
        "{t} = Gemm({x}, column) {y} = Add(b, {t})",
        "{t} = Concat<axis=1>({x}, {other}) {y} = MatMul({t}, tall)",
        "{y} = Transpose({x})",
        "{y} = Softmax<axis=0>({x})",
    ],
    "image": [
        "{y} = Conv<pads=[1,1,1,1]>({x}, kernel, b)",
        "{t} = Conv<pads=[1,1,1,1]>({x}, kernel) {y} = Relu({t})",
        "{t} = Conv<group=4>({x}, depthwise) {y} = Clip({t}, zero, half)",
        "{y} = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>({x})",
        "{y} = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>({x})",
        '{y} = Resize<mode="nearest">({x}, , same)',
        "{t} = GlobalAveragePool({x}) {y} = Mul({t}, {other})",
    ],
    "sequence": [
        "{t} = LSTM<hidden_size=4>({x}, input, recurrent) {y} = Squeeze({t}, first)",
        "{y} = MatMul({x}, batch)",
        "{y} = Transpose<perm=[0,2,1]>({x})",
    ],
}


@st.composite
def chains(draw: st.DrawFn) -> onnx.ModelProto:
    """With residuals; as they are, or rewritten as in preprocessing."""
    kind = draw(st.sampled_from(list(SHAPES)))
    tensors, body = ["x"], list[str]()
    for i, step in enumerate(draw(st.lists(st.sampled_from(STEPS[kind] + ANYWHERE), min_size=1, max_size=4))):
        body.append(step.format(x=tensors[-1], other=draw(st.sampled_from(tensors)), t=f"t{i}", u=f"u{i}", y=f"y{i}"))
        tensors.append(f"y{i}")
    model = model_of(f"(float[{SHAPES[kind]}] x) => (float[{SHAPES[kind]}] {tensors[-1]})", "\n".join(body), CONSTANTS)
    return name_nodes(infer_shapes(lower_matmul(fold_affine(model)))) if draw(st.booleans()) else model


def prepared_of(case: Case) -> PreparedModel:
    return PreparedModel(
        graph=case.graph,
        digest="",
        source=Path("m.onnx"),
        source_sha256="",
        difference_db=0.0,
        latency_ratio=1.0,
        notes=(),
    )


@settings(max_examples=40)
@given(chains())
def test_each_choice_of_a_region_runs_and_has_an_effect(
    tmp_path_factory: pytest.TempPathFactory, model: onnx.ModelProto
) -> None:
    case, path = case_of(model), tmp_path_factory.mktemp("choices") / "optimized.onnx"
    regions = find_regions(prepared_of(case), space=SPACE)
    space = resolve(SPACE, regions)
    builder = Builder(case.graph, regions, space.schemes, SPACE.op_types, case.ranges)
    built = {}
    for region in regions:
        for name in space.choices[region.id]:
            if name != FLOAT:
                candidate = builder.build({region.id: name})
                built[candidate.digest] = region, name, candidate
    for region, name, candidate in built.values():
        opened(inline_external(candidate.skeleton, candidate.constants, {}), str(path)).run(None, dict(case.feed))
        assert not read_optimized(path).integer_nodes.isdisjoint(region.nodes), name


@settings(max_examples=60)
@given(chains(), st.data())
def test_schemes_that_quantize_a_region_alike_make_the_same_model_in_any_mix(
    model: onnx.ModelProto, data: st.DataObject
) -> None:
    case = case_of(model)
    regions = find_regions(prepared_of(case), space=LARGE)
    space = resolve(LARGE, regions)
    uneven = data.draw(st.sets(st.sampled_from(sorted(case.extremes))))

    def ranges(tensor: TensorName, tensor_format: TensorFormat, method: RangeMethod) -> CalibrationRange:
        """Of some tensors other ones for each method."""
        found = case.ranges(tensor, tensor_format, RangeMethod(RangeKind.MIN_MAX))
        share = 1 - 0.1 * list(RangeKind).index(method.kind) if tensor in uneven else 1.0
        return CalibrationRange(found.low * share, found.high * share)

    builder = Builder(case.graph, regions, space.schemes, LARGE.op_types, ranges, rounder=lambda *_: None)
    twins = find_twins(builder.planner, regions, space, has_ranges=True)
    mix = {region: data.draw(st.sampled_from(names)) for region, names in space.choices.items()}
    same = {region: twins.get(region, {}).get(name, name) for region, name in mix.items()}
    assert builder.build(mix).digest == builder.build(same).digest
