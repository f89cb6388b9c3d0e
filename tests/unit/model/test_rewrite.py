from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from autoquant.domain.region import TensorName
from autoquant.errors import ModelError
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph
from autoquant.model.rewrite import (
    constants_as_initializers,
    convert_opset,
    densify,
    drop_initializer_inputs,
    drop_unused_domains,
    free_dimensions,
    freeze,
    infer_shapes,
    inline_functions,
    open_dimensions,
    spell_onesided,
    with_constants,
    with_outputs,
    with_types,
)
from tests.models import a_convnet, a_mlp, constants_of, feed_of, floats, model_of, op_types, outputs_of


@pytest.fixture(params=["constants", "drop", "domains", "freeze", "infer", "values", "outputs", "open", "convert"])
def rewritten(request: pytest.FixtureRequest) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    model = a_mlp()
    model.graph.node.append(helper.make_node("Constant", [], ["unread"], value_float=1.0))
    model.graph.input.append(helper.make_tensor_value_info("b0", onnx.TensorProto.FLOAT, (6,)))
    if request.param == "open":
        model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = -1
    original = onnx.ModelProto()
    original.CopyFrom(model)
    rewrites: dict[str, Callable[[onnx.ModelProto], object]] = {
        "constants": constants_as_initializers,
        "drop": drop_initializer_inputs,
        "domains": drop_unused_domains,
        "freeze": lambda m: freeze(m, {"x": (1, 2, 4)}, {"batch": 1}),
        "infer": infer_shapes,
        "values": lambda m: with_constants(m, {"b0": floats(6, seed=1)}, {(1, 1): "w1"}),
        "outputs": lambda m: with_outputs(m, {"h": None}),
        "open": open_dimensions,
        "convert": lambda m: convert_opset(m, 22),
    }
    rewrites[request.param](model)
    return original, model


def test_a_rewrite_leaves_its_argument_untouched(rewritten: tuple[onnx.ModelProto, onnx.ModelProto]) -> None:
    assert rewritten[0] == rewritten[1]


@pytest.mark.parametrize(
    "rewrite",
    [constants_as_initializers, densify, drop_initializer_inputs, drop_unused_domains, inline_functions,
     open_dimensions],
)  # fmt: skip
def test_a_model_with_nothing_to_rewrite_is_given_back(rewrite: Callable[[onnx.ModelProto], object]) -> None:
    model = drop_unused_domains(a_mlp())
    assert rewrite(model) is model


def test_conversion_keeps_what_a_model_computes() -> None:
    model = a_convnet(opset=13)
    converted = convert_opset(model, 21)
    assert opset_of(converted) == 21
    feed = feed_of(model)
    np.testing.assert_array_equal(outputs_of(converted, feed)[0], outputs_of(model, feed)[0])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("op_type", "opset", "scales"),
    [("Upsample", 9, (2, 2)), ("Upsample", 9, (1.3, 2.7)), ("Resize", 10, (1.3, 2.7)), ("Resize", 10, (0.4, 0.7)),
     ("Resize", 10, (0.34, 1))],
)  # fmt: skip
def test_conversion_keeps_how_older_opsets_resize(
    op_type: str, opset: int, scales: tuple[float, float], mode: str
) -> None:
    model = model_of(
        "(float[1,3,7,9] x) => (float[n,c,h,w] y)",
        f'y = {op_type}<mode="{mode}">(x, s)',
        {"s": np.array([1, 1, *scales], np.float32)},
        opset=opset,
    )
    feed = feed_of(model)
    np.testing.assert_array_equal(outputs_of(convert_opset(model, 21), feed)[0], outputs_of(model, feed)[0])


def test_conversion_keeps_how_bodies_of_older_opsets_resize() -> None:
    then, other = (
        f"""{k}_branch = {k} () => (float[n,c,h,w] {k}_y) {{
            {k}_s = Constant<value = float[4] {{1, 1, 0.4, 0.7}}>() {k}_y = Resize<mode="{mode}">(x, {k}_s) }}"""
        for k, mode in (("then", "linear"), ("else", "nearest"))
    )
    model = model_of("(float[1,1,7,9] x, bool p) => (float[n,c,h,w] y)", f"y = If(p) <{then}, {other}>", opset=10)
    converted = convert_opset(model, 21)
    for flag in (True, False):
        feed = {"x": floats(1, 1, 7, 9), "p": np.array(flag)}
        np.testing.assert_array_equal(outputs_of(converted, feed)[0], outputs_of(model, feed)[0])


