"""What is computed of each integer alone is looked up, and every output stays as it is."""

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.graph.tables import look_up_rows
from tests.models import Array, floats, model_of, op_types, outputs_of
from tests.rewriting import rewritten

CONSTANTS: dict[str, Array | float] = {
    "table": floats(20, 6),
    "wide": floats(20, 600),
    "w": floats(6, 5),
    "v": floats(5, 5),
    "bias": floats(5),
    "six": floats(6),
    "places": floats(7, 1),
    "by_place": floats(1, 7, 5),
    "scale": 2.5,
    "all": np.arange(20).reshape(1, 1, 20),
    "some": np.array([3, 5, 4]).reshape(1, 1, 3),
    "flat": np.array([14, 5]),
    "swapped": np.array([5, 14]),
    "last": np.array([2]),
    "depth": np.array(20),
    "off_on": np.array([0.0, 2.0], np.float32),
    "gamma": floats(5, seed=3),
    "codes": np.arange(20).reshape(20, 1) % 8,
    "few": floats(8, 6),
    "small": floats(10, 6),
}
ONE_HOT = "u = Unsqueeze(x, last) o = Equal(u, all) h = Cast<to=1>(o)"
EMBED = "e = Gather(table, x)"


def a_model(body: str, dtype: str = "int64") -> onnx.ModelProto:
    return model_of(f"({dtype}[2,7] x) => (float[] y)", body, CONSTANTS)


def integers(low: int, high: int, dtype: str = "int64") -> dict[str, Any]:
    return {"x": np.random.default_rng(0).integers(low, high, (2, 7)).astype(dtype)}


def assert_looked_up(
    model: onnx.ModelProto, expected: list[str], low: int = 0, high: int = 20, dtype: str = "int64"
) -> None:
    found = rewritten(look_up_rows, model, integers(low, high, dtype), rtol=1e-5, atol=1e-6)
    assert op_types(found) == expected


@pytest.mark.parametrize(
    "behind",
    [
        "y = MatMul(e, w)",
        "m = MatMul(e, w) y = Add(m, bias)",
        "m = MatMul(e, w) t = Tanh(m) r = Mul(m, t) y = MatMul(r, v)",
        "m = MatMul(e, w) y = LayerNormalization(m, gamma, bias)",
        "m = MatMul(e, w) y = Softmax(m)",
        "y = Mul(e, scale)",
        "s = Sub(six, e) y = Div(s, scale)",
    ],
)
def test_what_follows_an_embedding_row_by_row_goes_into_it(behind: str) -> None:
    assert_looked_up(a_model(f"{EMBED} {behind}"), ["Gather"])
    assert_looked_up(a_model(f"{EMBED} {behind}"), ["Gather"], -20, 20)


def test_what_follows_a_matrix_of_ones_goes_into_a_table_and_other_values_have_a_row_too() -> None:
    model = a_model(f"{ONE_HOT} m = MatMul(h, table) p = Add(m, six) y = Relu(p)")
    assert_looked_up(model, ["Unsqueeze", "Clip", "Gather", "Reshape"], -30, 50)


def test_values_may_begin_anywhere() -> None:
    body = "u = Unsqueeze(x, last) o = Equal(u, some) h = Cast<to=1>(o) y = Exp(h)"
    assert_looked_up(a_model(body), ["Unsqueeze", "Sub", "Clip", "Gather", "Reshape"], -3, 9)


def test_negative_integers_of_a_one_hot_count_from_its_end() -> None:
    model = a_model("h = OneHot<axis=-1>(x, depth, off_on) m = MatMul(h, table) y = Tanh(m)")
    assert_looked_up(model, ["Sub", "Clip", "Gather"], -50, 50)


def test_integers_may_be_narrow() -> None:
    body = f"{ONE_HOT} y = MatMul(h, table)".replace("all", "narrow")
    constants = {**CONSTANTS, "narrow": np.arange(20, dtype=np.int32).reshape(1, 1, 20)}
    model = model_of("(int32[2,7] x) => (float[] y)", body, constants)
    assert_looked_up(model, ["Unsqueeze", "Clip", "Gather", "Reshape"], -5, 30, "int32")


