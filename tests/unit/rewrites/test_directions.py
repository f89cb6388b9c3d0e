from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from autoquant.model.graph import Graph
from autoquant.rewrites.read_rows import compute_read_rows
from tests.models import Array, floats, model_of, op_types, outputs_of, used_in
from tests.rewriting import rewritten

T, D, H = 12, 5, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
CONSTANTS: Mapping[str, Array | float] = {
    **{f"w{op}": floats(2, n * H, D) for op, n in GATES.items()},
    **{f"r{op}": floats(2, n * H, H) for op, n in GATES.items()},
    **{f"b{op}": floats(2, 2 * n * H) for op, n in GATES.items()},
    "w1": floats(1, 4 * H, D),
    "r1": floats(1, 4 * H, H),
    "p": floats(2, 3 * H),
    "h": floats(2, 1, H),
    "lengths": np.array([T], np.int32),
    "merged": np.array([0, 0, -1]),
    "zero": np.array(0),
    "one": np.array(1),
    "last": np.array(-1),
    "first": np.array([0]),
    "pair": np.array([0, 1]),
}
BOTH_WAYS = 'LSTM<direction="bidirectional", hidden_size=4>'
FLAT = "t = Transpose<perm=[0,2,1,3]>(s) f = Reshape(t, merged)"


def layer(op_type: str, attributes: str = "") -> str:
    weights = ", ".join(f"{letter}{op_type}" for letter in "wrb")
    return f's = {op_type}<direction="bidirectional", hidden_size=4{attributes}>(x, {weights})'


def model_with(body: str, *, signature: str = f"(float[{T},1,{D}] x) => (float[] y)") -> onnx.ModelProto:
    return model_of(signature, body, used_in(body, CONSTANTS))


def apart(model: onnx.ModelProto) -> onnx.ModelProto:
    return rewritten(compute_read_rows, model, rtol=1e-5, atol=1e-6)


def steps_of(model: onnx.ModelProto) -> list[int | None]:
    """That recurrent layers run, the one from the front before the one from behind."""
    graph = Graph(onnx.shape_inference.infer_shapes(model))
    return [(graph.sizes(node.inputs[0]) or (None,))[0] for node in graph.nodes if node.op_type in GATES]


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize(("place", "steps"), [("zero", [1, T]), ("last", [T, 1])])
def test_one_way_runs_the_step_that_is_read_alone(op_type: str, place: str, steps: list[int]) -> None:
    found = apart(model_with(f"{layer(op_type)} {FLAT} y = Gather(f, {place})"))
    assert steps_of(found) == steps


@pytest.mark.parametrize(
    "reading",
    [
        "u = Transpose<perm=[1,0,2]>(f) y = Gather<axis=1>(u, last)",
        "u = Transpose<perm=[1,0,2]>(f) r = Relu(u) y = Gather<axis=1>(r, last)",
        "y = Slice(f, minus, far, first)",
    ],
)
def test_what_is_between_moves_or_is_computed_step_by_step(reading: str) -> None:
    body = f"{layer('LSTM')} {FLAT} {reading}"
    constants = {**CONSTANTS, "minus": np.array([-1]), "far": np.array([2**31 - 1])}
    found = apart(model_of(f"(float[{T},1,{D}] x) => (float[] y)", body, used_in(body, constants)))
    assert steps_of(found) == [T, 1]


def test_gates_of_each_way_have_their_own_activations() -> None:
    activations = ', activations=["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Relu", "Tanh"]'
    assert steps_of(apart(model_with(f"{layer('LSTM', activations)} {FLAT} y = Gather(f, last)"))) == [T, 1]


@pytest.mark.parametrize("state", ["h", "k"])
def test_each_way_begins_with_its_own_state(state: str) -> None:
    body = f"s = {BOTH_WAYS}(x, wLSTM, rLSTM, bLSTM, , {state}, h) {FLAT} y = Gather(f, last)"
    found = apart(model_with(body, signature=f"(float[{T},1,{D}] x, float[2,1,{H}] k) => (float[] y)"))
    assert steps_of(found) == [T, 1]


def test_sequences_may_be_of_any_length() -> None:
    signature = f"(float[n,1,{D}] x) => (float[] y)"
    for place, steps in (("zero", [1, None]), ("last", [None, 1])):
        model = model_with(f"{layer('GRU')} {FLAT} y = Gather(f, {place})", signature=signature)
        found = compute_read_rows(model)
        assert steps_of(found) == steps
        for n in (1, 7):
            feed = {"x": floats(n, 1, D)}
            np.testing.assert_allclose(outputs_of(found, feed)[0], outputs_of(model, feed)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        f"{layer('LSTM')} {FLAT} y = Gather(f, one)",
        f"{layer('LSTM')} {FLAT} y = Gather(f, pair)",
        f"{layer('LSTM')} {FLAT} y = Relu(f)",
        f"{layer('LSTM')} {FLAT} a = Gather(f, last) c = ReduceMax(f) y = Add(a, c)",
        f"s = LSTM<hidden_size=4>(x, w1, r1) {FLAT} y = Gather(f, last)",
        f"s = {BOTH_WAYS}(x, wLSTM, rLSTM, bLSTM, lengths) {FLAT} y = Gather(f, last)",
        f"s = {BOTH_WAYS}(x, wLSTM, rLSTM, bLSTM, , , , p) {FLAT} y = Gather(f, last)",
        f"{layer('LSTM', ', activation_alpha=[0.1]')} {FLAT} y = Gather(f, last)",
        f"{layer('LSTM').replace('s =', 's, q =')} {FLAT} a = Gather(f, last) c = ReduceMax(q) y = Add(a, c)",
    ],
)
def test_what_else_is_read_or_said_leaves_the_layer_as_it_is(body: str) -> None:
    model = model_with(body)
    assert compute_read_rows(model) is model


def test_a_layer_before_is_needed_as_a_whole() -> None:
    second = f"{layer('LSTM').replace('s =', 'z =').replace('(x, wLSTM', '(f, w2')}"
    body = (
        f"{layer('LSTM')} {FLAT} {second} u = Transpose<perm=[0,2,1,3]>(z) v = Reshape(u, merged) y = Gather(v, last)"
    )
    constants = {**CONSTANTS, "w2": floats(2, 4 * H, 2 * H)}
    found = apart(model_of(f"(float[{T},1,{D}] x) => (float[] y)", body, used_in(body, constants)))
    assert steps_of(found) == [T, T, 1]
    assert op_types(found).count("LSTM") == 3
