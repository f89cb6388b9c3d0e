"""Norms that are written as nodes: which are found, and what lets onnxruntime fuse them."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.graph.rewriting import fast_kernels
from autoquant.model.graph import Graph
from autoquant.model.norms import find_norms
from autoquant.rewrites.fusions import divide_by_roots, scale_norms
from tests.graphs import optimized
from tests.models import Array, feed_of, floats, model_of, op_types, outputs_of, used_in

ROOT = "m = ReduceMean(q, axes) v = Add(m, e) s = Sqrt(v)"
RMS = f"q = Pow(x, two) {ROOT}"
CENTRED = f"c = ReduceMean(x, axes) d = Sub(x, c) q = Pow(d, two) {ROOT} n = Div(d, s)"
NODES = ["Pow", "ReduceMean", "Add", "Sqrt", "Div"]
CONSTANTS: dict[str, Array | float] = {
    "axes": np.array([-1]),
    "last": np.array([2]),
    "middle": np.array([1]),
    "both": np.array([1, 2]),
    "e": 1e-5,
    "eight": floats(8) ** 2,
    "two": 2.0,
    "three": 3.0,
    "w": floats(8),
    "b": floats(8, seed=1),
    "row": floats(1, 8),
    "one": 0.5,
}


def norm_of(body: str, outputs: str = "float[2,3,8] y", size: str = "8", opset: int = 21) -> onnx.ModelProto:
    return model_of(f"(float[2,3,{size}] x) => ({outputs})", body, used_in(body, CONSTANTS), opset=opset)


def assert_same_outputs(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    onnx.checker.check_model(after, full_check=True)
    feed = feed_of(before)
    for expected, found in zip(outputs_of(before, feed), outputs_of(after, feed), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        f"{RMS} y = Div(x, s)",
        f"{RMS} n = Div(x, s) y = Mul(n, one)",
        f"{RMS} n = Div(x, s) y = Mul(row, n)",
        f"{RMS} n = Div(x, s) y = Mul(n, x)",
        f"{RMS.replace('axes', 'last').replace('m, e', 'e, m')} y = Div(x, s)",
        f"{RMS} r = Reciprocal(s) y = Mul(x, r)",
        f"{RMS.replace('Pow(x, two)', 'Mul(x, x)')} y = Div(x, s)",
        f"{RMS} n = Div(x, s) f = Exp(n) g = Neg(n) y = Add(f, g)",
    ],
    ids=["bare", "a number", "a row", "an activation", "by axis", "reciprocal", "squared by Mul", "read twice"],
)
def test_a_norm_without_a_scale_gets_one_of_ones_and_is_fused(body: str, tmp_path: Path) -> None:
    model = norm_of(body)
    found = scale_norms(divide_by_roots(model))
    assert op_types(found)[: len(NODES) + 1] == [*NODES, "Mul"]
    assert_same_outputs(model, found)
    assert optimized(found, tmp_path).kernels[0] == "SimplifiedLayerNormalization"
    assert "SimplifiedLayerNormalization" not in optimized(model, tmp_path).kernels


def test_axes_may_be_attributes(tmp_path: Path) -> None:
    model = norm_of(f"{RMS.replace('ReduceMean(q, axes)', 'ReduceMean<axes=[2]>(q)')} y = Div(x, s)", opset=13)
    found = scale_norms(model)
    assert_same_outputs(model, found)
    assert optimized(found, tmp_path).kernels == ("SimplifiedLayerNormalization",)


def test_a_norm_with_a_scale_squares_by_pow(tmp_path: Path) -> None:
    model = norm_of(f"q = Mul(x, x) {ROOT} n = Div(x, s) y = Mul(n, w)")
    found = scale_norms(model)
    assert op_types(found) == [*NODES, "Mul"]
    assert_same_outputs(model, found)
    assert optimized(found, tmp_path).kernels == ("SimplifiedLayerNormalization",)


def test_what_has_its_mean_subtracted_is_a_norm_of_that(tmp_path: Path) -> None:
    model = norm_of(CENTRED.replace("n = Div", "y = Div"))
    found = scale_norms(model)
    assert_same_outputs(model, found)
    assert optimized(found, tmp_path).kernels == ("ReduceMean", "Sub", "SimplifiedLayerNormalization")


@pytest.mark.parametrize(
    "body",
    [
        f"{RMS} n = Div(x, s) y = Mul(n, w)",
        f"{CENTRED} k = Mul(n, w) y = Add(k, b)",
        f"{RMS.replace('axes', 'middle')} y = Div(x, s)",
        f"{RMS.replace('axes', 'both')} y = Div(x, s)",
        f"{RMS.replace('two', 'three')} y = Div(x, s)",
        f"{RMS.replace('v = Add(m, e)', 'v = Add(m, eight)')} y = Div(x, s)",
        f"{RMS.replace('v = Add(m, e)', 'v = Add(m, m)')} y = Div(x, s)",
        f"z = Exp(x) {RMS} y = Div(z, s)",
        f"{RMS} y = Div(s, x)",
        "r = Relu(x) s = Sqrt(r) y = Div(x, s)",
        "y = Div(x, e)",
    ],
    ids=[
        *("scaled", "scaled and shifted", "middle", "two axes", "cubes", "vector", "no number", "other", "turned"),
        *("no mean", "no root"),
    ],
)
def test_other_divisions_stay(body: str) -> None:
    model = norm_of(body)
    assert scale_norms(model) is model


@pytest.mark.parametrize("tensor", ["q", "m", "v", "s"])
@pytest.mark.parametrize("is_output", [True, False])
def test_a_norm_of_which_a_part_is_read_elsewhere_stays(tensor: str, is_output: bool) -> None:
    body, name = f"{RMS} y = Div(x, s)", tensor
    if not is_output:
        body, name = f"{body} z = Exp({tensor})", "z"
    model = norm_of(body, f"float[2,3,8] y, float[] {name}")
    assert scale_norms(model) is model


@pytest.mark.parametrize("size", ["N", "1"])
def test_a_norm_of_unknown_or_of_one_element_stays(size: str) -> None:
    model = norm_of(f"{RMS} y = Div(x, s)", f"float[2,3,{size}] y", size)
    assert scale_norms(model) is model


def test_one_whose_mean_keeps_no_axis_stays() -> None:
    model = norm_of(f"{RMS.replace('ReduceMean(', 'ReduceMean<keepdims=0>(')} y = Div(x, s)", "float[] y", "3")
    assert scale_norms(model) is model


def test_the_nodes_of_a_norm_are_all_that_onnxruntime_fuses() -> None:
    graph = Graph(norm_of(f"{CENTRED} k = Mul(n, w) f = Add(k, b) g = Mul(f, w) y = Add(g, b)"))
    (norm,) = find_norms(graph)
    assert [graph.nodes[i].outputs[0] for i in sorted(norm.nodes)] == list("cdqmvsnkf")
    assert norm.source == "x"
    plain = Graph(norm_of(f"{RMS} n = Div(x, s) k = Mul(n, w) y = Add(k, b)"))
    assert [plain.nodes[i].outputs[0] for i in sorted(plain.norm_nodes)] == list("qmvsnk")


def test_a_mean_that_others_read_is_no_part_of_a_norm() -> None:
    graph = Graph(norm_of(f"{CENTRED} y = Mul(n, w) z = Exp(d)", "float[2,3,8] y, float[2,3,8] z"))
    assert graph.norms[0].source == "d"
    assert not find_norms(Graph(norm_of("y = Relu(x)")))


def test_other_providers_than_the_cpu_get_norms_as_they_are() -> None:
    assert scale_norms in fast_kernels(is_for_cpu=True)
    assert scale_norms not in fast_kernels(is_for_cpu=False)