def test_rows_that_are_read_on_the_way_have_a_table_of_their_own() -> None:
    body = f"{EMBED} m = MatMul(e, w) t = Tanh(m) a = Add(m, by_place) y = Mul(a, t)"
    assert_looked_up(a_model(body), ["Gather", "Gather", "Add", "Mul"])


def test_beside_a_gather_that_stays_more_is_looked_up_than_a_product() -> None:
    body = f"{EMBED} s = Tanh(e) t = Transpose<perm=[0,2,1]>(s) y = MatMul(e, t)"
    assert_looked_up(a_model(body), ["Gather", "Gather", "Transpose", "MatMul"])
    assert_looked_up(a_model(f"{EMBED} y = Mul(e, six)"), ["Gather"])


def test_other_shapes_may_lie_between() -> None:
    body = f"{EMBED} m = MatMul(e, w) f = Reshape(m, flat) y = Gemm(f, v, bias)"
    assert_looked_up(a_model(body), ["Gather", "Reshape"])


@pytest.mark.parametrize(
    "body",
    [
        f"{EMBED} y = Identity(e)",
        f"{EMBED} t = Transpose<perm=[0,2,1]>(e) y = Tanh(t)",
        f"{EMBED} y = Add(e, places)",
        f"{EMBED} s = Softmax<axis=1>(e) y = Tanh(s)",
        f"{EMBED} y = LayerNormalization(e, places)",
        f"{ONE_HOT} y = Identity(h)",
        f"{EMBED} s = Mul(e, e) t = Transpose<perm=[0,2,1]>(s) y = MatMul(e, t)",
    ],
)
def test_rows_that_meet_and_such_that_nothing_is_computed_of_stay(body: str) -> None:
    model = a_model(body)
    assert look_up_rows(model) is model


def test_rows_that_begin_inside_of_an_axis_are_followed_no_further() -> None:
    body = f"{EMBED} m = MatMul(e, w) f = Reshape(m, swapped) y = Tanh(f)"
    assert_looked_up(a_model(body), ["Gather", "Reshape", "Tanh"])


def test_what_else_is_computed_of_the_integers_tells_more_of_them_apart() -> None:
    body = f"{ONE_HOT} f = Cast<to=1>(x) g = Unsqueeze(f, last) m = MatMul(h, table) y = Mul(m, g)"
    assert_looked_up(a_model(body), ["Unsqueeze", "Cast", "Unsqueeze", "Clip", "Gather", "Reshape", "Mul"], -30, 50)


def test_integers_may_be_told_apart_and_gather_rows() -> None:
    model = a_model(f"{EMBED} {ONE_HOT} m = MatMul(h, table) n = Mul(e, scale) y = Mul(m, n)")
    assert_looked_up(model, ["Unsqueeze", "Clip", "Gather", "Reshape", "Gather", "Mul"], 0, 20)


def test_copies_of_integers_are_looked_up_once() -> None:
    body = "c = Cast<to=6>(x) e = Gather(table, c) f = Gather(table, x) a = Mul(e, scale) b = Tanh(f) y = Add(a, b)"
    assert_looked_up(a_model(body), ["Gather"])


@pytest.mark.parametrize(
    "codes", ["c = Gather(codes, x)", "g = Gather(codes, x) f = Cast<to=1>(g) h = Exp(f) c = Cast<to=7>(h)"]
)
def test_integers_that_are_looked_up_are_others(codes: str) -> None:
    body = f"{codes} d = Squeeze(c, last) e = Gather(few, d) p = Gather(table, x) s = Add(e, p) y = MatMul(s, w)"
    found = look_up_rows(a_model(body))
    assert op_types(found)[-4:] == ["Gather", "Gather", "Add", "MatMul"]


def test_of_unlike_tables_negative_integers_take_unlike_rows() -> None:
    model = a_model("p = Gather(small, x) q = Gather(table, x) s = Add(p, q) y = MatMul(s, w)")
    assert look_up_rows(model) is model


