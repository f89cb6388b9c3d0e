from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.largest import take_largest_first
from tests.models import Array, constants_of, floats, model_of, op_types, outputs_of, used_in
from tests.rewriting import rewritten

CONSTANTS: Mapping[str, Array | float] = {
    "w": floats(4, 3, 3, 3),
    "matrix": floats(6, 5),
    "number": 0.5,
    "one": np.full(1, 0.5, np.float32),
    "four": np.full((1,) * 4, 0.5, np.float32),
    "channels": floats(1, 3, 1, 1),
    "batches": np.abs(floats(2, 1, 1, 1, 1)) + 0.1,
    "wide": np.full((1,) * 5, 0.5, np.float32),
    "pair": floats(2, 1, 1, 1),
    "negative": -0.5,
    "zero": 0.0,
    "infinite": np.array(np.inf, np.float32),
    "some_infinite": np.array([0.5, np.inf, 1.5], np.float32).reshape(3, 1, 1),
    "each": np.abs(floats(3, 1, 1)) + 0.1,
    "signed": np.array([0.5, -0.5, 1.5], np.float32).reshape(3, 1, 1),
    "rows": np.abs(floats(8, 1)) + 0.1,
    "last": np.abs(floats(6)) + 0.1,
    "scale": np.abs(floats(3)) + 0.1,
    "flat": np.array([1.0, 0.0, 1.0], np.float32),
    "falling": np.array([1.0, -1.0, 1.0], np.float32),
    "four_scales": np.abs(floats(4)) + 0.1,
    "shift": floats(3),
    "axes": np.array([2, 3]),
    "third": np.array([2]),
    "front": np.array([0]),
    "none": np.array([], np.int64),
}
POOL = "MaxPool<kernel_shape=[2,2], strides=[2,2]>"
GLOBAL = "GlobalMaxPool"


def model_with(body: str, *, outputs: str = "float[] y", opset: int = 21) -> onnx.ModelProto:
    return model_of(f"(float[2,3,8,6] x) => ({outputs})", body, used_in(body, CONSTANTS), opset=opset)


def moved(model: onnx.ModelProto) -> onnx.ModelProto:
    """Kernels compute the last few values of a tensor otherwise than most."""
    return rewritten(take_largest_first, model, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "rising",
    [
        "Elu(x)",
        "Elu<alpha=0.3>(x)",
        "Selu(x)",
        "Celu(x)",
        "LeakyRelu(x)",
        "LeakyRelu<alpha=0.0>(x)",
        "HardSigmoid(x)",
        "Softplus(x)",
        "Sigmoid(x)",
        "Tanh(x)",
        "Exp(x)",
        "Erf(x)",
        "Atan(x)",
        "Softsign(x)",
        "PRelu(x, each)",
        "PRelu(x, zero)",
        "Add(x, signed)",
        "Add(negative, x)",
        "Sub(x, signed)",
        "Mul(x, each)",
        "Mul(one, x)",
        "Mul(x, four)",
        "Add(x, channels)",
        "Div(x, each)",
        "Max(x, negative)",
        "Max(negative, x)",
        "Min(signed, x)",
        "BatchNormalization(x, scale, shift, shift, scale)",
    ],
)
@pytest.mark.parametrize("pool", [POOL, GLOBAL, "MaxPool<kernel_shape=[2,2], strides=[1,2], dilations=[1,1]>"])
def test_what_keeps_the_order_of_values_goes_behind_a_pool(rising: str, pool: str) -> None:
    model = model_with(f"a = {rising} y = {pool}(a)")
    found = moved(model)
    kept = rising.partition("(")[0].partition("<")[0]
    assert op_types(found) == [pool.partition("<")[0], kept]
    assert [node.name for node in found.graph.node] == ["y", "a"]


@pytest.mark.parametrize("rising", ["Log", "Sqrt"])
def test_what_takes_no_negative_numbers_goes_behind_a_pool(rising: str) -> None:
    assert op_types(moved(model_with(f"p = Abs(x) a = {rising}(p) y = {POOL}(a)"))) == ["Abs", "MaxPool", rising]


def test_bounds_may_be_computed() -> None:
    model = model_of(
        "(float[2,3,8,6] x, float n) => (float[] y)", f"l = Neg(n) e = Elu(x) a = Clip(e, l) y = {POOL}(a)"
    )
    feed = {"x": floats(2, 3, 8, 6), "n": np.array(0.5, np.float32)}
    assert op_types(rewritten(take_largest_first, model, feed)) == ["Neg", "MaxPool", "Elu", "Clip"]


