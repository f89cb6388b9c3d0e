from collections.abc import Mapping

import numpy as np
import pytest

from autoquant.domain.scheme import Scheme
from autoquant.model.graph import Graph
from autoquant.model.rewrite import infer_shapes
from autoquant.qdq.flattened import flattened_products
from autoquant.rewrites.fusions import lower_matmul
from tests.graphs import U8S8_CHANNEL, Case, case_of, exact, run, scheme
from tests.models import Array, floats, model_of, op_types

DYNAMIC = scheme("u8:tensor:asym", "s8:channel:sym:unsaturated", ranges="dynamic")
BLOCKS = scheme("s8:block-16:sym", "s8:block-16:sym", ranges="dynamic")
WIDE = "(float[2,3,8] x) => (float[2,3,6] y)"
WEIGHTS: Mapping[str, Array | float] = {"w": floats(8, 6), "b": floats(6), "v": floats(6, 6, seed=1)}


def lowered(signature: str, body: str, constants: Mapping[str, Array | float] = WEIGHTS) -> Case:
    return case_of(infer_shapes(lower_matmul(model_of(signature, body, constants))))


@pytest.mark.parametrize("taken", [DYNAMIC, BLOCKS], ids=str)
@pytest.mark.parametrize("body", ["y = MatMul(x, w)", "m = MatMul(x, w) y = Add(m, b)"])
def test_a_product_that_quantizes_what_it_reads_has_no_reshapes(body: str, taken: Scheme) -> None:
    case = lowered(WIDE, body)
    assert op_types(case.graph.model) == ["Reshape", "Gemm", "Reshape"]
    ours = case.quantized(taken)
    assert "Reshape" not in op_types(ours.model)
    (found,), (expected,) = run(ours.model, case.feed), run(case.graph.model, case.feed)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=0.05 * np.abs(expected).max())


@pytest.mark.parametrize("sizes", ["1,T", "T,2"])
def test_of_one_size_that_is_not_known_too(sizes: str) -> None:
    model = model_of(f"(float[{sizes},8] x) => (float[{sizes},6] y)", "m = MatMul(x, w) y = Add(m, b)", WEIGHTS)
    graph = Graph(infer_shapes(lower_matmul(model)))
    assert op_types(graph.model) == ["Reshape", "Gemm", "Reshape"]
    assert len(flattened_products(graph)) == 1


def test_a_vector_that_gives_the_product_dimensions_is_no_bias() -> None:
    case = lowered(
        "(float[2,3,8] x) => (float[?,?,?,?] y)",
        "m = MatMul(x, w) y = Add(m, far)",
        {**WEIGHTS, "far": floats(1, 1, 1, 6)},
    )
    assert not flattened_products(case.graph)
    (found,), (expected,) = run(case.quantized(DYNAMIC).model, case.feed), run(case.graph.model, case.feed)
    assert found.shape == expected.shape == (1, 2, 3, 6)


def test_of_two_sizes_that_are_not_known_reshapes_stay() -> None:
    """Rows may be others behind: their number alone is the same."""
    body = "f = Reshape(x, flat) p = Gemm(f, w) y = Reshape(p, n)"
    constants = {"flat": np.array([-1, 8]), "w": floats(8, 6)}
    graph = Graph(infer_shapes(model_of("(float[A,B,8] x, int64[3] n) => (float[A,B,6] y)", body, constants)))
    assert not flattened_products(graph)


def test_float_and_static_products_keep_theirs() -> None:
    case = lowered(WIDE, "a = MatMul(x, w) y = MatMul(a, v)")
    first, second = (node.name for node in case.graph.nodes if node.op_type == "Gemm")
    for taken in (None, exact(U8S8_CHANNEL)):
        ours = case.quantized(None, {first: taken, second: DYNAMIC})
        assert op_types(ours.model).count("Reshape") == 2
        (found,), (expected,) = run(ours.model, case.feed), run(case.graph.model, case.feed)
        np.testing.assert_allclose(found, expected, atol=0.1 * np.abs(expected).max())


def test_one_quantization_serves_all_products_of_a_tensor() -> None:
    case = lowered(WIDE, "r = Relu(x) a = MatMul(r, w) c = MatMul(r, u) y = Mul(a, c)", {**WEIGHTS, "u": floats(8, 6)})
    assert op_types(case.quantized(DYNAMIC).model).count("DynamicQuantizeLinear") == 1


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("(float[2,3,8] x) => (float[6,6] y)", "f = Reshape(x, flat) y = Gemm(f, w)"),
        ("(float[2,3,8] x) => (float[3,2,6] y)", "f = Reshape(x, flat) p = Gemm(f, w) y = Reshape(p, turned)"),
        (
            "(float[2,3,8] x) => (float[2,3,6] y, float[6,8] f)",
            "f = Reshape(x, flat) p = Gemm(f, w) y = Reshape(p, back)",
        ),
        (
            "(float[2,3,8] x) => (float[2,3,6] y, float[6,6] p)",
            "f = Reshape(x, flat) p = Gemm(f, w) y = Reshape(p, back)",
        ),
        ("(float[2,4,6] x) => (float[2,3,6] y)", "f = Reshape(x, flat) p = Gemm(f, w) y = Reshape(p, back)"),
        ("(float[6,8] x) => (float[2,3,6] y)", "p = Gemm(x, w) y = Reshape(p, back)"),
        ("(float[n,8] x) => (float[2,3,6] y)", "f = Reshape(x, flat) p = Gemm(f, w) y = Reshape(p, back)"),
        ("(float[2,3,8] x) => (float[2,3,1] y)", "f = Reshape(x, flat) p = Gemm(f, column) y = Reshape(p, single)"),
    ],
)
def test_other_reshapes_stay(signature: str, body: str) -> None:
    sizes = {"flat": [6, 8], "back": [2, 3, 6], "turned": [3, 2, 6], "single": [2, 3, 1]}
    constants = {name: np.array(size, np.int64) for name, size in sizes.items() if name in body}
    weights = {"w": floats(8, 6)} if "column" not in body else {"column": floats(8, 1)}
    graph = Graph(infer_shapes(model_of(signature, body, {**weights, **constants})))
    assert not flattened_products(graph)


def test_a_reshape_between_two_products_belongs_to_the_first() -> None:
    sizes = {"flat": np.array([6, 6], np.int64), "back": np.array([6, 6], np.int64)}
    body = "f = Reshape(x, flat) p = Gemm(f, v) r = Reshape(p, back) q = Gemm(r, v) y = Reshape(q, flat)"
    graph = Graph(infer_shapes(model_of("(float[6,6] x) => (float[6,6] y)", body, {"v": floats(6, 6), **sizes})))
    assert [graph.nodes[i].name for i in flattened_products(graph)] == ["p"]
