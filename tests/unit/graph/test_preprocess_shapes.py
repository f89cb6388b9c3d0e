from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from autoquant.domain.feed import Feed
from autoquant.domain.region import TensorName
from autoquant.errors import ModelError
from autoquant.graph.preprocess import OPSET, prepare
from autoquant.model.copies import opset_of
from tests.models import a_convnet, a_mlp, floats, model_of, op_types, outputs_of, saved
from tests.unit.graph.preprocessed import X, assert_equals_original, feeds_of


def test_dynamic_dimensions_are_frozen_to_what_all_samples_share(path: Path) -> None:
    prepared = prepare(saved(a_mlp(), path), feeds_of(2, 3, 4))
    assert prepared.graph.shape(X) == (2, 3, 4)
    assert "Gemm" in op_types(prepared.graph.model)
    assert_equals_original(prepared, feeds_of(2, 3, 4))


def test_dimensions_that_samples_do_not_share_stay_dynamic(path: Path) -> None:
    feeds = [*feeds_of(2, 3, 4, n=1), *feeds_of(2, 5, 4, n=1)]
    prepared = prepare(saved(a_mlp(), path), feeds)
    assert prepared.graph.shape(X) is None
    assert_equals_original(prepared, feeds)


def test_dimensions_that_are_empty_in_all_samples_stay_dynamic(path: Path) -> None:
    model = model_of("(float[N,4] x, float[M,4] past) => (float[K,4] y)", "a = Relu(x) y = Concat<axis=0>(past, a)")
    feeds: list[Feed] = [{"x": floats(2, 4, seed=k), "past": floats(0, 4)} for k in range(3)]
    prepared = prepare(saved(model, path), feeds)
    (longer,) = outputs_of(prepared.graph.model, {"x": floats(2, 4), "past": floats(3, 4)})
    assert longer.shape == (5, 4)


def test_inputs_of_undeclared_rank_take_that_of_the_samples(path: Path) -> None:
    model = a_mlp()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    prepared = prepare(saved(model, path), feeds_of(2, 3, 4))
    assert prepared.graph.shape(X) == (2, 3, 4)
    assert_equals_original(prepared, feeds_of(2, 3, 4))


def test_dimensions_of_size_minus_one_are_dynamic(path: Path) -> None:
    model = a_mlp()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    feeds = [*feeds_of(1, 3, 4, n=1), *feeds_of(2, 3, 4, n=1)]
    prepared = prepare(saved(model, path), feeds)
    assert prepared.notes == ()
    assert_equals_original(prepared, feeds)
    assert prepare(path, feeds[:1]).graph.shape(X) == (1, 3, 4)


def test_dimensions_are_frozen_by_name_without_any_sample(path: Path) -> None:
    prepared = prepare(saved(a_mlp(), path), (), dims={"batch": 2, "time": 7})
    assert prepared.graph.shape(X) == (2, 7, 4)
    assert prepared.graph.shape(TensorName("y")) == (2, 7, 2)


def test_a_dimension_that_the_model_does_not_have_is_an_error_that_names_those_it_has(path: Path) -> None:
    with pytest.raises(ModelError, match="no dynamic dimension 'bacth' to give a size, the model has: batch, time"):
        prepare(saved(a_mlp(), path), (), dims={"bacth": 1})
    with pytest.raises(ModelError, match="the model has: none"):
        prepare(saved(a_convnet(), path), (), dims={"batch": 1})


def test_a_dimension_that_contradicts_the_samples_is_an_error(path: Path) -> None:
    with pytest.raises(ModelError, match="cannot run it on these data"):
        prepare(saved(a_mlp(), path), feeds_of(2, 3, 4), dims={"batch": 5})


def test_behind_an_operator_of_unknown_shape_weights_are_found(path: Path) -> None:
    model = model_of("(float[4,4] x) => (float[4,3] y)", "s = Neg(x) y = Gemm(s, w)", {"w": floats(4, 3)})
    scaler = helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.5], scale=[2.0])
    model.graph.node[0].CopyFrom(scaler)
    del model.graph.value_info[:]
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    feeds = feeds_of(4, 4)
    prepared = prepare(saved(model, path), feeds)
    assert not any("constants are not folded" in note for note in prepared.notes)
    assert {"s", "y"} <= prepared.graph.float_tensors
    assert_equals_original(prepared, feeds)


