import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autoquant.rewrites.taken import choices_of, conditions_of, with_taken
from tests.branching import RATE, a_branching_model, feed_at, two_branches
from tests.models import Array, floats, model_of, op_types, outputs_of

W = {"w": floats(2, 2)}
ENDS = "then_branch = p () => (bool g1) { g1 = Not(m) }, else_branch = q () => (bool g2) { g2 = Identity(m) }"
PRODUCTS = two_branches("t = Gemm(x, w)", "e = Neg(x)")


def deciding(inputs: str, condition: str, **constants: Array) -> list[tuple[str, ...]]:
    """Inputs that choose the branches of one If."""
    model = model_of(f"(float[2,2] x, {inputs}) => (float[2,2] y)", f"{condition} {PRODUCTS}", {**W, **constants})
    return [choice.inputs for choice in choices_of(model)]


@pytest.mark.parametrize("rate", [RATE, 8])
def test_the_branch_that_is_taken_writes_what_the_if_did(rate: int) -> None:
    model = a_branching_model()
    (choice,) = choices_of(model)
    assert (choice.condition, choice.inputs) == ("c", ("rate",))
    taken = with_taken(model, {choice.node.index: rate == RATE})
    assert "If" not in op_types(taken)
    assert "If" in op_types(model)
    feed = feed_at(rate)
    np.testing.assert_array_equal(outputs_of(taken, feed)[0], outputs_of(model, feed)[0])
    (condition,) = outputs_of(conditions_of(model, [choice]), feed)
    assert bool(condition) == (rate == RATE)


@pytest.mark.parametrize(
    ("inputs", "condition", "found"),
    [
        ("bool c", "", "c"),
        ("bool[1] c", "", "c"),
        ("float level", "c = Greater(level, k)", "level"),
        ("int64[5] mask", "s = ReduceMax(mask) c = Cast<to=9>(s)", "mask"),
        ("int64[N] n, bool m", "s = Size(n) f = Equal(s, one) c = And(f, m)", "m"),
        ("int64[N] n", "s = Size(n) h = ReduceMax<keepdims=0>(n) c = Equal(s, h)", "n"),
        ("int64[N] n", "s = Size(n) h = ReduceMax<keepdims=0>(n) c = Equal(h, s)", "n"),
        ("int64 n", f"a0 = Neg(n) {' '.join(f'a{i + 1} = Neg(a{i})' for i in range(30))} c = Cast<to=9>(a30)", "n"),
    ],
    ids=["a truth", "a list of one", "a number", "a mask", "a size too", "its size first", "its size last", "32 nodes"],
)
def test_values_of_inputs_choose(inputs: str, condition: str, found: str) -> None:
    constants: dict[str, Array] = {"k": np.array(0.5, np.float32)} if "k)" in condition else {}
    constants |= {"one": np.array(1)} if "one" in condition else {}
    assert deciding(inputs, condition, **constants) == [(found,)]


@pytest.mark.parametrize(
    ("inputs", "condition"),
    [
        ("int64[N] n", "s = Size(n) c = Equal(s, one)"),
        ("float[2,2] z", "p = MatMul(z, z) m = ReduceMax<keepdims=0>(p) c = Cast<to=9>(m)"),
        ("float z", "d = RandomNormalLike(z) c = Greater(d, z)"),
        ("int64 n", f"a0 = Neg(n) {' '.join(f'a{i + 1} = Neg(a{i})' for i in range(31))} c = Cast<to=9>(a31)"),
        ("bool m", f"g = If(m) <{ENDS}> c = Identity(g)"),
    ],
    ids=["sizes", "products", "chance", "33 nodes", "bodies"],
)
def test_what_is_no_wish_of_the_user_chooses_nothing(inputs: str, condition: str) -> None:
    assert deciding(inputs, condition, **({"one": np.array(1)} if "one" in condition else {})) == []


