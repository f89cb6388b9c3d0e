"""What a step of a Loop computes of a slice and a state."""

import numpy as np
import pytest

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.rewrites.loops import Loop
from autoquant.rewrites.sums import Sum, Sums
from tests.models import floats
from tests.unit.rewrites.test_cells import LSTM, N_INPUTS, N_STATES, a_layer, constants


def the_sum(body: str) -> Sum | None:
    """Of what ``g`` is in the body before the cell."""
    graph = Graph(a_layer(f"{LSTM} {body}"))
    (node,) = (node for node in graph.nodes if node.op_type == "Loop")
    return Sums(Loop(graph, node), TensorName("h")).of(TensorName("out_"))


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        ("out_ = MatMul(t, w)", (N_INPUTS, 0, 4 * N_STATES)),
        ("out_ = MatMul(h, r)", (0, N_STATES, 4 * N_STATES)),
        ("a = MatMul(t, w) z0 = MatMul(h, r) out_ = Add(a, z0)", (N_INPUTS, N_STATES, 4 * N_STATES)),
        ("a = MatMul(t, w) z0, out_ = Split<axis=1, num_outputs=2>(a)", (N_INPUTS, 0, 2 * N_STATES)),
        ("a = MatMul(t, w) out_ = Slice(a, s1, e1, axes)", (N_INPUTS, 0, N_STATES)),
        ("a = MatMul(t, w) out_ = Slice(a, end, two, last)", (N_INPUTS, 0, 1)),
        ("out_ = Identity(b)", (0, 0, 0)),
    ],
)
def test_sizes_are_those_of_its_matrices(body: str, sizes: tuple[int, int, int]) -> None:
    found = the_sum(body)
    assert found is not None
    assert found.sizes == sizes


@pytest.mark.parametrize(
    "body",
    [
        "a = MatMul(t, w) out_ = Relu(a)",
        "a = Relu(t) out_ = MatMul(a, w)",
        "out_ = MatMul(k, r)",
        "a = MatMul(t, w) out_, z0 = Split<axis=0, num_outputs=2>(a)",
        "a = MatMul(t, w) out_, z0 = Split<axis=1>(a, uneven)",
        "a = MatMul(t, w) out_ = Slice(a, s1, e1)",
        "a = MatMul(t, w) out_ = Slice(a, first, two, last, two)",
        "a = MatMul(t, w) out_ = Slice(a, first, end, first)",
        "a = MatMul(t, w) z0 = Identity(i) z1 = Unsqueeze(z0, first) out_ = Slice(a, first, z1, last)",
        "out_ = Gemm<alpha=2.0>(t, w)",
        "out_ = Gemm<beta=2.0>(t, w, b)",
        "out_ = Gemm<transA=1>(h, w0)",
        "a = Concat<axis=0>(h, h) out_ = MatMul(a, r)",
        "a = Concat<axis=1>(t, k) out_ = MatMul(a, wr)",
        "out_ = Identity(w)",
        "a = MatMul(t, w) out_ = Add(a, column)",
        "z0 = Gather<axis=1>(x, i) out_ = MatMul(z0, w)",
        "z0 = Gather(x, step) out_ = MatMul(z0, w)",
    ],
)
def test_what_is_something_else_is_none(body: str) -> None:
    assert the_sum(body) is None


def test_columns_and_addition() -> None:
    one, other = Sum(of_input=floats(2, 6), bias=floats(6)), Sum(of_state=floats(3, 6), bias=np.array([2.0]))
    found = (one + other).columns(2, 4)
    assert found.sizes == (2, 3, 2)
    assert found.bias is not None
    np.testing.assert_allclose(found.bias, floats(6)[2:4] + 2)
    assert Sum(bias=np.array([2.0])).columns(2, 4).bias == 2.0


def test_a_product_is_that_of_the_constant() -> None:
    found = the_sum("out_ = MatMul(t, w)")
    assert found is not None
    np.testing.assert_array_equal(np.asarray(found.of_input), constants()["w"])


def test_what_is_added_to_itself_again_and_again_is_looked_at_once() -> None:
    doubled = " ".join(f"a{i + 1} = Add(a{i}, a{i})" for i in range(40))
    found = the_sum(f"a0 = MatMul(t, w) {doubled} out_ = Identity(a40)")
    assert found is not None
    np.testing.assert_allclose(np.asarray(found.of_input) / 2.0**40, np.asarray(constants()["w"], np.float64))
