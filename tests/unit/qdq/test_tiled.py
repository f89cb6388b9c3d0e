"""Float convolutions that are computed tile by tile."""

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.region import NodeName, Region, RegionId, TensorName
from autoquant.domain.rewrite import Rewrite
from autoquant.domain.scheme import FLOAT
from autoquant.measurement.effective import effective_assignment
from autoquant.model.dequantized import float_model
from autoquant.model.fragments import inline_external
from autoquant.model.graph import Graph
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.tiled import TiledConvs
from tests.graphs import U8S8_CHANNEL, Case, case_of, exact, op_types_of, optimized, run
from tests.models import floats, model_of, saved

TILED = frozenset({Rewrite.TILED_CONVS})
PADDED = "pads=[1,1,1,1]"


def a_case(
    n_read: int = 192,
    n_written: int = 192,
    size: tuple[int, int] = (16, 16),
    *,
    attributes: str = PADDED,
    call: str = "y = Conv<@>(x, w, b)",
    sample: int = 1,
    opset: int = 21,
) -> Case:
    constants = {"w": floats(n_written, n_read, 3, 3, scale=1 / np.sqrt(9 * n_read)), "b": floats(n_written)}
    used = {name: value for name, value in constants.items() if f" {name}" in call}
    given = f"(float[{sample},{n_read},{size[0]},{size[1]}] x) => (float[] y)"
    return case_of(model_of(given, call.replace("@", attributes), used, opset=opset))


def a_region(name: str) -> Region:
    return Region(
        id=RegionId(name), nodes=(NodeName(name),), inputs=(), outputs=(), pattern="", op_types=("Conv",), work=1.0
    )


def opened(candidate: Candidate) -> onnx.ModelProto:
    return inline_external(candidate.skeleton, candidate.constants, {})


def in_float(case: Case) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """As it is, and tile by tile."""
    builder = case.builder({})
    plain = opened(builder.build({}))
    builder.write(TILED)
    return plain, opened(builder.build({}))


def snr_db(one: onnx.ModelProto, other: onnx.ModelProto, case: Case) -> float:
    first, second = (run(each, case.feed)[0].astype(np.float64) for each in (one, other))
    assert first.shape == second.shape
    noise = np.square(first - second).sum()
    return float(10 * np.log10(np.square(first).sum() / noise)) if noise else math.inf


@given(
    size=st.tuples(st.integers(15, 20), st.integers(17, 21)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    has_bias=st.booleans(),
)
@settings(max_examples=12, deadline=None)
def test_outputs_are_the_same_but_for_rounding(
    size: tuple[int, int], pads: tuple[int, int, int, int], has_bias: bool
) -> None:
    call = "y = Conv<@>(x, w, b)" if has_bias else "y = Conv<@>(x, w)"
    case = a_case(size=size, attributes=f"pads={list(pads)}", call=call)
    builder = case.builder({})
    if not builder.possible:
        return
    plain, tiled = in_float(case)
    assert op_types_of(plain) == ["Conv"]
    assert op_types_of(tiled)[:4] == ["Conv", "Reshape", "Transpose", "MatMul"]
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(tiled, strict_mode=True), full_check=True)
    assert snr_db(plain, tiled, case) > 105


@pytest.mark.parametrize("size", [(16, 16), (17, 18), (14, 19)])
def test_sizes_at_and_beside_those_of_tiles_are_written(size: tuple[int, int]) -> None:
    case = a_case(size=size)
    assert case.builder({}).possible == TILED
    assert snr_db(*in_float(case), case) > 105


def test_a_bias_may_be_left_out_by_an_empty_name() -> None:
    model = a_case(call="y = Conv<@>(x, w)").graph.model
    model.graph.node[0].input.append("")
    case = case_of(model)
    assert case.builder({}).possible == TILED
    assert snr_db(*in_float(case), case) > 105


def test_the_product_has_the_name_of_the_conv_and_none_is_there_twice() -> None:
    call = "a = Conv<@>(x, w, b) r = Relu(a) y = Conv<@>(r, w, b)"
    _, tiled = in_float(a_case(call=call))
    names = [node.name for node in tiled.graph.node]
    assert len(names) == len(set(names))
    named = [(node.op_type, node.name) for node in tiled.graph.node if len(node.name) == 1]
    assert named == [("MatMul", "a"), ("Relu", "r"), ("MatMul", "y")]
    n_large = sum(np.prod(tensor.dims) == 36 * 192 * 192 for tensor in tiled.graph.initializer)
    assert n_large == 1, "the weight of both"