def test_branches_without_products_stay() -> None:
    body = two_branches("t = Relu(x)", "e = Neg(x)")
    assert choices_of(model_of("(float[2,2] x, bool c) => (float[2,2] y)", body)) == []


def assert_first_branches_compute_the_same(model: onnx.ModelProto) -> None:
    """In place of the Ifs that ``c`` chooses, whichever branch of those inside ``d`` does."""
    taken = with_taken(model, {choice.node.index: True for choice in choices_of(model)})
    onnx.checker.check_model(taken, full_check=True)
    for d in (False, True):
        feed = {"x": floats(2, 2), "c": np.array(True), "d": np.array(d)}
        np.testing.assert_array_equal(outputs_of(taken, feed)[0], outputs_of(model, feed)[0])


def test_bodies_that_call_their_tensors_alike_stay_apart() -> None:
    """Also what is called so in bodies inside of them."""
    inner = two_branches("p = Add(h, one)", "q = Neg(h)", "t", "d", "pq")
    first, second = (f"h = Gemm({x}, w) {inner}" for x in ("x", "y1"))
    others = [two_branches(each, f"e = Neg({x})", y) for each, x, y in ((first, "x", "y1"), (second, "y1", "y"))]
    constants: dict[str, Array | float] = {**W, "one": 1.0}
    model = model_of("(float[2,2] x, bool c, bool d) => (float[2,2] y)", " ".join(others), constants)
    assert [choice.condition for choice in choices_of(model)] == ["c", "c"]
    assert_first_branches_compute_the_same(model)


def test_what_bodies_inside_call_as_another_body_did_stays_apart() -> None:
    """Also as an If calls what it writes."""
    inner = two_branches("h = Add(g, one)", "y = Neg(g)", "t", "d", "hy")
    first = two_branches("h = Gemm(x, w) t = Relu(h)", "e = Neg(x)", "a")
    body = f"{first} {two_branches(f'g = Gemm(a, w) {inner}', 'e = Neg(a)')}"
    model = model_of("(float[2,2] x, bool c, bool d) => (float[2,2] y)", body, {**W, "one": 1.0})
    assert_first_branches_compute_the_same(model)


def test_constants_and_types_of_a_body_come_with_it() -> None:
    model = model_of("(float[2,2] x, bool c) => (float[2,2] y)", two_branches("t = Gemm(x, own)", "e = Neg(x)"))
    body = model.graph.node[0].attribute[0].g
    body.initializer.append(numpy_helper.from_array(floats(2, 2), "own"))
    body.value_info.append(helper.make_tensor_value_info("somewhere", onnx.TensorProto.FLOAT, [3]))
    taken = with_taken(model, {0: True})
    feed = {"x": floats(2, 2), "c": np.array(True)}
    np.testing.assert_array_equal(outputs_of(taken, feed)[0], outputs_of(model, feed)[0])
    assert "somewhere" in {value.name for value in taken.graph.value_info}


def test_outputs_that_a_body_does_not_write_itself_or_twice_are_passed_on() -> None:
    branches = """then_branch = a () => (float[2,2] p, float[2,2] q, float[2,2] r)
                    { p = Gemm(x, w) q = Identity(p) r = Identity(z) },
                  else_branch = b () => (float[2,2] e, float[2,2] f, float[2,2] g)
                    { e = Neg(x) f = Neg(x) g = Neg(x) }"""
    model = model_of(
        "(float[2,2] x, float[2,2] z, bool c) => (float[2,2] y, float[2,2] u, float[2,2] v)",
        f"y, u, v = If(c) <{branches}>",
        W,
    )
    body = model.graph.node[0].attribute[0].g
    body.output[1].name = "p"
    del body.node[1]
    taken = with_taken(model, {0: True})
    feed = {"x": floats(2, 2), "z": floats(2, 2, seed=1), "c": np.array(True)}
    h = feed["x"] @ W["w"]
    for found, expected in zip(outputs_of(taken, feed), (h, h, feed["z"]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
