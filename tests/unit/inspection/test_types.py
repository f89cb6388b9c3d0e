"""Rules alone; that onnxruntime follows them is seen in test_causes.py and in the table of kernels."""

import pytest

from autoquant.inspection.types import type_causes
from tests.inspected import graph_of
from tests.models import model_of
from tests.qdq import Constant, Wrapped, pair, parameters, stored


def causes(wrapped: Wrapped, machine: str, *positions: int) -> list[str]:
    graph = graph_of(wrapped.model)
    node = next(node for node in graph.nodes if node.name == "t")
    return list(type_causes(node, positions, graph, machine))


@pytest.mark.parametrize("machine", ["x86_64", "AMD64", "arm64", "aarch64"])
@pytest.mark.parametrize("activation", ["u8", "s8", "u16"])
def test_equal_types_are_no_cause(activation: str, machine: str) -> None:
    assert causes(Wrapped("Sigmoid(x)", activation=activation), machine, 0) == []


@pytest.mark.parametrize(("machine", "n_causes"), [("x86_64", 0), ("aarch64", 1)])
def test_signed_beside_unsigned_differs_where_pairs_stay_signed(machine: str, n_causes: int) -> None:
    found = causes(Wrapped("Sigmoid(x)", activation="u8", output="s8"), machine, 0)
    assert found == ["input and output types differ (uint8 in, int8 out)"] * n_causes


@pytest.mark.parametrize(("machine", "n_causes"), [("x86_64", 1), ("aarch64", 0)])
def test_a_signed_constant_differs_where_pairs_become_unsigned(machine: str, n_causes: int) -> None:
    wrapped = Wrapped("Add(x, c)", constants={"c": Constant((1,))}, activation="s8")
    found = causes(wrapped, machine, 0, 1)
    assert len(found) == n_causes
    assert all("the constant at input 1 is not changed" in cause for cause in found)


def test_a_product_of_signed_activations_that_all_stay_signed_has_no_kernel_on_x86() -> None:
    """Seen in s8s8 models: the tensor before has two readers, and the tensor behind too."""
    values = {k: v for name in "xt" for k, v in parameters(name, "s8").items()} | stored("w", Constant((8, 8)))
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear(w_q, w_s, w_z) t = MatMul(x_d, w_d) {pair("t", "t_d")}
               a = Exp(x_d) b = Exp(t_d) c = Sin(t_d)"""
    signature = "(float[8,8] x) => (float[8,8] a, float[8,8] b, float[8,8] c)"
    graph = graph_of(model_of(signature, body, values))
    (node,) = (node for node in graph.nodes if node.name == "t")
    (cause,) = type_causes(node, [0], graph, "x86_64")
    assert "but not 'x', which has 2 readers, and the integer kernel takes unsigned ones only" in cause
    assert list(type_causes(node, [0], graph, "aarch64")) == []