def test_scalers_keep_shapes_so_that_products_behind_them_are_lowered(path: Path) -> None:
    model = model_of(
        "(float[N,4] x) => (float[N,3] y)",
        "n = Neg(x) s = Neg(n) p = MatMul(s, w) a = Add(p, b) y = Relu(a)",
        {"w": floats(4, 3), "b": floats(3)},
    )
    for node, name in ((model.graph.node[0], "Normalizer"), (model.graph.node[1], "Scaler")):
        attributes = {"offset": [0.5], "scale": [2.0]} if name == "Scaler" else {"norm": "MAX"}
        scaler = helper.make_node(name, list(node.input), list(node.output), domain="ai.onnx.ml", **attributes)
        node.CopyFrom(scaler)
    del model.graph.value_info[:]
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    feeds = feeds_of(4, 4)
    prepared = prepare(saved(model, path), feeds)
    assert op_types(prepared.graph.model) == ["Normalizer", "Scaler", "Gemm", "Relu"]
    assert prepared.graph.shape(TensorName("s")) == (4, 4)
    assert_equals_original(prepared, feeds)


def test_types_and_shapes_behind_operators_that_onnx_does_not_know_are_onnxruntimes(path: Path) -> None:
    body = "a = MatMul(x, w) g = com.microsoft.BiasGelu(a, b) m = MatMul(g, w) y = Relu(m)"
    model = model_of("(float[1,4] x) => (float[1,4] y)", body, {"w": floats(4, 4), "b": floats(4)})
    prepared = prepare(saved(model, path), feeds_of(1, 4))
    gelu = next(node for node in prepared.graph.nodes if "Gelu" in node.op_type)
    assert gelu.outputs[0] in prepared.graph.float_tensors
    assert prepared.graph.shape(gelu.outputs[0]) == (1, 4)
    assert_equals_original(prepared, feeds_of(1, 4))


def test_shapes_inside_that_are_of_another_batch_are_inferred_anew(path: Path) -> None:
    model = model_of("(float[N,3,8] x) => (float[N,3,4] y)", "r = Relu(x) y = MatMul(r, w)", {"w": floats(8, 4)})
    del model.graph.value_info[:]
    model.graph.value_info.append(helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, [8, 3, 8]))
    feeds = feeds_of(1, 3, 8)
    prepared = prepare(saved(model, path), feeds)
    assert prepared.notes == ()
    assert "Gemm" in op_types(prepared.graph.model)
    assert_equals_original(prepared, feeds)


def test_shapes_inside_that_cannot_be_inferred_stay(path: Path) -> None:
    model = model_of("(float[2,8] x) => (float[2,8] y)", "g = com.microsoft.Gelu(x) y = Relu(g)")
    del model.graph.value_info[:]
    model.graph.value_info.append(helper.make_tensor_value_info("g", onnx.TensorProto.FLOAT, [2, 8]))
    found = prepare(saved(model, path), feeds_of(2, 8)).graph
    assert found.shape(TensorName("g")) == (2, 8)


def test_outputs_whose_sizes_are_said_wrong_are_no_reason_against_a_newer_opset(path: Path) -> None:
    """onnxruntime runs such a file, and warns."""
    signature = "(float[1,1] x, int64[2] t, float[N,3] e) => (float[1,11] a, float[1,3] y)"
    model = model_of(signature, "a = Tile(x, t) y = MatMul(a, e)", opset=13)
    repeats = np.array([1, 5])
    feeds: list[Feed] = [{"x": floats(1, 1, seed=i), "t": repeats, "e": floats(5, 3, seed=i)} for i in range(3)]
    prepared = prepare(saved(model, path), feeds)
    assert prepared.notes == ()
    assert opset_of(prepared.graph.model) == OPSET
