from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.affine import fold_affine
from tests.models import floats, model_of, op_types, used_in
from tests.unit.rewrites.folds import assert_folds_to

CONV_1D = "(float[2,4,1,9] x) => (float[] y)"
OF_A_CONV_1D: Mapping[str, npt.NDArray[np.generic]] = {
    "w": floats(6, 4, 1, 3),
    "b": floats(6),
    "axes": np.array([2]),
    "p": floats(1, 6, 1),
    "q": floats(1, 6, 1, seed=1),
    "last": floats(6),
    "wide": floats(6, 1, 1),
    "along": floats(7),
    "apart": np.array([2, 2, 3, 7]),
    "rows": np.array([14, 6]),
    "there": np.array([2, 1, 6, 7]),
    "mixed": np.array([1, 6, 14]),
    "one": np.array([1]),
    "back": np.array([-1]),
    "before": np.array([-7]),
    "five": np.array([5]),
    "pads": np.array([0, 0, 1, 0, 0, 1]),
}


def conv_1d(body: str, signature: str = CONV_1D) -> onnx.ModelProto:
    """What is behind a Conv and a Squeeze, as exporters write a Conv1D; the result of those is ``s``, of 2 x 6 x 7."""
    text = f"t = Conv(x, w, b) s = Squeeze(t, axes) {body}"
    return model_of(signature, text, used_in(text, OF_A_CONV_1D))


@pytest.mark.parametrize(
    ("body", "movers"),
    [
        ("u = Add(s, p) v = Mul(u, q) y = Add(p, v)", []),
        ("u = Add(s, p) v = Unsqueeze(u, axes) y = Mul(v, wide)", ["Unsqueeze"]),
        ("u = Transpose<perm=[0,2,1]>(s) v = Mul(u, last) y = Add(v, last)", ["Transpose"]),
        ("u = Transpose<perm=[2,0,1]>(s) v = Reshape(u, rows) y = Mul(last, v)", ["Transpose", "Reshape"]),
        ("u = Mul(s, p) v = Slice(u, one, five, axes) y = Add(v, q)", ["Slice"]),
        ("u = Reshape(s, there) v = Transpose<perm=[0,1,3,2]>(u) y = Mul(v, last)", ["Reshape", "Transpose"]),
    ],
)
def test_constants_behind_what_only_moves_elements_go_into_the_conv(body: str, movers: list[str]) -> None:
    folded = assert_folds_to(conv_1d(body), ["Conv", "Squeeze", *movers])
    onnx.checker.check_model(folded)
    assert folded.graph.node[-1].output[0] == "y"


def test_dynamic_sizes_beside_the_channels_do_not_matter() -> None:
    body = "u = Mul(s, p) v = Unsqueeze(u, axes) y = Relu(v)"
    model = conv_1d(body, "(float[N,4,1,L] x) => (float[] y)")
    assert op_types(fold_affine(model)) == ["Conv", "Squeeze", "Unsqueeze", "Relu"]


def test_constants_behind_a_gemm_and_a_reshape_go_into_the_gemm() -> None:
    model = model_of(
        "(float[6,3] x) => (float[2,3,5] y)",
        "t = Gemm(x, w) u = Reshape(t, s) v = Mul(u, c) y = Add(v, c)",
        {"w": floats(3, 5), "s": np.array([2, 3, 5]), "c": floats(5)},
    )
    assert_folds_to(model, ["Gemm", "Reshape"])


@pytest.mark.parametrize(
    "body",
    [
        "y = Mul(s, along)",
        "u = Unsqueeze(s, axes) y = Mul(u, p)",
        "u = Transpose<perm=[0,2,1]>(s) y = Add(u, p)",
        "u = Reshape(s, apart) y = Mul(u, along)",
        "u = Pad(s, pads) y = Add(u, p)",
        "u = Relu(s) y = Mul(u, p)",
        "u = Slice(s, back, before, one, back) y = Mul(u, p)",
        "u = Reshape(s, mixed) y = Mul(u, p)",
    ],
)
def test_constants_along_another_axis_or_behind_padding_stay(body: str) -> None:
    model = conv_1d(body)
    assert op_types(fold_affine(model)) == op_types(model)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("u = Mul(s, p) y = Add(u, s)", "float[] y"),
        ("r = Relu(t) y = Mul(s, p)", "float[] y, float[] r"),
        ("y = Mul(s, p)", "float[] y, float[] s"),
        ("y = Mul(s, p)", "float[] y, float[] t"),
        ("u = Transpose<perm=[0,2,1]>(s) y = Mul(u, last)", "float[] y, float[] s"),
    ],
)
def test_a_conv_keeps_its_values_where_any_tensor_on_the_way_is_read_elsewhere(body: str, outputs: str) -> None:
    model = conv_1d(body, f"(float[2,4,1,9] x) => ({outputs})")
    assert_folds_to(model, op_types(model))