def test_a_constant_of_the_right_shape_is_kept() -> None:
    found = moved(model_with(f"a = Mul(x, each) b = Add(a, number) y = {POOL}(b)"))
    assert set(constants_of(found)) == {"each", "number"}


def test_several_keep_their_order() -> None:
    model = model_with(f"e = Elu(x) a = Add(e, signed) m = Mul(a, each) r = Relu(m) y = {POOL}(r)")
    assert op_types(moved(model)) == ["MaxPool", "Elu", "Add", "Mul", "Relu"]


@pytest.mark.parametrize(
    ("body", "expected", "shape"),
    [
        ("a = Elu(x) y = ReduceMax(a)", ["ReduceMax", "Elu"], None),
        ("a = Elu(x) y = ReduceMin<keepdims=0>(a, axes)", ["ReduceMin", "Elu"], None),
        ("a = Add(x, last) y = ReduceMax(a, third)", ["ReduceMax", "Add"], (6,)),
        ("a = Add(x, last) y = ReduceMax<keepdims=0>(a, third)", ["ReduceMax", "Add"], (1, 1, 6)),
        ("a = Mul(x, each) y = ReduceMax<keepdims=0>(a, axes)", ["ReduceMax", "Mul"], (1, 3)),
        ("a = Mul(x, one) y = ReduceMax<keepdims=0>(a)", ["ReduceMax", "Mul"], ()),
        (
            "a = BatchNormalization(x, scale, shift, shift, scale) y = ReduceMax<keepdims=0>(a, third)",
            ["ReduceMax", "BatchNormalization"],
            None,
        ),
    ],
)
def test_the_largest_along_axes_is_taken_first(body: str, expected: list[str], shape: tuple[int, ...] | None) -> None:
    found = moved(model_with(body))
    assert op_types(found) == expected
    beside = [values.shape for values in constants_of(found).values() if values.dtype == np.float32]
    assert shape is None or beside == [shape]


def test_axes_may_be_an_attribute() -> None:
    model = model_with("a = Mul(x, each) y = ReduceMax<axes=[2,3]>(a)", opset=13)
    assert op_types(moved(model)) == ["ReduceMax", "Mul"]


def test_what_only_moves_values_stays_where_it_is() -> None:
    moves = "u = Unsqueeze(e, front) q = Squeeze(u, front)"
    body = f"c = Conv(x, w) s = Slice(c, axes, ends) e = Elu(s) {moves} y = {POOL}(q)"
    model = model_of("(float[2,3,8,9] x) => (float[] y)", body, {**used_in(body, CONSTANTS), "ends": np.array([6, 7])})
    found = moved(model)
    assert op_types(found) == ["Conv", "Slice", "Unsqueeze", "Squeeze", "MaxPool", "Elu"]
    assert [node.output[0] for node in found.graph.node[:4]] == ["c", "s", "u", "q"]


def test_a_batchnormalization_does_not_pass_what_moves_values() -> None:
    body = f"a = BatchNormalization(x, scale, shift, shift, scale) t = Transpose<perm=[0,1,3,2]>(a) y = {POOL}(t)"
    model = model_with(body)
    assert take_largest_first(model) is model


