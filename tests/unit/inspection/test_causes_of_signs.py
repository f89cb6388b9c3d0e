"""Causes that lie in signed types."""

import platform
from pathlib import Path

import numpy as np
import pytest

from autoquant.inspection.causes import UNKNOWN, causes_of
from autoquant.inspection.types import X86
from autoquant.inspection.written import Written
from tests.inspected import causes_in, graph_of, inspected
from tests.models import floats, model_of
from tests.qdq import Constant, Wrapped, pair, parameters


@pytest.mark.skipif(platform.machine() not in X86, reason="signed activations stay signed on other processors")
def test_a_signed_constant_is_named(tmp_path: Path) -> None:
    model = Wrapped("Add(x, c)", constants={"c": Constant((4, 1, 1))}, activation="s8").model
    assert causes_in(inspected(model, tmp_path)) == {
        "t": "s8 Add: on x86 onnxruntime makes signed activations unsigned, but the constant at input 1 is not changed,"
        " so types differ; use u8 activations"
    }


@pytest.mark.skipif(platform.machine() not in X86, reason="signed activations stay signed on other processors")
def test_a_signed_constant_that_is_computed_from_others_is_named(tmp_path: Path) -> None:
    values = {k: v for name in "xct" for k, v in parameters(name, "s8").items()}
    values |= {"f": floats(4), "shape": np.array([4, 1, 1])}
    body = f"{pair('x', 'x_d')} c = Reshape(f, shape) {pair('c', 'c_d')} t = Add(x_d, c_d) {pair('t', 'y')}"
    found = inspected(model_of("(float[1,4,6,6] x) => (float[1,4,6,6] y)", body, values), tmp_path)
    assert "the constant at input 1 is not changed" in causes_in(found)["t"]


@pytest.mark.skipif(platform.machine() not in X86, reason="signed activations stay signed on other processors")
def test_a_signed_activation_with_several_readers_is_named(tmp_path: Path) -> None:
    values = {k: v for name in "xab" for k, v in parameters(name, "s8").items()}
    body = f"{pair('x', 'x_d')} a = Sigmoid(x_d) b = Sigmoid(x_d) {pair('a', 'y')} {pair('b', 'z')}"
    found = inspected(model_of("(float[4] x) => (float[4] y, float[4] z)", body, values), tmp_path)
    assert set(causes_in(found)) == {"a", "b"}
    assert "but not 'x', which has 2 readers, so types differ" in causes_in(found)["a"]


@pytest.mark.skipif(platform.machine() not in X86, reason="signed activations stay signed on other processors")
def test_a_signed_activation_that_a_node_reads_twice_has_two_readers(tmp_path: Path) -> None:
    model = model_of(
        "(float[8,8] x) => (float y)", f"{pair('x', 'x_d')} t = MatMul(x_d, x_d) y = Exp(t)", parameters("x", "s8")
    )
    assert "but not 'x', which has 2 readers" in causes_in(inspected(model, tmp_path))["t"]


def test_signed_types_are_no_cause_on_other_processors() -> None:
    wrapped = Wrapped("Add(x, c)", constants={"c": Constant((4, 1, 1))}, activation="s8")
    graph = graph_of(wrapped.model)
    node = next(node for node in graph.nodes if node.name == "t")
    assert causes_of(node, graph, Written.QUANTIZED, "aarch64") == (UNKNOWN,)
    assert causes_of(node, graph, Written.QUANTIZED, "x86_64") != (UNKNOWN,)
