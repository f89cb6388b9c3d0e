"""Names that onnxruntime gives to what is in functions when it inlines them."""

import numpy as np

from autoquant.model.subgraphs import graphs_of
from autoquant.rewrites.inlined import rename_inlined
from tests.models import Array, model_of
from tests.rewriting import rewritten


def test_tensors_and_constants_inside_get_other_names() -> None:
    body = "_inlfunc_a = Add(x, _inlfunc_c) a = Neg(x) b = Mul(_inlfunc_a, a) y = Relu(b)"
    model = model_of("(float[2] x) => (float[2] y)", body, {"_inlfunc_c": 1.0})
    found = rewritten(rename_inlined, model)
    assert [node.output[0] for node in found.graph.node] == ["a_", "a", "b", "y"]
    assert [tensor.name for tensor in found.graph.initializer] == ["c"]
    assert {value.name for value in found.graph.value_info} == {"a_", "a", "b"}


def test_so_do_those_of_bodies_and_what_these_read() -> None:
    branches = (
        "then_branch = t () => (float[2] u) { _inlfunc_b = Exp(_inlfunc_a) u = Neg(_inlfunc_b) },"
        " else_branch = e () => (float[2] _inlfunc_v) { _inlfunc_v = Relu(_inlfunc_a) }"
    )
    model = model_of("(float[2] x, bool c) => (float[2] y)", f"_inlfunc_a = Add(x, x) y = If(c) <{branches}>")
    feed: dict[str, Array] = {"x": np.ones(2, np.float32), "c": np.array(True)}
    found = rewritten(rename_inlined, model, feed)
    names = [name for graph in graphs_of(found.graph) for node in graph.node for name in (*node.input, *node.output)]
    assert sorted(set(names)) == ["a", "b", "c", "u", "v", "x", "y"]


def test_outputs_keep_theirs_and_other_models_stay() -> None:
    model = model_of("(float[2] x) => (float[2] _inlfunc_y)", "_inlfunc_y = Relu(x)")
    assert rename_inlined(model) is model
