"""Nodes in a row in place of one."""

import numpy as np

from autoquant.model.copies import copy_of
from autoquant.model.graph import Graph
from autoquant.rewrites.chain import Chain, of_each_chain
from tests.models import model_of, op_types


@of_each_chain(13)
def double(graph: Graph, chain: Chain) -> None:
    """A Relu of vectors twice."""
    if chain.node.op_type == "Relu" and graph.rank(chain.node.inputs[0]) == 1:
        chain.add("Relu", part="first")
        chain.add("Mul", {"two": np.float32(2)})


def test_what_adds_to_chains_becomes_a_rewrite_of_models_under_its_name() -> None:
    model = model_of("(float[2] x) => (float[2] y)", "a = Abs(x) y = Relu(a)")
    original = copy_of(model)
    assert op_types(double(model)) == ["Abs", "Relu", "Mul"]
    assert model == original
    assert (getattr(double, "__name__", None), double.__doc__) == ("double", "A Relu of vectors twice.")


def test_a_model_without_any_chain_or_of_an_older_opset_is_given_back() -> None:
    matrix = model_of("(float[2,2] x) => (float[2,2] y)", "y = Relu(x)")
    older = model_of("(float[2] x) => (float[2] y)", "y = Relu(x)", opset=12)
    assert double(matrix) is matrix
    assert double(older) is older
