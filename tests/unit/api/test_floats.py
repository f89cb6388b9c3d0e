"""What stays float is said with the reason."""

import numpy as np
import pytest
from onnx import helper

from autoquant.api.floats import float_sentences, nothing_to_quantize, outside_sentences
from autoquant.graph.regions import find_regions
from autoquant.model.graph import Graph
from autoquant.model.ops import is_quantizable
from tests.models import floats, model_of


def test_of_a_model_whose_operators_are_all_in_bodies_that_is_said() -> None:
    nothing = model_of("(float[2] x) => (float[2] y)", "y = Sin(x)")
    bodies = model_of(
        "(float[2] x, bool c) => (float[2] y)",
        "y = If(c) <then_branch = t () => (float[2] u) { u = Sin(x) },"
        " else_branch = e () => (float[2] v) { v = Cos(x) }>",
    )
    halves, doubles = (model_of(f"({kind}[2] x) => ({kind}[2] y)", "y = Relu(x)") for kind in ("float16", "double"))
    ends = model_of("(float16[2] x) => (float16[2] y)", "a = Cast<to=1>(x) b = Relu(a) y = Cast<to=10>(b)")
    for model in (nothing, ends):
        assert nothing_to_quantize(Graph(model)).endswith("no operator that could be quantized, so it stays float")
    assert "quantized outside of the bodies of If, Loop and Scan, so" in nothing_to_quantize(Graph(bodies))
    assert nothing_to_quantize(Graph(halves)).endswith(
        "; give the float32 model that it was made from, as it is in float16"
    )
    assert nothing_to_quantize(Graph(doubles)).endswith("as it is in float64")
    scaler = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.5], scale=[2.0])
    for model in (halves, doubles):
        model.graph.node[0].CopyFrom(scaler)
        assert nothing_to_quantize(Graph(model)).endswith("could be quantized, so it stays float")


STAY = "in no region, so that they stay float: "


def test_products_that_are_in_no_region_are_counted_inside_of_bodies_too() -> None:
    model = model_of(
        "(float[1,4,5,5] x, bool c) => (float[1,4,5,5] y)",
        "a = Conv(x, w) b = ConvTranspose(a, w) y = If(c) <then_branch = t () => (float[1,4,5,5] u)"
        " { i = Conv(b, w) u = Conv(i, w) }, else_branch = e () => (float[1,4,5,5] v) { v = Relu(b) }>",
        {"w": floats(4, 4, 1, 1)},
    )
    graph = Graph(model)
    (said,) = float_sentences(graph, find_regions(graph, [graph.nodes[0].name]))
    assert said == STAY + "1 ConvTranspose (no scheme takes it), 2 Conv in bodies of If, Loop or Scan"
    (said,) = float_sentences(graph, find_regions(graph, [node.name for node in graph.nodes]))
    assert said == STAY + "2 Conv in bodies of If, Loop or Scan"


def test_products_that_decide_how_large_something_is_are_counted_apart() -> None:
    body = "h = MatMul(x, w) e = Gemm(x, w) i = Cast<to=7>(h) f = Flatten<axis=0>(i) y = Expand(e, i)"
    graph = Graph(model_of("(float[1,2] x) => (float[M,N] y)", body, {"w": floats(2, 2)}))
    of_sizes = "1 MatMul (decides how large other tensors are, as layers that predict durations)"
    assert float_sentences(graph, find_regions(graph, [graph.nodes[1].name])) == [STAY + of_sizes]
    assert float_sentences(graph, ()) == [f"{STAY}{of_sizes}, 1 Gemm (no scheme takes it)"]


@pytest.mark.parametrize(
    ("product", "why"),
    [
        ("y = Gemm(x, v)", "Gemm (weights that are computed)"),
        ("y = Gemm<alpha: float = 0.5>(x, w)", "Gemm (an alpha other than 1)"),
        ("y = Gemm(x, w, b)", "Gemm (biases that are not one constant for each output)"),
        ("y = Gemm(w, w)", "Gemm (products of constants)"),
        ("y = MatMul(x, infinite)", "MatMul (weights that are not finite float32)"),
        ('y = Einsum<equation = "ij,jk->ik">(x, v)', "Einsum (no integer kernel)"),
    ],
)
def test_why_a_product_stays_float_is_said(product: str, why: str) -> None:
    """Each of these is_quantizable refuses, too, as one function decides both."""
    constants = {"w": floats(2, 2), "b": floats(2, 2), "infinite": np.full((2, 2), np.inf, np.float32)}
    graph = Graph(model_of("(float[2,2] x, float[2,2] v) => (float[2,2] y)", product, constants))
    assert not is_quantizable(graph.nodes[0], graph)
    assert float_sentences(graph, ()) == [f"{STAY}1 {why}"]


def test_how_much_of_the_latency_is_in_no_region_is_said_by_type_largest_first() -> None:
    said = outside_sentences({"Sin": 0.0312, "Softmax": 0.2, "Add": 0.015})
    assert said == [
        "operators in no region take 25% of float's latency, whatever the search finds: Softmax 20%, Sin 3%"
    ]


@pytest.mark.parametrize("shares", [{}, {"Sin": 0.09}, dict.fromkeys(("Sin", "Cos", "Tan"), 0.03)])
def test_little_latency_in_no_region_is_not_worth_a_sentence(shares: dict[str, float]) -> None:
    assert outside_sentences(shares) == []
