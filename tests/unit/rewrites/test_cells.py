"""Loops over cells of recurrent networks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from autoquant.model.copies import Model
from autoquant.rewrites.cells import fuse_cells
from tests.models import Array, floats, model_of, op_types, used_in
from tests.rewriting import rewritten

N_STEPS, N_SAMPLES, N_INPUTS, N_STATES = 5, 2, 4, 3
_KEPT = "d = Identity(c)"
_READ_COUNTER = {"after": "f = Cast<to=1>(jn) y = Add(ys, f)", "output": "float[s,n,h] y"}
"""ONNX infers no shape of it."""
_COUNTED = f"{_KEPT} j1 = Add(j, step)"
_STEP = "t = Gather(x, i) u = Relu(t)"
_SPLIT = "gi, gf, gc, go = Split<axis=-1, num_outputs=4>(g)"
_CELL = """si = Sigmoid(gi) sf = Sigmoid(gf) tc = Tanh(gc) so = Sigmoid(go)
           kept = Mul(sf, k) new = Mul(si, tc) k1 = Add(kept, new) shown = Tanh(k1) h1 = Mul(so, shown)"""
_PRODUCTS = "p = MatMul(t, w) q = MatMul(h, r) pq = Add(p, q) g = Add(pq, b)"
LSTM = f"{_STEP} {_PRODUCTS} {_SPLIT} {_CELL}"
_UPDATE = "rest = Sub(one, z) kept = Mul(z, h) new = Mul(rest, n) h1 = Add(new, kept)"
_GRU = f"""{_STEP} p = MatMul(t, w) pb = Add(p, b) q = MatMul(h, r) qb = Add(q, b2)
           pz, pr, pn = Split<axis=1, num_outputs=3>(pb) qz, qr, qn = Split<axis=1, num_outputs=3>(qb)
           gz = Add(pz, qz) z = Sigmoid(gz) gr = Add(pr, qr) s = Sigmoid(gr)
           m = Mul(s, qn) gn = Add(pn, m) n = Tanh(gn) {_UPDATE}"""
_GRU_BEFORE = f"""{_STEP} pz = MatMul(t, wz) qz = MatMul(h, rz) gz = Add(pz, qz) z = Sigmoid(gz)
                  ps = MatMul(t, ws) qs = MatMul(h, rs) gs = Add(qs, ps) s = Sigmoid(gs)
                  m = Mul(h, s) pn = MatMul(t, wn) qn = MatMul(m, rn) gn = Add(pn, qn) n = Tanh(gn) {_UPDATE}"""


_KERAS = f"""{_STEP} ba, bb = Split<axis=0, num_outputs=2>(biases) b0 = Squeeze(ba, first) b1 = Squeeze(bb, first)
             p = Gemm(t, w, b0) q = Gemm(h, r, b1) pz, pr, pn = Split<axis=-1, num_outputs=3>(p)
             qz = Slice(q, s0, e0, axes) qr = Slice(q, s1, e1, axes) qn = Slice(q, s2, e2, axes)
             gz = Add(pz, qz) z = Sigmoid(gz) gr = Add(pr, qr) s = Sigmoid(gr)
             m = Mul(s, qn) gn = Add(pn, m) n = Tanh(gn) {_UPDATE}"""
_RNN = f"{_STEP} p = MatMul(t, w) pb = Add(p, b) q = MatMul(h, r) g = Add(pb, q) h1 = Tanh(g)"


def constants(n_gates: int = 4) -> Mapping[str, Array]:
    small = {
        name: floats(rows, N_STATES, seed=i)
        for i, (name, rows) in enumerate(
            [(f"{kind}{gate}", n) for gate in "zsn" for kind, n in (("w", N_INPUTS), ("r", N_STATES))]
        )
    }
    return {
        "trips": np.array(N_STEPS),
        "true": np.array(True),
        "zero": np.array(0),
        "step": np.array(1),
        "one": np.array(1, np.float32),
        "w": floats(N_INPUTS, n_gates * N_STATES),
        "r": floats(N_STATES, n_gates * N_STATES, seed=1),
        "b": floats(n_gates * N_STATES, seed=2),
        "b2": floats(n_gates * N_STATES, seed=3),
        "wt": floats(n_gates * N_STATES, N_INPUTS, seed=4),
        "wr": floats(N_INPUTS + N_STATES, n_gates * N_STATES, seed=5),
        "nothing": np.zeros((N_SAMPLES, N_STATES), np.float32),
        "w0": floats(N_SAMPLES, 2),
        "column": floats(N_SAMPLES, 1),
        "uneven": np.array([2 * N_STATES + 1, 2 * N_STATES - 1]),
        "two": np.array([2]),
        "last": np.array([1]),
        "start": np.array([0]),
        "end": np.array([1]),
        "biases": floats(2, n_gates * N_STATES, seed=6),
        "first": np.array([0]),
        "axes": np.array([0, 1]),
        **{f"s{i}": np.array([0, i * N_STATES]) for i in range(3)},
        **{f"e{i}": np.array([2**31 - 1, (i + 1) * N_STATES if i < 2 else 2**31 - 1]) for i in range(3)},
        "half": np.array(0.5, np.float32),
        **small,
    }


def a_layer(
    body: str,
    *,
    is_lstm: bool = True,
    n_gates: int = 3,
    first: str = "h0, k0",
    more: str = "",
    condition: str = _KEPT,
    trips: str = "trips",
    after: str = "y = Identity(ys)",
    out: str = "h1",
    counter: str = "",
    start: str = "true",
    n_steps: str = str(N_STEPS),
    output: str = "float[] y",
) -> onnx.ModelProto:
    """A Loop over a cell, whose hidden states are the output by default."""
    state = f"float[{N_SAMPLES},{N_STATES}]"
    read, written = [f"{state} h"], [f"{state} h1"]
    last = ["hn"]
    if is_lstm:
        read, written, last = [*read, f"{state} k"], [*written, f"{state} k1"], [*last, "kn"]
    if counter:
        read, written, last = [*read, "int64 j"], [*written, "int64 j1"], [*last, "jn"]
    given = ", ".join([trips, start, first if is_lstm else "h0", *([counter] if counter else [])])
    text = f"""{more} {", ".join(last)}, ys = Loop({given}) <body = cell (int64 i, bool c, {", ".join(read)})
               => (bool d, {", ".join(written)}, {state} out) {{ {condition} {body} out = Identity({out}) }}> {after}"""
    used = used_in(text, constants(4 if is_lstm else n_gates))
    inputs = ", ".join([f"float[{n_steps},{N_SAMPLES},{N_INPUTS}] x", *(f"{state} {name}" for name in ("h0", "k0"))])
    return model_of(f"({inputs}) => ({output})", text, used)


def feeds(model: onnx.ModelProto) -> Mapping[str, Array]:
    shapes = {"x": (N_STEPS, N_SAMPLES, N_INPUTS), "h0": (N_SAMPLES, N_STATES), "k0": (N_SAMPLES, N_STATES)}
    return {value.name: floats(*shapes[value.name], seed=7) for value in model.graph.input}


def fused(model: onnx.ModelProto) -> Model:
    """With the same outputs, and the model as it was."""
    return rewritten(fuse_cells, model, feeds(model), rtol=1e-5, atol=1e-6)


def attribute(model: onnx.ModelProto, name: str) -> object:
    (node,) = (node for node in model.graph.node if node.op_type in ("GRU", "LSTM"))
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)


@pytest.mark.parametrize(
    "products",
    [
        _PRODUCTS,
        "p = MatMul(t, w) pb = Add(b, p) q = MatMul(h, r) g = Add(q, pb)",
        "p = Gemm<transB=1>(t, wt, b) g = Gemm(h, r, p)",
        "j = Concat<axis=-1>(t, h) p = MatMul(j, wr) g = Add(p, b)",
        "j = Concat<axis=1>(h, t) g = MatMul(j, wr)",
        "p = MatMul(t, w) q = MatMul(h, r) pq = Add(p, q) g = Add(pq, half)",
    ],
    ids=["Keras", "other order", "Gemm", "joined", "joined, state first", "one bias for all"],
)
def test_a_loop_over_the_cell_of_an_lstm_becomes_one(products: str) -> None:
    found = fused(a_layer(f"{_STEP} {products} {_SPLIT} {_CELL}"))
    assert op_types(found) == ["Unsqueeze", "Unsqueeze", "LSTM", "Squeeze", "Identity"]
    onnx.checker.check_model(found)


def test_gates_may_have_further_biases_and_lie_in_any_order() -> None:
    split = "gi, gc, gf0, go = Split<axis=-1, num_outputs=4>(g) gf = Add(gf0, one)"
    assert "LSTM" in op_types(fused(a_layer(f"{_STEP} {_PRODUCTS} {split} {_CELL}")))


def test_states_that_begin_with_zeros_are_left_out() -> None:
    for more, first in (("", "nothing, nothing"), ("size = Shape(h0) no = Expand(zerof, size)", "no, no")):
        model = a_layer(LSTM, first=first, more=more)
        if more:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((), np.float32), "zerof"))
        assert op_types(fused(model)) == ["LSTM", "Squeeze", "Identity"]


def test_the_last_states_may_be_read_alone_or_too() -> None:
    assert op_types(fused(a_layer(LSTM, after="y = Add(hn, kn)")))[2:] == ["LSTM", "Squeeze", "Squeeze", "Add"]
    assert op_types(fused(a_layer(LSTM, after="y = Add(ys, kn)")))[2:] == ["LSTM", "Squeeze", "Squeeze", "Add"]


def test_zeros_for_one_sample_are_those_for_all() -> None:
    model = a_layer(LSTM, first="nothing, nothing")
    (zeros,) = (tensor for tensor in model.graph.initializer if tensor.name == "nothing")
    zeros.CopyFrom(onnx.numpy_helper.from_array(np.zeros((1, N_STATES), np.float32), "nothing"))
    assert op_types(fuse_cells(model)) == ["LSTM", "Squeeze", "Identity"]


@pytest.mark.parametrize(
    ("first", "name", "sizes"),
    [
        ("h0, k0", "h0", (1, N_STATES)),
        ("h0, k0", "k0", (N_SAMPLES, 1)),
        ("h0, k0", "h0", (1, N_SAMPLES, N_STATES)),
        ("nothing, nothing", "x", (N_STEPS, 1, N_INPUTS)),
    ],
    ids=["one sample", "one element", "more axes", "one sample of the sequence"],
)
def test_states_that_grow_at_the_first_step_stay(first: str, name: str, sizes: tuple[int, ...]) -> None:
    model = a_layer(LSTM, first=first)
    (value,) = (value for value in model.graph.input if value.name == name)
    value.CopyFrom(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, sizes))
    assert fuse_cells(model) is model


def test_what_is_collected_twice_is_written_by_nodes_of_different_names() -> None:
    model = a_layer(LSTM, after="y = Add(ys, ys2)")
    loop = model.graph.node[0]
    loop.output.append("ys2")
    loop.attribute[0].g.output.append(onnx.helper.make_tensor_value_info("h1", onnx.TensorProto.FLOAT, None))
    found = fused(model)
    assert op_types(found)[2:] == ["LSTM", "Squeeze", "Squeeze", "Add"]
    assert len({node.name for node in found.graph.node}) == len(found.graph.node)


def test_a_gru_that_resets_behind_its_product_becomes_one() -> None:
    found = fused(a_layer(_GRU, is_lstm=False))
    assert op_types(found) == ["Unsqueeze", "GRU", "Squeeze", "Identity"]
    assert attribute(found, "linear_before_reset") == 1


def test_a_gru_that_resets_before_its_product_becomes_one() -> None:
    found = fused(a_layer(_GRU_BEFORE, is_lstm=False))
    assert op_types(found) == ["Unsqueeze", "GRU", "Squeeze", "Identity"]
    assert attribute(found, "linear_before_reset") is None


def test_a_gru_as_keras_has_it_has_both_biases_in_one_tensor() -> None:
    found = fused(a_layer(_KERAS, is_lstm=False))
    assert op_types(found) == ["Unsqueeze", "GRU", "Squeeze", "Identity"]
    assert attribute(found, "linear_before_reset") == 1


def test_a_network_without_gates_becomes_an_rnn() -> None:
    found = fused(a_layer(_RNN, is_lstm=False, n_gates=1))
    assert op_types(found) == ["Unsqueeze", "RNN", "Squeeze", "Identity"]


def test_a_step_may_be_counted_by_a_state_and_compared_with_their_number() -> None:
    condition = """j1 = Add(j, step) f = Cast<to=1>(j1) nf = Cast<to=1>(trips) d1 = Less(f, nf)
                   d2 = Less(i, trips) d = And(d1, d2)"""
    model = a_layer(LSTM.replace("(x, i)", "(x, j)"), condition=condition, counter="zero")
    assert "LSTM" in op_types(fused(model))


def test_the_number_of_steps_may_be_that_of_a_sequence_of_any_length() -> None:
    more = """sizes = Shape(x) wide = Cast<to=6>(sizes) n0 = Gather(wide, zero) n = Cast<to=7>(n0)"""
    condition = "j1 = Add(j, step) d = Less(j1, n)"
    model = a_layer(LSTM, more=more, trips="n", condition=condition, counter="zero", n_steps="t")
    assert "Loop" not in op_types(fused(model))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("", "", {"trips": "step"}),
        ("", "", {"condition": "d = Less(i, step)"}),
        ("", "", {"condition": "more = Add(i, step) three = Add(more, step) d = Less(three, trips)"}),
        ("", "", {"out": "k1"}),
        ("", "", {**_READ_COUNTER, "counter": "zero", "condition": _COUNTED}),
        ("Sigmoid(gf)", "HardSigmoid(gf)", {}),
        ("Tanh(k1)", "Relu(k1)", {}),
        ("Tanh(gc)", "Sigmoid(gc)", {}),
        ("(x, i)", "(x, zero)", {}),
        ("Mul(sf, k)", "Mul(sf, h)", {}),
        ("MatMul(t, w)", "MatMul(u, w)", {}),
        ("Add(pq, b)", "Mul(pq, b)", {}),
        ("Sub(one, z)", "Sub(half, z)", {"is_lstm": False}),
        ("Sub(one, z)", "Sub(one, s)", {"is_lstm": False}),
        ("Mul(z, h)", "Mul(z, n)", {"is_lstm": False}),
        ("Tanh(gn)", "Relu(gn)", {"is_lstm": False}),
    ],
    ids=[
        "fewer steps", "ends before", "ends two before", "states of the cell", "its counter is read", "another gate",
        "another activation", "two gates", "one slice alone", "no memory", "no step", "no sum", "not all the rest",
        "rest of another gate", "no state", "unbounded",
    ],
)  # fmt: skip
def test_what_is_no_such_cell_or_says_more_stays(old: str, new: str, named: Mapping[str, Any]) -> None:
    body = LSTM if named.get("is_lstm", True) else _GRU
    assert old in body
    model = a_layer(body.replace(old, new), **named)
    assert "Loop" in op_types(fused(model))


def test_models_of_old_opsets_stay() -> None:
    model = a_layer(LSTM)
    model.opset_import[0].version = 12
    assert fuse_cells(model) is model