def test_a_number_passes_what_moves_values_and_one_for_each_channel_does_not() -> None:
    turned = "t = Transpose<perm=[0,1,3,2]>(a)"
    assert op_types(moved(model_with(f"a = Mul(x, one) {turned} y = {POOL}(t)"))) == [
        "Transpose",
        "MaxPool",
        "Mul",
    ]
    model = model_with(f"a = Mul(x, each) {turned} y = {POOL}(t)")
    assert take_largest_first(model) is model


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"c = Conv(x, w) r = Relu(c) e = Elu(r) y = {POOL}(e)", ["Conv", "Relu", "MaxPool", "Elu"]),
        (f"c = Conv(x, w) a = Add(c, number) m = Mul(a, number) e = Elu(m) y = {POOL}(e)",
         ["Conv", "Add", "Mul", "MaxPool", "Elu"]),
        (f"c = Conv(x, w) a = BatchNormalization(c, four_scales, four_scales, four_scales, four_scales) e = Elu(a)"
         f" y = {POOL}(e)", ["Conv", "BatchNormalization", "MaxPool", "Elu"]),
        (f"c = Conv(x, w) t = Transpose<perm=[0,1,3,2]>(c) a = Sub(t, number) d = Div(a, number) e = Elu(d)"
         f" y = {POOL}(e)", ["Conv", "Transpose", "Sub", "Div", "MaxPool", "Elu"]),
        (f"c = Conv(x, w) a = Add(c, number) r = Relu(a) m = Mul(r, number) y = {POOL}(m)",
         ["Conv", "Add", "Relu", "MaxPool", "Mul"]),
        ("c = MatMul(x, matrix) r = Relu(c) e = Exp(r) y = ReduceMax(e)", ["MatMul", "Relu", "ReduceMax", "Exp"]),
        (f"c = Add(x, x) r = Relu(c) e = Exp(r) y = {POOL}(e)", ["Add", "Relu", "MaxPool", "Exp"]),
        (f"c = Add(x, x) m = Mul(c, number) r = Relu(m) y = {POOL}(r)", ["Add", "MaxPool", "Mul", "Relu"]),
    ],
)  # fmt: skip
def test_what_is_absorbed_by_what_is_before_stays_there(body: str, expected: list[str]) -> None:
    assert op_types(moved(model_with(body))) == expected


@pytest.mark.parametrize(
    "body",
    [
        f"c = Conv(x, w) r = Relu(c) y = {POOL}(r)",
        f"c = Conv(x, w) a = Add(c, number) y = {POOL}(a)",
        f"a = Mul(x, signed) y = {POOL}(a)",
        f"a = Mul(x, zero) y = {POOL}(a)",
        f"a = Div(x, negative) y = {POOL}(a)",
        f"a = Div(x, zero) y = {POOL}(a)",
        f"a = Div(number, x) y = {POOL}(a)",
        f"a = Sub(number, x) y = {POOL}(a)",
        f"a = PRelu(x, signed) y = {POOL}(a)",
        f"a = Add(x, infinite) y = {POOL}(a)",
        f"a = Add(x, some_infinite) y = {POOL}(a)",
        f"a = Add(x, last) y = {POOL}(a)",
        f"a = Add(x, rows) y = {POOL}(a)",
        f"a = Add(x, x) y = {POOL}(a)",
        f"a = PRelu(number, x) y = {POOL}(a)",
        f"a = Max(x, number, x) y = {POOL}(a)",
        "a = Add(x, pair) y = ReduceMax(a, front)",
        f"a = Elu<alpha=-1.0>(x) y = {POOL}(a)",
        f"a = Celu<alpha=-1.0>(x) y = {POOL}(a)",
        f"a = HardSigmoid<alpha=-1.0>(x) y = {POOL}(a)",
        f"a = LeakyRelu<alpha=-1.0>(x) y = {POOL}(a)",
        f"a = Selu<alpha=-1.0>(x) y = {POOL}(a)",
        f"a = Selu<gamma=-1.0>(x) y = {POOL}(a)",
        f"a = Abs(x) y = {POOL}(a)",
        f"a = BatchNormalization(x, falling, shift, shift, scale) y = {POOL}(a)",
        f"a = BatchNormalization(x, flat, shift, shift, scale) y = {POOL}(a)",
        f"s = Abs(shift) a = BatchNormalization(x, s, shift, shift, scale) y = {POOL}(a)",
        "a = RandomNormal<shape=[2,6]>() y = ReduceMax(a)",
        "a = BatchNormalization(x, scale, shift, shift, scale) y = ReduceMax(a)",
        "a = Mul(x, each) y = ReduceMax(a)",
        "a = Add(x, rows) y = ReduceMax(a, third)",
        "a = Elu(x) y = MaxPool<kernel_shape=[2,2]>(a)",
        "a = Elu(x) y = MaxPool<kernel_shape=[2,2], strides=[1,1]>(a)",
        "a = Elu(x) y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(a)",
        "a = Elu(x) y = MaxPool<kernel_shape=[2,2], strides=[2,2], dilations=[2,2]>(a)",
        "a = Elu(x) y = AveragePool<kernel_shape=[2,2], strides=[2,2]>(a)",
        "a = Elu(x) y = ReduceMean(a)",
        f"a = Elu(x) b = Abs(a) p = {POOL}(a) q = {POOL}(b) y = Add(p, q)",
    ],
)
def test_what_would_change_values_or_save_nothing_stays(body: str) -> None:
    model = model_with(body)
    assert take_largest_first(model) is model