def test_rewrites_by_onnx_give_what_it_gives_with_large_weights() -> None:
    weights = {"w": floats(64, 64), "b": floats(64)}
    model = model_of("(float[1,64] x) => (float[1,64] y)", "h = MatMul(x, w)\ny = Add(h, b)", weights, opset=13)
    assert [len(tensor.raw_data) for tensor in model.graph.initializer] == [64 * 64 * 4, 64 * 4]
    converted = convert_opset(model, 21)
    assert converted == onnx.version_converter.convert_version(model, 21)
    assert infer_shapes(converted) == onnx.shape_inference.infer_shapes(converted, data_prop=True)


def test_an_operator_without_a_converter_is_a_model_error() -> None:
    model = model_of("(float[1,4] x) => (float[] y)", "y = Pad<paddings=[0,1,0,1]>(x)", opset=1)
    with pytest.raises(ModelError, match=r"^conversion to opset 21 fails: No Adapter From Version"):
        convert_opset(model, 21)


def test_an_operator_that_onnx_does_not_know_is_left_as_it_is() -> None:
    body = "n = SimplifiedLayerNormalization<axis=-1>(x, g) p = Dropout(n) y = Relu(p)"
    model = model_of("(float[1,4] x) => (float[1,4] y)", body, {"g": np.ones(4, np.float32)}, opset=9)
    before = model.SerializeToString(deterministic=True)
    converted = convert_opset(model, 21)
    assert next((node.domain, node.op_type) for node in converted.graph.node) == ("", "SimplifiedLayerNormalization")
    assert [(each.domain, each.version) for each in converted.opset_import] == [("", 21), ("com.microsoft", 1)]
    assert model.SerializeToString(deterministic=True) == before
    feed = {"x": floats(1, 4)}
    np.testing.assert_array_equal(outputs_of(model, feed)[0], outputs_of(converted, feed)[0])


def test_an_operator_that_onnx_got_later_than_onnxruntime_is_converted() -> None:
    model = model_of("(float[1,4] x) => (float[1,4] y)", "y = LayerNormalization(x, g)", {"g": floats(4)}, opset=13)
    converted = convert_opset(model, 21)
    assert opset_of(converted) == 21
    feed = {"x": floats(1, 4)}
    np.testing.assert_array_equal(outputs_of(model, feed)[0], outputs_of(converted, feed)[0])


def test_a_hardmax_that_onnx_would_make_another_one_is_not_converted() -> None:
    model = model_of("(float[2,3,4] x) => (float[2,3,4] y)", "y = Hardmax<axis=1>(x)", opset=11)
    with pytest.raises(ModelError, match="conversion to opset 21 fails: ONNX would make Hardmax one along the last"):
        convert_opset(model, 21)


def test_a_group_norm_whose_scales_onnx_would_leave_to_groups_is_not_converted() -> None:
    body = "y = GroupNormalization<num_groups=2>(x, s, s)"
    model = model_of("(float[2,4,3] x) => (float[2,4,3] y)", body, {"s": floats(2)}, opset=18)
    with pytest.raises(ModelError, match="conversion to opset 21 fails: ONNX would leave scales of GroupNormalization"):
        convert_opset(model, 21)


def test_a_constant_of_another_domain_is_none() -> None:
    model = model_of("(float[2] x) => (float[2] y)", "c = com.microsoft.Constant() y = Add(x, c)")
    assert constants_as_initializers(model) is model


def a_model_with_functions(opset: int, operators: int) -> onnx.ModelProto:
    """Swish between products as a function, whose operators are those of another opset."""
    text = f"""<ir_version: 9, opset_import: ["" : {opset}, "my" : 1]>
               tiny (float[1,64] x) => (float[1,64] y)
               {{ h = MatMul(x, w) s = my.Swish(h) t = my.Swish(s) y = Relu(t) }}
               <domain: "my", opset_import: ["" : {operators}]> Swish (a) => (b) {{ g = Sigmoid(a) b = Mul(a, g) }}"""
    model: onnx.ModelProto = parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(floats(64, 64), "w"))
    return model


@pytest.mark.parametrize("operators", [18, 17])
def test_functions_are_inlined_and_survive_conversion(operators: int) -> None:
    model = a_model_with_functions(18, operators)
    inlined = inline_functions(model)
    assert op_types(inlined) == ["MatMul", *["Sigmoid", "Mul"] * 2, "Relu"]
    assert len(model.functions) == 1
    feed = {"x": floats(1, 64)}
    expected = outputs_of(a_model_with_functions(18, 18), feed)[0]
    np.testing.assert_array_equal(outputs_of(convert_opset(inlined, 21), feed)[0], expected)
    assert inline_functions(inlined) is inlined


