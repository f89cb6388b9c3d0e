"""Nodes that lead to no output."""

import numpy as np
import pytest
from onnx import numpy_helper, parser

from autoquant.rewrites.unread import drop_unread
from tests.models import a_convnet, floats, model_of

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def test_what_leads_to_no_output_goes_with_its_constants() -> None:
    body = "a = MatMul(x, wa) dead = MatMul(a, wd) deader = Relu(dead) y = Relu(a)"
    model = model_of("(float[2,4] x) => (float[2,4] y)", body, {"wa": floats(4, 4), "wd": floats(4, 4)})
    found = drop_unread(model)
    assert [node.output[0] for node in found.graph.node] == ["a", "y"]
    assert [tensor.name for tensor in found.graph.initializer] == ["wa"]
    assert len(model.graph.node) == 4


def test_a_model_without_such_nodes_is_given_back() -> None:
    model = a_convnet()
    assert drop_unread(model) is model


def test_constants_that_nothing_reads_go() -> None:
    model = a_convnet()
    model.graph.initializer.append(numpy_helper.from_array(floats(64, 64), "unread"))
    assert drop_unread(model) == a_convnet()


def test_one_read_output_of_several_keeps_a_node() -> None:
    model = model_of("(float[2,4] x) => (float[1,4] z)", "y, z = Split<num_outputs=2>(x)", {})
    assert drop_unread(model) is model


def test_what_a_body_at_any_depth_reads_stays() -> None:
    body = """agraph (bool c, float[4] x) => (float[4] y) {
        deep = Relu(x) given = Neg(x) dead = Exp(x)
        y = If (c) <
            then_branch = then () => (float[4] t) {
                t = If (c) <
                    then_branch = inner () => (float[4] i) { i = Identity(deep) },
                    else_branch = other () => (float[4] o) { o = Abs(x) }
                >
            },
            else_branch = else () => (float[4] e) { e = Identity(given) }
        >
    }"""
    model = parser.parse_model(HEAD + body)
    assert [node.output[0] for node in drop_unread(model).graph.node] == ["deep", "given", "y"]


def test_constants_that_are_outputs_stay() -> None:
    body = "dead = Exp(x) y = Relu(x)"
    model = model_of("(float[4] x) => (float[4] y, float[2] k)", body, {"k": np.zeros(2, np.float32)})
    assert [tensor.name for tensor in drop_unread(model).graph.initializer] == ["k"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y, i = MaxPool<kernel_shape=[2,2]>(x)", ["y"]),
        ("t, i = MaxPool<kernel_shape=[2,2]>(x) j = Cast<to=1>(i) y = Add(t, j)", ["t", "i"]),
    ],
)
def test_optional_outputs_that_nothing_reads_go(body: str, expected: list[str]) -> None:
    model = model_of("(float[1,1,4,4] x) => (float[1,1,3,3] y)", body, {})
    assert list(drop_unread(model).graph.node[0].output) == expected


def test_outputs_of_other_domains_stay() -> None:
    body = "y, m = com.microsoft.SkipLayerNormalization(x, x, g)"
    model = model_of("(float[1,2,4] x) => (float[1,2,4] y)", body, {"g": floats(4)})
    assert drop_unread(model) is model
