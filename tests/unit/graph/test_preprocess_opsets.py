from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper, parser

from autoquant.domain.region import TensorName
from autoquant.graph.preprocess import OPSET, prepare
from autoquant.model.copies import opset_of
from tests.models import a_convnet, feed_of, floats, model_of, op_types, saved
from tests.unit.graph.preprocessed import assert_equals_original, feeds_of


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_an_older_model_is_converted(path: Path, opset: int) -> None:
    model = a_convnet(opset=opset)
    prepared = prepare(saved(model, path), [feed_of(model)])
    assert opset_of(prepared.graph.model) == OPSET
    assert_equals_original(prepared, [feed_of(model)])


@pytest.mark.parametrize("opset", [7, 11])
def test_a_model_of_an_ir_that_lists_its_constants_as_inputs_is_converted(path: Path, opset: int) -> None:
    model = model_of("(float[1,4] x, float[4,4] w) => (float[1,4] y)", "h = MatMul(x, w) y = Relu(h)", opset=opset)
    model.graph.initializer.append(numpy_helper.from_array(floats(4, 4), "w"))
    model.ir_version = 3
    prepared = prepare(saved(model, path), feeds_of(1, 4))
    assert opset_of(prepared.graph.model) == OPSET
    assert [value.name for value in prepared.graph.model.graph.input] == ["x"]
    assert_equals_original(prepared, feeds_of(1, 4))


def test_functions_of_a_model_are_inlined(path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18, "my" : 1]>
              tiny (float[1,4] x) => (float[1,4] y) { s = my.Swish(x) y = Relu(s) }
              <domain: "my", opset_import: ["" : 18]> Swish (a) => (b) { g = Sigmoid(a) b = Mul(a, g) }"""
    prepared = prepare(saved(parser.parse_model(text), path), feeds_of(1, 4))
    assert (prepared.notes, opset_of(prepared.graph.model)) == ((), OPSET)
    assert not prepared.graph.model.functions
    assert_equals_original(prepared, feeds_of(1, 4))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_an_upsample_is_converted(path: Path, mode: str) -> None:
    constants = {"s": np.array([1, 1, 2, 2], np.float32), "w": floats(8, 2, 1, 1)}
    body = f'h = Conv(x, w) y = Upsample<mode="{mode}">(h, s)'
    model = model_of("(float[1,2,5,4] x) => (float[1,8,10,8] y)", body, constants, opset=9)
    prepared = prepare(saved(model, path), feeds_of(1, 2, 5, 4))
    assert (prepared.notes, opset_of(prepared.graph.model)) == ((), OPSET)
    resize = prepared.graph.nodes[-1]
    assert resize.attributes["coordinate_transformation_mode"] == b"asymmetric"
    assert_equals_original(prepared, feeds_of(1, 2, 5, 4))


def test_an_opset_that_cannot_be_converted_stays_with_a_note(path: Path) -> None:
    body = "t, mean, var, saved_mean, saved_var = BatchNormalization(x, s, b, m, v) y = Relu(t)"
    weights = {name: np.abs(floats(3)) for name in "sbmv"}
    model = model_of("(float[1,3,4,4] x) => (float[1,3,4,4] y)", body, weights, opset=9)
    prepared = prepare(saved(model, path), feeds_of(1, 3, 4, 4))
    assert opset_of(prepared.graph.model) == 9
    assert [note.split(":")[0] for note in prepared.notes] == ["the model stays at opset 9"]


def test_what_onnxruntime_inlined_can_be_written_as_functions_again(path: Path) -> None:
    """It gives the same names to what it inlines in every model."""
    body = "a = Conv(x, w) b = HardSwish(a) c = Conv(b, w) d = HardSwish(c) y = Relu(d)"
    model = model_of("(float[1,4,3,3] x) => (float[1,4,3,3] y)", body, {"w": floats(4, 4, 1, 1)}, opset=14)
    prepared = prepare(saved(model, path), feeds_of(1, 4, 3, 3)).graph.model
    assert op_types(prepared).count("HardSigmoid") == 2
    for product in (node for node in prepared.graph.node if node.op_type == "Mul"):
        product.CopyFrom(helper.make_node("HardSwish", product.input[:1], product.output))
    ort.InferenceSession(prepared.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_sizes_behind_a_ceiled_pool_are_those_that_it_has(path: Path, op_type: str) -> None:
    """The converter infers a window more, which begins in the padding."""
    body = f"p = {op_type}<kernel_shape=[1,1], strides=[3,3], ceil_mode=1>(x) q = Sigmoid(p) y = Resize(q, , s)"
    model = model_of("(float[1,4,20,20] x) => (float[] y)", body, {"s": np.array([1, 1, 2, 2], np.float32)}, opset=17)
    del model.graph.value_info[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    prepared = prepare(saved(model, path), feeds_of(1, 4, 20, 20))
    assert prepared.notes == ()
    assert prepared.graph.shape(TensorName("q")) == (1, 4, 7, 7)
    assert_equals_original(prepared, feeds_of(1, 4, 20, 20))


@pytest.mark.parametrize("batch", ["1", "batch"])
def test_groups_that_are_normalised_are_not_taken_apart(path: Path, batch: str) -> None:
    constants = {"k": floats(8, 3, 3, 3), "s": floats(8), "b": floats(8, seed=1)}
    body = "c = Conv<pads=[1,1,1,1]>(x, k) y = GroupNormalization<num_groups=2>(c, s, b)"
    model = model_of(f"(float[{batch},3,6,6] x) => (float[{batch},8,6,6] y)", body, constants, opset=21)
    prepared = prepare(saved(model, path), [{"x": floats(1, 3, 6, 6)}, {"x": floats(1, 3, 6, 6, seed=1)}])
    found = [node.op_type for node in prepared.graph.nodes]
    assert found.count("InstanceNormalization") == 1
    assert not {"ReduceMean", "GroupNormalization", "Shape"} & set(found)
    assert prepared.difference_db > 100
