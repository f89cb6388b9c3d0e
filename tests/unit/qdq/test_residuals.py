import numpy as np
import onnx
import pytest

from autoquant.domain.target import Target
from autoquant.model.excerpts import Excerpt
from autoquant.model.graph import Graph
from autoquant.model.rewrite import infer_shapes
from autoquant.qdq.residuals import residual_adds, residual_excerpts
from autoquant.runtime.session import open_session
from tests.models import floats, model_of

CONSTANTS = {
    "gamma": floats(8),
    "beta": floats(8),
    "one": np.ones((1, 6, 8), np.float32),
}


def graph_of(body: str, first: str = "float[1,6,8] a") -> Graph:
    used = {name: value for name, value in CONSTANTS.items() if f", {name}" in body}
    return Graph(
        infer_shapes(model_of(f"({first}, float[1,6,8] b, float[1,3,8] c) => (float[] y, float[] z)", body, used))
    )


def op_types(found: Excerpt) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(found.model).graph.node]


def test_the_largest_one_is_taken_with_all_norms_behind_it() -> None:
    graph = graph_of(
        """p = Add(c, c) z = LayerNormalization(p, gamma, beta) s = Add(a, b) n = LayerNormalization(s, gamma, beta)
           m = LayerNormalization(s, gamma) y = Sub(n, m)"""
    )
    assert residual_adds(graph) == {0, 2}
    found = residual_excerpts(graph, {0, 2})
    assert found is not None
    assert [each.shapes for each in found] == [{"a": (1, 6, 8), "b": (1, 6, 8)}] * 2
    assert op_types(found[0]) == ["Add", "LayerNormalization", "LayerNormalization"]
    assert op_types(found[1]) == ["Sum", "LayerNormalization", "LayerNormalization"]
    feed = {"a": floats(1, 6, 8), "b": floats(1, 6, 8)}
    first, second = (open_session(each.model, Target()).run(None, feed) for each in found)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_what_a_norm_alone_reads_comes_before_larger_ones_that_others_read_too() -> None:
    graph = graph_of(
        """s = Add(a, b) n = LayerNormalization(s, gamma, beta) y = Add(s, n) p = Add(c, c)
           z = LayerNormalization(p, gamma, beta)"""
    )
    assert residual_adds(graph) == {0, 3}
    found = residual_excerpts(graph, {0, 3})
    assert found is not None
    assert found[0].shapes == {"c": (1, 3, 8)}


def test_there_is_nothing_to_run_alone_where_sizes_are_not_known() -> None:
    graph = graph_of("s = Add(a, b) y = LayerNormalization(s, gamma, beta) z = Neg(c)", "float[N,6,8] a")
    assert residual_excerpts(graph, {0}) is None


@pytest.mark.parametrize("add", ["s = Add(a, one)", "s = Sub(a, b)"])
def test_others_are_no_residuals(add: str) -> None:
    assert residual_adds(graph_of(f"{add} y = LayerNormalization(s, gamma, beta) z = Neg(c)")) == frozenset()