def test_domains_that_only_functions_import_are_imported_where_these_are_inlined() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18, "my" : 1]> tiny (float[1,4] x) => (float[1,4] y) { y = my.F(x) }
              <domain: "my", opset_import: ["" : 18, "com.microsoft" : 1]> F (a) => (b)
              { g = com.microsoft.QuickGelu(a) b = Relu(g) }"""
    model: onnx.ModelProto = parser.parse_model(text)
    inlined = inline_functions(model)
    assert op_types(inlined) == ["QuickGelu", "Relu"]
    assert {imported.domain: imported.version for imported in inlined.opset_import}["com.microsoft"] == 1
    assert [imported.domain for imported in model.opset_import] == ["", "my"]
    feed = {"x": floats(1, 4)}
    np.testing.assert_array_equal(outputs_of(inlined, feed)[0], outputs_of(model, feed)[0])


def test_a_model_with_functions_is_not_converted() -> None:
    with pytest.raises(ModelError, match="conversion to opset 21 fails: function 'Swish'"):
        convert_opset(a_model_with_functions(18, 18), 21)


@pytest.mark.parametrize(("ir_version", "expected"), [(3, 4), (10, 10)])
def test_initializers_listed_as_inputs_become_constants(ir_version: int, expected: int) -> None:
    model = model_of("(float[4] x, float[4] w) => (float[4] y)", "y = Add(x, w)", {"w": floats(4)})
    model.ir_version = ir_version
    dropped = drop_initializer_inputs(model)
    assert dropped.ir_version == expected
    assert [value.name for value in dropped.graph.input] == ["x"]
    assert len(dropped.graph.initializer) == 1


def test_only_domains_that_something_uses_are_imported() -> None:
    def imported(model: onnx.ModelProto) -> list[str]:
        model.opset_import.extend(helper.make_opsetid(domain, 1) for domain in ("my", "org.example"))
        return [opset.domain for opset in drop_unused_domains(model).opset_import]

    assert imported(a_convnet()) == [""]
    assert imported(model_of("(float[4] x) => (float[4] y)", "y = com.microsoft.QuickGelu(x)")) == ["", "com.microsoft"]
    then, other = (f"{k} = {k} () => (float[2] {k}_y) {{ {k}_y = my.Exp(x) }}" for k in ("then_branch", "else_branch"))
    assert imported(model_of("(float[2] x, bool p) => (float[2] y)", f"y = If(p) <{then}, {other}>")) == ["", "my"]


def test_free_dimensions_are_the_named_ones_of_the_inputs() -> None:
    assert free_dimensions(a_mlp()) == {"batch", "time"}
    assert free_dimensions(a_convnet()) == frozenset()


def test_dimensions_are_frozen_by_name_first_and_then_by_shape() -> None:
    model = model_of("(float[batch,?,7] x, float[batch] z) => (float[?,?,?] y)", "y = Relu(x)")
    frozen = freeze(model, {"x": (3, 5, 9)}, {"batch": 2})
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in frozen.graph.input]
    assert shapes == [[2, 5, 7], [2]]


def test_dimensions_that_nothing_names_stay_dynamic() -> None:
    frozen = freeze(a_mlp(), {}, {"time": 3})
    assert free_dimensions(frozen) == {"batch"}


def test_negative_sizes_are_free_and_real_ones_stay() -> None:
    model = model_of("(float[n,0,7] x) => (float[n,0,7] y)", "y = Relu(x)")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    opened = open_dimensions(model)
    for value in (*opened.graph.input, *opened.graph.output):
        free, *sizes = value.type.tensor_type.shape.dim
        assert free.WhichOneof("value") is None
        assert [dim.dim_value for dim in sizes] == [0, 7]
    assert Graph(opened).shape(TensorName("x")) is None


def test_inference_gives_inner_tensors_a_shape_and_survives_a_model_that_contradicts_itself() -> None:
    frozen = infer_shapes(freeze(a_mlp(), {"x": (2, 3, 4)}, {}))
    assert Graph(frozen).shape(TensorName("hb")) == (2, 3, 6)
    broken = a_convnet()
    broken.graph.node[0].op_type = "MatMul"
    assert infer_shapes(broken).graph.node == broken.graph.node


def test_further_outputs_are_added_once() -> None:
    model = with_outputs(a_convnet(), {"a_relu": (1, 8, 8, 8), "y": (1, 5), "c": None})
    assert [value.name for value in model.graph.output] == ["y", "a_relu", "c"]
    assert [out.shape for out in outputs_of(model, feed_of(model))] == [(1, 5), (1, 8, 8, 8), (1, 8, 8, 8)]


def test_types_of_further_outputs_may_be_left_to_onnxruntime_and_be_noted_then() -> None:
    model = with_outputs(a_convnet(), {"a": None}, is_typed=False)
    assert not model.graph.output[-1].HasField("type")
    for shape in ([1, 8, None, "width"], [1, 8, 8, 8]):
        model = with_types(model, {"a": shape})
    (noted,) = (value for value in model.graph.value_info if value.name == "a")
    assert [dim.dim_value for dim in noted.type.tensor_type.shape.dim] == [1, 8, 8, 8]
    assert noted.type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def test_constants_of_nodes_become_initializers() -> None:
    values = "<value_float=2.0>", "<value_ints=[1,2]>", "<value_floats=[1.0,2.0]>", "<value_int=3>"
    body = " ".join(f"c{i} = Constant{value}()" for i, value in enumerate(values))
    model = model_of("(float[1,2] x) => (float y, int64 z)", f"{body} e = Mul(x, c0) f = Mul(e, c2) y = Reshape(f, c1)")
    found = constants_as_initializers(model)
    assert op_types(found) == ["Mul", "Mul", "Reshape"]
    assert {name: value.tolist() for name, value in constants_of(found).items()} == {
        "c0": 2.0,
        "c1": [1, 2],
        "c2": [1.0, 2.0],
        "c3": 3,
    }


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_constants_are_written_out(indices: list[int]) -> None:
    values = numpy_helper.from_array(np.array([2, 3], np.float32), "s")
    sparse = onnx.SparseTensorProto(values=values, indices=numpy_helper.from_array(np.array(indices)), dims=[2, 3])
    model = model_of("(float[2,3] x) => (float[2,3] y)", "a = Add(x, s) y = Add(a, c)")
    model.graph.sparse_initializer.append(sparse)
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], sparse_value=sparse))
    found = constants_as_initializers(densify(model))
    assert [(name, value.tolist()) for name, value in constants_of(found).items()] == [
        ("s", [[0, 2, 0], [0, 0, 3]]),
        ("c", [[0, 2, 0], [0, 0, 3]]),
    ]
    assert (len(found.graph.sparse_initializer), len(model.graph.sparse_initializer)) == (0, 1)
    assert densify(found) is found


def test_sparse_constants_of_bodies_are_written_out() -> None:
    values = numpy_helper.from_array(np.array([2], np.float32), "s")
    sparse = onnx.SparseTensorProto(values=values, indices=numpy_helper.from_array(np.array([1])), dims=[2])
    then, other = (f"{k} = {k} () => (float[2] {k}_y) {{ {k}_y = Add(x, s) }}" for k in ("then_branch", "else_branch"))
    model = model_of("(float[2] x, bool p) => (float[2] y)", f"y = If(p) <{then}, {other}>")
    for attribute in model.graph.node[0].attribute:
        attribute.g.sparse_initializer.append(sparse)
    for attribute in densify(model).graph.node[0].attribute:
        assert [numpy_helper.to_array(tensor).tolist() for tensor in attribute.g.initializer] == [[0, 2]]
        assert not attribute.g.sparse_initializer


def test_constants_are_replaced_and_added_and_read_elsewhere() -> None:
    model = a_mlp()
    changed = with_constants(model, {"w0": floats(4, 6, seed=1), "new": floats(6, seed=2)}, {(1, 1): "new"})
    constants = constants_of(changed)
    assert list(constants) == ["w0", "b0", "w1", "new"]
    np.testing.assert_array_equal(constants["w0"], floats(4, 6, seed=1))
    np.testing.assert_array_equal(constants["b0"], floats(6))
    assert list(changed.graph.node[1].input) == ["h", "new"]
    assert np.isfinite(outputs_of(changed, {"x": floats(1, 2, 4)})[0]).all()


@pytest.mark.parametrize(("given", "n_bins"), [("", 5), ("<onesided=1>", 5), ("<onesided=0>", 8)])
def test_an_stft_without_onesided_has_the_bins_that_onnxruntime_computes(given: str, n_bins: int) -> None:
    body = f"s = STFT{given}(x, step, window) y = Neg(s)"
    constants = {"step": np.array(4), "window": np.ones(8, np.float32)}
    model = model_of("(float[1,32,1] x) => (float[1,7,bins,2] y)", body, constants)
    assert outputs_of(model, {"x": floats(1, 32, 1)})[0].shape == (1, 7, n_bins, 2)
    spelled = spell_onesided(model)
    assert [(a.name, a.i) for a in spelled.graph.node[0].attribute] == [("onesided", 0 if n_bins == 8 else 1)]
    del spelled.graph.value_info[:]
    assert Graph(infer_shapes(spelled)).shape(TensorName("s")) == (1, 7, n_bins, 2)