def test_what_only_one_operand_is_of_floats_stays() -> None:
    body = "o = OneHot<axis=-1>(x, depth, off_on) u = Unsqueeze(x, last) p = Pow(o, u) y = Tanh(p)"
    model = a_model(body)
    assert look_up_rows(model) is model


def test_a_softmax_of_several_axes_stays() -> None:
    body = f"{EMBED} y = Softmax(e)"
    model = model_of("(int64[2,7] x) => (float[] y)", body, CONSTANTS, opset=12)
    assert look_up_rows(model) is model


def test_products_stay_where_the_tables_of_all_would_be_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.rewrites.rows._MOST_BYTES", 0)
    meeting = "a = Softmax<axis=1>(q) b = Softmax<axis=1>(k) y = Add(a, b)"
    body = f"{EMBED} s = Mul(e, scale) q = MatMul(s, w) k = MatMul(s, v6) {meeting}"
    constants = {**CONSTANTS, "table": floats(40, 6), "v6": floats(6, 5, seed=2)}
    model = model_of("(int64[2,7] x) => (float[] y)", body, constants)
    assert look_up_rows(model) is model
    monkeypatch.setattr("autoquant.rewrites.rows._MOST_BYTES", 4 * 41 * 6)
    assert op_types(look_up_rows(model)) == ["Gather", "MatMul", "MatMul", "Softmax", "Softmax", "Add"]
    monkeypatch.setattr("autoquant.rewrites.rows._MOST_BYTES", 4 * 41 * 10)
    assert op_types(look_up_rows(model)) == ["Gather", "Gather", "Softmax", "Softmax", "Add"]


def test_far_integers_are_too_many_to_be_told_apart() -> None:
    ends = np.array([-(2**63), 2**63 - 1]).reshape(1, 1, 2)
    body = f"{ONE_HOT} y = Exp(h)".replace("all", "ends")
    model = model_of("(int64[2,7] x) => (float[] y)", body, {**CONSTANTS, "ends": ends})
    assert look_up_rows(model) is model


def test_a_table_much_larger_than_its_constants_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(
        "(int64[2,7] x) => (float[] y)", f"{EMBED} y = MatMul(e, w)", {"table": floats(50, 2), "w": floats(2, 40)}
    )
    monkeypatch.setattr("autoquant.rewrites.rows._MOST_BYTES", 4 * 51 * 40 - 1)
    assert look_up_rows(model) is model
    monkeypatch.setattr("autoquant.rewrites.rows._MOST_BYTES", 4 * 51 * 40)
    assert op_types(look_up_rows(model)) == ["Gather"]


STEPS = [
    "t{i} = Tanh({r})",
    "t{i} = Mul({r}, scale)",
    "t{i} = Add({r}, {s})",
    "t{i} = MatMul({r}, v)",
    "t{i} = Add({r}, by_place)",
    "a{i} = Transpose<perm=[0,2,1]>({r}) b{i} = Relu(a{i}) t{i} = Transpose<perm=[0,2,1]>(b{i})",
    "t{i} = Softmax<axis=-1>({r})",
    "t{i} = LayerNormalization({r}, gamma)",
]


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    body = [f"{EMBED} t0 = MatMul(e, w)"]
    n = draw(st.integers(1, 6))
    for i in range(1, n + 1):
        names = {"i": i, "r": f"t{i - 1}", "s": f"t{draw(st.integers(0, i - 1))}"}
        body.append(draw(st.sampled_from(STEPS)).format(**names))
    return a_model(" ".join([*body, f"y = Neg(t{n})"]))


@settings(max_examples=60, deadline=None)
@given(model=models(), seed=st.integers(0, 99))
def test_outputs_of_any_network_stay_as_they_are(model: onnx.ModelProto, seed: int) -> None:
    feed = {"x": np.random.default_rng(seed).integers(-20, 20, (2, 7))}
    largest = max(
        float(np.abs(values).max()) for values in outputs_of(model, feed)
    )  # sums of float32 differ by its share
    found = rewritten(look_up_rows, model, feed, rtol=1e-4, atol=max(1e-5, 1e-6 * largest))
    assert "MatMul" not in op_types(found)[:2]