def test_a_constant_behind_a_squeeze_of_axes_that_are_computed_stays() -> None:
    model = model_of(
        "(float[2,4,1,9] x, int64[1] axes) => (float[] y)",
        "t = Conv(x, w) s = Squeeze(t, axes) y = Mul(s, p)",
        {"w": floats(6, 4, 1, 3), "p": floats(1, 6, 1)},
    )
    assert op_types(fold_affine(model)) == ["Conv", "Squeeze", "Mul"]


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_folding_through_movers_leaves_the_output_as_it_is(data: st.DataObject) -> None:
    """Constants of any axis behind any of a few movers: some fold, and none of them changes the result."""
    moves = [f"Transpose<perm={perm}>({{}})" for perm in ([0, 2, 1], [2, 1, 0])]
    moves += [f"Slice({{}}, last, first, {axis}, back)" for axis in ("zero", "one")]
    constants = [f"{op_type}({{}}, {name})" for op_type in ("Mul", "Add") for name in ("p", "k", "v")]
    calls = data.draw(st.lists(st.sampled_from([*moves, *constants, "Relu({})"]), min_size=1, max_size=8))
    names = ["s", *(f"u{i}" for i in range(len(calls) - 1)), "y"]
    body = " ".join(f"{b} = {call.format(a)}" for call, (a, b) in zip(calls, pairwise(names), strict=True))
    numbers = {"axes": 2, "zero": 0, "one": 1, "last": -1, "first": -7, "back": -1}
    model = model_of(
        "(float[6,4,1,8] x) => (float[] y)",
        f"t = Conv(x, w) s = Squeeze(t, axes) {body}",
        {
            "w": floats(6, 4, 1, 3, scale=0.4),
            "p": floats(1, 6, 1),
            "k": 0.7,
            "v": floats(6),
            **{name: np.array([number]) for name, number in numbers.items()},
        },
    )
    assert_folds_to(model, op_types(fold_affine(model)))


NORMED: Mapping[str, npt.NDArray[np.generic]] = {
    "w": floats(4, 6),
    "flat": np.array([14, 6]),
    "back": np.array([2, 7, 6]),
    "rows": np.array([28, 3]),
    "s": floats(6),
    "v": np.abs(floats(6, seed=1)) + 1,
    "three": np.abs(floats(3)) + 1,
    "seven": np.abs(floats(7)) + 1,
}


def normed(body: str) -> onnx.ModelProto:
    return model_of("(float[2,7,4] x) => (float[] y)", body, used_in(body, NORMED))


@pytest.mark.parametrize(
    ("body", "movers"),
    [
        ("p = MatMul(x, w) f = Reshape(p, flat) y = BatchNormalization(f, s, s, s, v)", ["Reshape"]),
        ("p = MatMul(x, w) f = Reshape(p, flat) n = BatchNormalization(f, s, s, s, v) y = Reshape(n, back)",
         ["Reshape", "Reshape"]),
        ("p = MatMul(x, w) t = Transpose<perm=[0,2,1]>(p) y = BatchNormalization(t, s, v, s, v)", ["Transpose"]),
    ],
)  # fmt: skip
def test_a_norm_behind_a_product_goes_into_its_matrix(body: str, movers: list[str]) -> None:
    onnx.checker.check_model(assert_folds_to(normed(body), ["MatMul", "Add", *movers]), full_check=True)


@pytest.mark.parametrize(
    "body",
    [
        "p = MatMul(x, w) f = Reshape(p, rows) y = BatchNormalization(f, three, three, three, three)",
        "p = MatMul(x, w) y = BatchNormalization(p, seven, seven, seven, seven)",
        "p = MatMul(x, w) f = Reshape(p, flat) y = Mul(f, s)",
        "a = Abs(w) p = MatMul(x, a) f = Reshape(p, flat) y = BatchNormalization(f, s, s, s, v)",
        "p = MatMul(x, w) f = Reshape(p, flat) n = BatchNormalization(f, s, s, s, v) y = Add(n, f)",
    ],
    ids=["other channels", "places", "a factor", "a matrix that is computed", "read beside"],
)
def test_other_norms_behind_products_stay(body: str) -> None:
    model = normed(body)
    assert fold_affine(model) is model
