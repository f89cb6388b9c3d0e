from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import shape_inference

from autoquant.rewrites.halves import has_halves, narrow_ends, widen_halves
from tests.graphs import nodes_as_text
from tests.inspected import FROM_1_31
from tests.models import Array, constants_of, floats, model_of, op_types, outputs_of

HALF, SINGLE = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
LOOP_BODY = """z = Loop(n, c, x) <body = b (int64 i, bool k, float16[2,4] {state}) => (bool l, float16[2,4] o)
               {{ l = Identity(k) s = Add({state}, w) q = Cast<to=10>(s) o = Mul(q, x) }}> y = Relu(z)"""


def halves(*shape: int) -> Array:
    return floats(*shape).astype(np.float16)


def there_and_back(model: onnx.ModelProto) -> onnx.ModelProto:
    """As the model is when nothing else is done to it; checked."""
    before = model.SerializeToString(deterministic=True)
    wide = widen_halves(model)
    assert not has_halves(wide)
    narrowed = narrow_ends(wide, model)
    assert model.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(shape_inference.infer_shapes(narrowed, strict_mode=True), full_check=True)
    for found, expected in zip(narrowed.graph.input, model.graph.input, strict=True):
        assert found == expected
    return narrowed


def assert_equal_outputs(model: onnx.ModelProto, feed: dict[str, Array]) -> onnx.ModelProto:
    narrowed = there_and_back(model)
    for found, expected in zip(outputs_of(narrowed, feed), outputs_of(model, feed), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=5e-3, atol=5e-3)
    return narrowed


def test_the_nodes_before_and_after_are_those_of_the_golden_file(assert_golden: Callable[[str, str], None]) -> None:
    body = """a = MatMul(x, w) f = Cast<to=1>(a) e = Exp(f) h = Cast<to=10>(e) m = Mul(h, s) y = Add(m, a)
              z = Cast<to=1>(y)"""
    signature = "(float16[2,4] x, float[4] s32) => (float16[2,4] y, float[2,4] z)"
    model = model_of(signature, f"s = Cast<to=10>(s32) {body}", {"w": halves(4, 4)})
    narrowed = assert_equal_outputs(model, {"x": halves(2, 4), "s32": floats(4)})
    assert constants_of(narrowed)["w"].dtype == np.float32
    texts = [nodes_as_text(each) for each in (model, widen_halves(model), narrowed)]
    assert_golden("widen_halves.txt", "\n".join(texts))


@pytest.mark.parametrize("state", ["p", "x"])
def test_bodies_are_widened_and_read_the_cast_input_unless_they_have_one_of_its_name(state: str) -> None:
    signature = "(float16[2,4] x, int64 n, bool c) => (float16[2,4] y)"
    model = model_of(signature, LOOP_BODY.format(state=state), {"w": halves(4)})
    narrowed = there_and_back(model)
    if FROM_1_31:  # before, onnxruntime cannot open the model as it was
        assert_equal_outputs(model, {"x": halves(2, 4), "n": np.array(2), "c": np.array(True)})
    assert op_types(narrowed) == ["Cast", "Loop", "Relu", "Cast"]
    (body,) = (attribute.g for attribute in narrowed.graph.node[1].attribute)
    assert [node.op_type for node in body.node] == ["Identity", "Add", "Identity", "Mul"]
    assert body.node[3].input[1] == ("x" if state == "x" else "x_float32")
    assert [value.type.tensor_type.elem_type for value in (body.input[2], body.output[1])] == [SINGLE, SINGLE]


def test_constants_of_bodies_are_widened() -> None:
    body = """y = If(c) <then_branch = t () => (float16[2] u) { u = Constant<value = float16[2] {15872, 16640}>() },
              else_branch = e () => (float16[2] v) { v = Cast<to=10>(i) }>"""
    model = model_of("(bool c, int64[2] i) => (float16[2] y)", body)
    for is_first in (True, False):
        assert_equal_outputs(model, {"c": np.array(is_first), "i": np.array([3, 4])})


def test_a_model_that_only_casts_to_float16_is_one_of_float32() -> None:
    signature = "(float[3] x) => (float[3] y, float16[3] h)"
    model = model_of(signature, "y = Relu(x) h = Cast<to=10>(y)")
    assert not has_halves(model)
    assert widen_halves(model) is model
    assert has_halves(model_of(signature, "y = Relu(x) c = Cast<to=10>(x) h = Relu(c)"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("h = Cast<to=10>(i) n = Neg(h) y = Cast<to=7>(n)", ["Cast", "Neg", "Cast"]),
        ("d = Cast<to=11>(i) h = Cast<to=10>(d) n = Neg(h) y = Cast<to=7>(n)", ["Cast", "Cast", "Neg", "Cast"]),
        ("f = Cast<to=1>(i) h = Cast<to=10>(f) n = Neg(h) y = Cast<to=7>(n)", ["Cast", "Identity", "Neg", "Cast"]),
    ],
    ids=["of integers", "of doubles", "of floats"],
)
def test_casts_from_and_to_other_types_stay(body: str, expected: Sequence[str]) -> None:
    narrowed = assert_equal_outputs(model_of("(int64[3] i) => (int64[3] y)", body), {"i": np.array([-3, 0, 5])})
    assert op_types(narrowed) == expected
    assert all(attribute.i != HALF for node in narrowed.graph.node for attribute in node.attribute)


