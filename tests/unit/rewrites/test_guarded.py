import itertools
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from autoquant.domain.region import TensorName
from autoquant.model.around import BRANCH
from autoquant.model.graph import Graph
from autoquant.rewrites.guarded import Sizes, Taken, guarded
from autoquant.rewrites.taken import choices_of
from tests.branching import RATE, a_branching_model, feed_at, two_branches
from tests.models import Array, floats, model_of, op_types, outputs_of

X = TensorName("x")
NO_SIZES: Sizes = {}


def framed(model: onnx.ModelProto, holds: Mapping[str, bool], sizes: Sizes = NO_SIZES) -> onnx.ModelProto:
    """A candidate that writes minus one, as the other branch of the frame, which writes nothing."""
    taken = [Taken(Graph(model), choice, holds[choice.condition]) for choice in choices_of(model)]
    made = onnx.load_from_string(guarded(model, [taken], sizes).frame)
    made.ir_version = model.ir_version
    candidate = model_of("() => (float[1,1] y)", "y = Identity(k)", {"k": np.full((1, 1), -1, np.float32)}).graph
    made.graph.node[-1].attribute.append(onnx.helper.make_attribute("then_branch", candidate))
    onnx.checker.check_model(made, full_check=True)
    return made


def is_taken(made: onnx.ModelProto, feed: Mapping[str, Array]) -> bool:
    return bool(outputs_of(made, feed)[0].size)


@pytest.mark.parametrize("holds", [True, False])
def test_a_candidate_runs_where_a_condition_is_as_it_was_taken(holds: bool) -> None:
    made = framed(a_branching_model(), {"c": holds})
    assert is_taken(made, feed_at(RATE)) is holds
    assert is_taken(made, feed_at(8)) is not holds


@pytest.mark.parametrize("opset", [13, 15, 21])
@pytest.mark.parametrize("fixed", [(2, None, None), (None, 5, None), (2, None, 3), (None, 5, 3), (2, 5, 3)])
def test_and_where_sizes_are_as_they_were_fixed(fixed: tuple[int | None, ...], opset: int) -> None:
    signature = "(float[N,M,K] x, bool c) => (float[A,B] y)"
    body = f"r = Flatten(x) {two_branches('t = MatMul(r, r)', 'e = Neg(r)')}"
    made = framed(model_of(signature, body, opset=opset), {"c": True}, {X: fixed})
    for shape in itertools.product((2, 5, 3), repeat=3):
        fits = all(size in (None, found) for size, found in zip(fixed, shape, strict=True))
        for c in (True, False):
            assert is_taken(made, {"x": floats(*shape), "c": np.array(c)}) is (fits and c)


@pytest.mark.parametrize("opset", [13, 21])
def test_sizes_of_several_inputs_all_count(opset: int) -> None:
    signature = "(float[N,2] x, float[K] u, bool c) => (float[N,2] y)"
    model = model_of(signature, two_branches("t = Gemm(x, w)", "e = Neg(x)"), {"w": floats(2, 2)}, opset=opset)
    made = framed(model, {"c": True}, {X: (2, None), TensorName("u"): (5,)})
    for n, k in itertools.product((2, 3), (4, 5)):
        feed = {"x": floats(n, 2), "u": floats(k), "c": np.array(True)}
        assert is_taken(made, feed) is ((n, k) == (2, 5))


def test_all_conditions_count_each_once() -> None:
    second = two_branches("t = Gemm(z, w)", "e = Neg(z)", "a").replace("If(c)", "If(d)")
    third = two_branches("t = Gemm(a, w)", "e = Neg(a)", "y")
    body = f"d = Not(m) {two_branches('t = Gemm(x, w)', 'e = Neg(x)', 'z')} {second} {third}"
    model = model_of("(float[2,2] x, bool c, bool m) => (float[2,2] y)", body, {"w": floats(2, 2)})
    made = framed(model, {"c": True, "d": False})
    assert op_types(made) == ["Not", "Not", "And", "If"]
    for c, m in itertools.product((False, True), repeat=2):
        assert is_taken(made, {"x": floats(2, 2), "c": np.array(c), "m": np.array(m)}) is (c and m)


def test_what_two_conditions_follow_from_is_computed_once() -> None:
    second = two_branches("t = Gemm(z, w)", "e = Neg(z)", "y", "d")
    body = f"h = Greater(n, k) c = Or(h, m) d = And(h, m) {two_branches('t = Gemm(x, w)', 'e = Neg(x)', 'z')} {second}"
    constants = {"w": floats(2, 2), "k": np.array(3)}
    model = model_of("(float[2,2] x, int64 n, bool m) => (float[2,2] y)", body, constants)
    made = framed(model, {"c": True, "d": False})
    assert op_types(made) == ["Greater", "Or", "And", "Not", "And", "If"]
    for n, m in itertools.product((1, 5), (False, True)):
        feed = {"x": floats(2, 2), "n": np.array(n), "m": np.array(m)}
        assert is_taken(made, feed) is ((n > 3) != m)


def test_a_frame_has_outputs_of_every_type() -> None:
    branches = """then_branch = a () => (float[N] p, string q, int64 r)
                    { p = Gemm(x, w) q = Identity(s) r = Size(x) },
                  else_branch = b () => (float[N] e, string f, int64 h)
                    { e = Neg(x) f = Identity(s) h = Size(x) }"""
    signature = "(float[2,2] x, string s, bool c) => (float[N,M] y, string t, int64 z)"
    model = model_of(signature, f"y, t, z = If(c) <{branches}>", {"w": floats(2, 2)})
    for value in (model.graph.input[1], *model.graph.output[1:]):
        value.type.tensor_type.shape.SetInParent()
    (choice,) = choices_of(model)
    made = onnx.load_from_string(guarded(model, [[Taken(Graph(model), choice, holds=False)]], {}).frame)
    made.ir_version = model.ir_version
    body = onnx.GraphProto()
    body.CopyFrom(made.graph.node[-1].attribute[0].g)
    made.graph.node[-1].attribute.append(onnx.helper.make_attribute("then_branch", body))
    onnx.checker.check_model(made, full_check=True)
    y, t, z = outputs_of(made, {"x": floats(2, 2), "s": np.array("a"), "c": np.array(True)})
    assert (y.shape, t.shape, z.shape) == ((0, 0), (), ())


def test_a_model_that_is_around_a_candidate_itself_can_be_so_again() -> None:
    """Names of what decides are other ones."""
    model = a_branching_model()
    first = onnx.load_from_string(guarded(model, [[Taken(Graph(model), choices_of(model)[0], holds=True)]], {}).model)
    body = onnx.GraphProto(name="a", output=model.graph.output, initializer=model.graph.initializer)
    body.node.add(op_type="Gemm", input=["x", "u"], output=["y"])
    first.graph.node[-1].attribute.append(onnx.helper.make_attribute("then_branch", body))
    first.ir_version = model.ir_version
    made = framed(first, dict.fromkeys(Graph(first).producer, True))
    names = [name for node in made.graph.node for name in node.output if name.startswith(BRANCH)]
    assert not set(names) & {name for node in first.graph.node for name in node.output if name != "y"}
    assert is_taken(made, feed_at(RATE))
    assert not is_taken(made, feed_at(8))
