"""Graphs that are indexed once."""

import onnx
import pytest

from autoquant.errors import ModelError
from autoquant.graph.rewriting import rewritten
from autoquant.model.graph import Graph
from autoquant.model.kept import graph_of, keeping_the_last_graph
from tests.models import floats, model_of


def a_model() -> onnx.ModelProto:
    return model_of("(float[1,4] x) => (float[1,4] y)", "y = MatMul(x, w)", {"w": floats(4, 4)})


def test_the_last_graph_is_given_again_for_the_same_model_alone() -> None:
    model, other = a_model(), a_model()
    with keeping_the_last_graph():
        first = graph_of(model)
        assert graph_of(model) is first
        second = graph_of(other)
        assert second.model is other
        assert graph_of(model) is not first


def test_outside_none_is_kept() -> None:
    model = a_model()
    assert graph_of(model) is not graph_of(model)
    with keeping_the_last_graph():
        first = graph_of(model)
    assert graph_of(model) is not first


def test_rewrites_that_find_nothing_share_a_graph_and_one_that_fails_ends_it() -> None:
    seen: list[Graph] = []

    def look(model: onnx.ModelProto) -> onnx.ModelProto:
        seen.append(graph_of(model))
        return model

    def fail(model: onnx.ModelProto) -> onnx.ModelProto:
        raise ValueError(model.graph.name)

    with pytest.raises(ModelError, match="ValueError"):
        rewritten(a_model(), (look, look, fail))
    first, second = seen
    assert first is second
    assert graph_of(first.model) is not first