@pytest.mark.parametrize(
    "body",
    [
        "k = EyeLike<dtype=10>(x) y = Add(k, x)",
        "s = Shape(x) k = ConstantOfShape<value = float16[1] {15872}>(s) y = Add(k, x)",
        "k = Constant<value = float16[3] {15872, 16640, 17152}>() y = Add(k, x)",
        "e = SequenceEmpty<dtype=10>() q = SequenceInsert(e, x) z = Constant<value_int=0>() y = SequenceAt(q, z)",
        "f = Cast<to=1>(x) k = CastLike(f, x) y = Relu(k)",
    ],
)
def test_whatever_names_the_type_names_the_other_one(body: str) -> None:
    assert_equal_outputs(model_of("(float16[3,3] x) => (float16[3,3] y)", body), {"x": halves(3, 3)})


@pytest.mark.parametrize(
    "body",
    [
        "r = RandomNormalLike<dtype=10>(x) y = Add(r, x)",
        "n = Shape<start=0, end=1>(x) m = Squeeze(n) k = HannWindow<output_datatype=10>(m) y = Add(k, x)",
    ],
)
def test_so_do_operators_that_the_cpu_has_no_float16_kernel_for(body: str) -> None:
    there_and_back(model_of("(float16[3,3] x) => (float16[3,3] y)", body))


def test_the_root_of_two_is_that_of_float32() -> None:
    constants = {"root": np.array(2**0.5, np.float16), "near": np.array(1.413, np.float16), "many": halves(2)}
    model = model_of(
        "(float16[2] x) => (float16[2] y)", "a = Div(x, root) b = Div(a, near) y = Div(b, many)", constants
    )
    found = constants_of(widen_halves(model))
    assert found["root"] == np.float32(2**0.5)
    assert found["near"] == constants["near"]


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        ("(float16[2] x) => (float16[2] y, float16[2] z)", "y = Relu(x) z = Exp(y)"),
        ("(float16[2] x) => (float16[2] y, float16[2] x)", "y = Relu(x)"),
        ("(float16[2] x) => (float16[2] y, float16[2] w)", "y = Relu(x)"),
        ("(float16[2] x, float16[2] x_float32) => (float16[2] y)", "y = Add(x, x_float32)"),
    ],
    ids=["read inside", "an input", "a constant", "name is taken"],
)
def test_ends_keep_their_names_and_types(signature: str, body: str) -> None:
    model = model_of(signature, body, {"w": halves(2)})
    assert_equal_outputs(model, {value.name: halves(2) for value in model.graph.input})


def test_an_output_whose_type_the_file_does_not_say_keeps_it() -> None:
    model = model_of("(float16[2] x) => (float16[2] y)", "y = Relu(x)")
    model.graph.output[0].ClearField("type")
    assert outputs_of(narrow_ends(widen_halves(model), model), {"x": halves(2)})[0].dtype == np.float16


def test_a_model_without_float16_is_given_back() -> None:
    body = "c = Cast<to=11>(x) d = Cast<to=1>(c) y = Cast<to=1>(d)"
    model = model_of("(float[2] x) => (float[2] y)", body, {"w": floats(2)})
    assert not has_halves(model)
    assert widen_halves(model) is model
    assert narrow_ends(model, model) is model


def test_outputs_of_bodies_may_have_the_name_of_one_of_the_model() -> None:
    body = """y = If(c) <then_branch = t () => (float16[2] y) { y = Relu(x) },
              else_branch = e () => (float16[2] y) { y = Neg(x) }>"""
    model = model_of("(bool c, float16[2] x) => (float16[2] y)", body)
    for is_first in (True, False):
        assert_equal_outputs(model, {"c": np.array(is_first), "x": halves(2)})


def test_inputs_that_nothing_reads_are_not_cast() -> None:
    model = model_of("(float16[2] x, float16[3] u, float16[2] p) => (float16[2] y, float16[2] p)", "y = Relu(x)")
    narrowed = there_and_back(model)
    assert [list(node.input) for node in narrowed.graph.node if node.op_type == "Cast"] == [["x"], ["y_float32"]]