def test_between_integers_it_stays_float_and_what_is_quantized_stays_a_conv(tmp_path: Path) -> None:
    case = a_case(call="a = Conv<@>(x, w, b) c = Conv<@>(a, w, b) y = Conv<@>(c, w, b)")
    scheme = exact(U8S8_CHANNEL)
    assert scheme is not None
    builder = case.builder({scheme.name: scheme})
    builder.write(TILED)
    assignment = {RegionId("a"): scheme.name, RegionId("y"): scheme.name}
    candidate = builder.build(assignment)
    model = opened(candidate)
    assert [node.op_type for node in model.graph.node].count("MatMul") == 2
    found = optimized(model, tmp_path)
    asked = candidate.integer_nodes, candidate.float_nodes
    regions = [a_region(name) for name in "acy"]
    ran = effective_assignment(assignment, regions, found, *asked)
    assert ran == {"a": scheme.name, "c": FLOAT, "y": scheme.name}
    builder.write(frozenset())
    assert snr_db(opened(builder.build(assignment)), model, case) > 30


def test_the_float_model_of_a_member_has_the_conv(tmp_path: Path) -> None:
    case = a_case()
    _, tiled = in_float(case)
    member, prepared = saved(tiled, tmp_path / "m.onnx"), saved(case.graph.model, tmp_path / "p.onnx")
    found = float_model(member, prepared)
    assert op_types_of(found) == ["Conv"]
    np.testing.assert_array_equal(run(found, case.feed)[0], run(case.graph.model, case.feed)[0])


def test_what_reads_infinities_stays_as_a_tile_would_have_them_everywhere() -> None:
    case = a_case(call="a = Conv<@>(x, w, b) y = Conv<@>(a, w, b)")
    graph = case.graph
    assert {graph.nodes[i].name for i in TiledConvs(graph).indices} == {"a", "y"}
    assert {graph.nodes[i].name for i in TiledConvs(graph, {TensorName("x")}).indices} == {"y"}
    builder = Builder(graph, [], {}, frozenset(), case.ranges, unbounded={TensorName("x"), TensorName("a")})
    assert not builder.possible


def test_a_convolution_without_outputs_stays() -> None:
    graph = Graph(
        model_of("(float[1,192,16,16] x) => (float[1,0,14,14] y)", "y = Conv(x, w)", {"w": floats(0, 192, 3, 3)})
    )
    assert not TiledConvs(graph).indices


def test_none_is_where_the_weights_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.qdq.tiled._MOST_BYTES", 36 * 192 * 192 * 4)
    assert a_case(call="a = Conv<@>(x, w, b) y = Conv<@>(a, w, b)").builder({}).possible == TILED
    monkeypatch.setattr("autoquant.qdq.tiled._MOST_BYTES", 36 * 192 * 192 * 4 - 1)
    assert not a_case().builder({}).possible


@pytest.mark.parametrize(
    "case",
    [
        a_case(n_written=160),
        a_case(n_written=60, size=(32, 32)),
        a_case(size=(14, 14)),
        a_case(size=(5, 61)),
        a_case(attributes="strides=[2,2]", size=(40, 40)),
        a_case(attributes="dilations=[2,2]", size=(24, 24)),
        a_case(attributes='auto_pad="SAME_UPPER"'),
        a_case(call="y = Conv<@, group=1>(x, x)", n_read=192, size=(3, 3), sample=192, attributes="pads=[8,8,8,8]"),
        a_case(sample=2),
        a_case(opset=12),
    ],
    ids=[
        "few channels for so few places",
        "few channels",
        "few places",
        "waste",
        "stride",
        "dilation",
        "auto_pad",
        "computed",
        "batch",
        "opset",
    ],
)
def test_others_stay(case: Case) -> None:
    assert Rewrite.TILED_CONVS not in case.builder({}).possible


def test_fewer_channels_are_worth_it_where_there_are_many_places() -> None:
    assert Rewrite.TILED_CONVS in a_case(n_read=96, n_written=96, size=(32, 32)).builder({}).possible