@pytest.mark.parametrize(
    "body",
    [
        "a = Add(x, wide) y = ReduceMax(a)",
        "a = Mul(x, batches) y = GlobalMaxPool(a)",
        "a = Add(x, batches) y = ReduceMax<keepdims=0>(a, third)",
    ],
)
def test_a_constant_that_widens_what_is_read_stays(body: str) -> None:
    model = model_with(body)
    assert take_largest_first(model) is model


@pytest.mark.parametrize("kept", ["Add(x, each)", "Add(x, last)", "BatchNormalization(x, scale, shift, shift, scale)"])
def test_where_the_rank_is_not_known_numbers_alone_go_behind(kept: str) -> None:
    model = model_with(f"a = {kept} b = Elu(a) y = ReduceMax(b)")
    for value in model.graph.value_info:
        value.type.tensor_type.ClearField("shape")
    assert op_types(take_largest_first(model)) == [kept.partition("(")[0], "ReduceMax", "Elu"]


@pytest.mark.parametrize("outputs", ["float[] y, float[] a", "float[] y, int64[] i"])
def test_of_what_more_is_read_than_the_largest_values_nothing_moves(outputs: str) -> None:
    model = model_with("a = Elu(x) y, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)", outputs=outputs)
    assert take_largest_first(model) is model


@pytest.mark.parametrize("reduced", ["ReduceMax(a, none)", "ReduceMin<keepdims=0>(a, none)"])
def test_no_axes_are_all(reduced: str) -> None:
    model = model_with(f"a = Mul(x, each) y = {reduced}")
    assert take_largest_first(model) is model
    assert op_types(moved(model_with(f"a = Elu(x) y = {reduced}")))[-1] == "Elu"


def test_integers_stay() -> None:
    model = model_of("(int64[2,6] x) => (int64[] y)", "a = Add(x, two) y = ReduceMax(a)", {"two": np.array(2)})
    assert take_largest_first(model) is model


def test_axes_that_are_computed_leave_numbers_alone_to_move() -> None:
    body = "a = Mul(x, number) y = ReduceMax(a, i)"
    model = model_of("(float[2,3] x, int64[1] i) => (float[] y)", body, used_in(body, CONSTANTS))
    assert take_largest_first(model) is model


def test_positions_that_are_moved_are_no_values() -> None:
    body = "o = Add(x, two) s = Slice(table, o, x) y = ReduceMax(s)"
    constants = {"two": np.array([2]), "table": floats(6)}
    model = model_of("(int64[1] x) => (float[] y)", body, constants)
    assert take_largest_first(model) is model


def test_a_batch_of_open_size_is_no_hindrance() -> None:
    body = f"a = Mul(x, each) e = Elu(a) y = {POOL}(e)"
    model = model_of("(float[n,3,8,6] x) => (float[] y)", body, used_in(body, CONSTANTS))
    found = take_largest_first(model)
    assert op_types(found) == ["MaxPool", "Mul", "Elu"]
    feed = {"x": floats(2, 3, 8, 6)}
    np.testing.assert_array_equal(outputs_of(found, feed)[0], outputs_of(model, feed)[0], strict=True)


@settings(max_examples=30, deadline=None)
@given(
    kernel=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    strides=st.lists(st.integers(2, 3), min_size=2, max_size=2),
    rising=st.lists(
        st.sampled_from(["Elu({})", "Mul({}, each)", "Add({}, signed)", "Sub({}, each)", "Relu({})"]),
        min_size=1,
        max_size=4,
    ),
    data=st.data(),
)
def test_any_chain_before_any_windows_gives_the_same_values(
    kernel: list[int], strides: list[int], rising: list[str], data: st.DataObject
) -> None:
    pads = [data.draw(st.integers(0, size - 1)) for size in kernel * 2]
    steps = [f"a{i + 1} = {each.format(f'a{i}' if i else 'x')}" for i, each in enumerate(rising)]
    pool = f"MaxPool<kernel_shape={kernel}, strides={strides}, pads={pads}>"
    model = model_with(f"{' '.join(steps)} y = {pool}(a{len(steps)})")
    found = moved(model)
    first = next((i for i, each in enumerate(rising) if i or not each.startswith("Relu")), len(rising))
    kept = [each.partition("(")[0] for each in rising]
    assert op_types(found) == [*kept[:first], "MaxPool", *kept[first:]]
