from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from autoquant.graph.preprocess import prepare
from autoquant.model.order import sort_nodes
from tests.models import a_convnet, feed_of, model_of, outputs_of, saved

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


@given(st.permutations(range(5)))
def test_any_order_becomes_one_in_which_nodes_can_run(order: list[int]) -> None:
    body = "a = Relu(x) b = Neg(x) c = Add(a, b) d = Exp(a) y = Mul(c, d)"
    model = model_of("(float[4] x) => (float[4] y)", body, {})
    nodes = list(model.graph.node)
    model.graph.ClearField("node")
    model.graph.node.extend(nodes[index] for index in order)
    sort_nodes(model.graph)
    known = {"x"}
    for node in model.graph.node:
        assert known.issuperset(node.input)
        known.update(node.output)
    assert known == {"x", "a", "b", "c", "d", "y"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Add(b, a) b = Relu(x) a = Neg(x)", ["b", "a", "y"]),
        ("a = Neg(x) b = Relu(x) y = Add(b, a)", ["a", "b", "y"]),
        ("a = Add(b, x) b = Add(a, x) y = Neg(a)", ["a", "b", "y"]),
    ],
)
def test_as_it_was_as_far_as_that_can_be(body: str, expected: list[str]) -> None:
    model = parser.parse_model(f"{HEAD} agraph (float[4] x) => (float[4] y) {{ {body} }}")
    sort_nodes(model.graph)
    assert [node.output[0] for node in model.graph.node] == expected


def test_what_a_body_reads_comes_before_its_node() -> None:
    text = """agraph (bool c, float[4] x) => (float[4] y) {
        y = If (c) <
            then_branch = then () => (float[4] t) { t = Identity(late) },
            else_branch = else () => (float[4] e) { e = Identity(x) }
        >
        late = Relu(x)
    }"""
    model = parser.parse_model(HEAD + text)
    sort_nodes(model.graph)
    assert [node.op_type for node in model.graph.node] == ["Relu", "If"]


def test_a_file_whose_nodes_come_in_another_order_is_prepared(tmp_path: Path) -> None:
    model = a_convnet()
    nodes = list(model.graph.node)
    model.graph.ClearField("node")
    model.graph.node.extend(reversed(nodes))
    prepared = prepare(saved(model, tmp_path / "model.onnx"), [feed_of(model)])
    for expected, found in zip(
        outputs_of(prepared.source, feed_of(model)), outputs_of(prepared.graph.model, feed_of(model)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
