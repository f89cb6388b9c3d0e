"""Large weights, which sessions are given apart from the model."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autoquant.graph.preprocess import prepare
from tests.models import constants_of, floats, model_of, op_types, saved
from tests.unit.graph.preprocessed import assert_equals_original, feeds_of

SIGNATURE = "(float[1,64] x) => (float[1,64] y)"


def test_a_large_weight_that_nothing_reads_is_left_out(path: Path) -> None:
    model = model_of(SIGNATURE, "y = MatMul(x, w)", {"w": floats(64, 64), "unread": floats(64, 64)})
    prepared = prepare(saved(model, path), feeds_of(1, 64))
    assert (prepared.notes, list(constants_of(prepared.graph.model))) == ((), ["w"])
    assert_equals_original(prepared, feeds_of(1, 64))


@pytest.mark.parametrize("size", [4, 64])
def test_which_of_two_weights_with_one_name_counts_is_left_to_onnxruntime(path: Path, size: int) -> None:
    model = model_of(f"(float[1,{size}] x) => (float[1,{size}] y)", "y = MatMul(x, w)", {"w": floats(size, size)})
    model.graph.initializer.append(numpy_helper.from_array(floats(size, size, seed=1), "w"))
    prepared = prepare(saved(model, path), feeds_of(1, size))
    assert prepared.notes == ()
    assert_equals_original(prepared, feeds_of(1, size))


@pytest.mark.parametrize("size", [4, 64])
@pytest.mark.parametrize("is_shadowing", [False, True])
def test_constants_of_bodies_are_no_reason_against_folding(path: Path, size: int, is_shadowing: bool) -> None:
    """onnxruntime 1.28 writes those that are external data twice."""
    name = "w" if is_shadowing else "v"

    def body(op_type: str, *inputs: str) -> onnx.GraphProto:
        node = helper.make_node(op_type, inputs, [f"{op_type}_out"])
        inner = [numpy_helper.from_array(floats(size, size, seed=1), name)] if name in inputs else []
        return helper.make_graph([node], op_type, [], [helper.make_empty_tensor_value_info(f"{op_type}_out")], inner)

    model = model_of(
        f"(float[{size},{size}] x, bool p) => (float[{size},{size}] y)",
        "h = MatMul(x, w) two = Add(one, one) z = Mul(h, two) y = Identity(z)",
        {"w": floats(size, size), "one": 1.0},
    )
    choice = helper.make_node("If", ["p"], ["y"], "choice")
    for branch, graph in (("then_branch", body("Add", "z", name)), ("else_branch", body("Neg", "z"))):
        choice.attribute.append(helper.make_attribute(branch, graph))
    model.graph.node[-1].CopyFrom(choice)
    feeds = [{"x": floats(size, size, seed=seed), "p": np.array(seed % 2 == 0)} for seed in range(3)]
    prepared = prepare(saved(model, path), feeds)
    assert (prepared.notes, "Add" in op_types(prepared.graph.model)) == ((), False)
    assert_equals_original(prepared, feeds)


def test_a_model_that_is_constant_is_folded_to_no_node(path: Path) -> None:
    model = model_of("(float[4] x) => (float[64,64] y)", "y = Add(w, w)", {"w": floats(64, 64)})
    prepared = prepare(saved(model, path), feeds_of(4))
    assert (prepared.notes, op_types(prepared.graph.model)) == ((), [])
