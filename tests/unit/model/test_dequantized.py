from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.errors import ModelError
from autoquant.model.dequantized import float_model
from tests.models import Array, constants_of, feed_of, floats, model_of, outputs_of, saved
from tests.qdq import DTYPES, pair, parameters

Constants = dict[str, Array | float]
SQUARE = "(float[4,4] x) => (float[4,4] y)"
SCALES = np.array([0.5, 0.25, 3.0, 0.01], np.float32)
W = floats(4, 4)


def integers(name: str, dtype: str, *, scale: Array | None = None, zero_point: int = 0, seed: int = 0) -> Constants:
    """A square of integers with its scale and zero point, one of each for every channel where there are several."""
    values = np.random.default_rng(seed).integers(0, 100, (4, 4))
    scale = np.array(0.1 + seed, np.float32) if scale is None else scale
    return {
        f"{name}_q": values.astype(DTYPES[dtype]),
        f"{name}_s": scale,
        f"{name}_z": (zero_point + np.arange(scale.size)).reshape(scale.shape).astype(DTYPES[dtype]),
    }


def changed(prepared: onnx.ModelProto, member: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    found = float_model(saved(member, folder / "member.onnx"), saved(prepared, folder / "prepared.onnx"))
    onnx.checker.check_model(found, full_check=True)
    return found


def inputs_of(model: onnx.ModelProto) -> Mapping[str, list[str]]:
    return {node.name: list(node.input) for node in model.graph.node}


def assert_alike(found: onnx.ModelProto, member: onnx.ModelProto) -> None:
    """They compute the same, and the one does without integers."""
    assert "DequantizeLinear" not in {node.op_type for node in found.graph.node}
    feed = feed_of(member)
    for ours, theirs in zip(outputs_of(found, feed), outputs_of(member, feed), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_files_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    prepared = saved(model_of("(float[1,3] x) => (float[1,3] y)", "y = Relu(x)"), tmp_path / "prepared.onnx")
    nodes = "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)"
    quantized = model_of(
        "(float[1,3] x) => (float[1,3] y)", nodes, {"s": np.array(1, np.float32), "z": np.array(0, np.uint8)}
    )
    with pytest.raises(ModelError, match=r"already quantized .* give the float model"):
        float_model(prepared, saved(quantized, tmp_path / "member.onnx"))


@pytest.mark.parametrize(
    ("call", "constants"),
    [
        ("DequantizeLinear(w_q, w_s)", integers("w", "s8")),
        ("DequantizeLinear(w_q, w_s, w_z)", integers("w", "u8", zero_point=90)),
        ("DequantizeLinear(w_q, w_s, w_z)", integers("w", "s16", zero_point=-300)),
        ("DequantizeLinear<axis=0>(w_q, w_s, w_z)", integers("w", "s8", scale=SCALES)),
        ("DequantizeLinear<axis=1>(w_q, w_s, w_z)", integers("w", "u8", scale=SCALES, zero_point=7)),
        ("DequantizeLinear(w_q, w_s, w_z)", integers("w", "s8", scale=SCALES)),
        ("DequantizeLinear<axis=-2>(w_q, w_s, w_z)", integers("w", "s8", scale=SCALES)),
        ("DequantizeLinear<axis=0>(w_q, w_s)", integers("w", "s8", scale=SCALES)),
    ],
    ids=["no zero point", "u8", "s16", "axis 0", "axis 1", "no axis", "axis from the end", "axis without zero point"],
)
def test_weights_are_what_the_integers_of_the_member_stand_for(call: str, constants: Constants, tmp_path: Path) -> None:
    member = model_of(SQUARE, f"w_d = {call} y = MatMul(x, w_d)", constants)
    found = changed(model_of(SQUARE, "y = MatMul(x, w)", {"w": W}), member, tmp_path)
    assert_alike(found, member)
    assert constants_of(found).keys() == {"w"}


@pytest.mark.parametrize(("constants", "name"), [({}, "y_bias"), ({"y_bias": 2.0}, "y_bias_")])
def test_a_bias_that_only_the_member_has_gets_a_name_that_is_free(
    constants: Constants, name: str, tmp_path: Path
) -> None:
    signature = "(float[1,4,5,5] x) => (float[1,4,5,5] y)"
    other = "z = Sin(y_bias)" if constants else ""
    prepared = model_of(signature, f"{other} y = Conv(x, k)", {"k": floats(4, 4, 1, 1), **constants})
    body = "b_d = DequantizeLinear<axis=0>(b_q, b_s) y = Conv(x, k, b_d)"
    bias = {"b_q": np.array([3, -4, 0, 1000], np.int32), "b_s": SCALES}
    member = model_of(signature, body, {"k": floats(4, 4, 1, 1), **bias})
    found = changed(prepared, member, tmp_path)
    assert inputs_of(found)["y"] == ["x", "k", name]
    assert_alike(found, member)


def test_what_stays_float_in_the_member_stays_as_it_was(tmp_path: Path) -> None:
    values = {**parameters("x", "u8"), **integers("w", "s8"), "w": W, "v": floats(4, 4, seed=1)}
    body = f"{pair('x', 'x_d')} w_d = DequantizeLinear(w_q, w_s, w_z) a = MatMul(x_d, w_d) t = Mul(v, v) y = Gemm(a, t)"
    plain = {name: values[name] for name in ("w", "v")}
    prepared = model_of(SQUARE, "a = MatMul(x, w) t = Mul(v, v) y = Gemm(a, t)", plain)
    found = changed(prepared, model_of(SQUARE, body, values), tmp_path)
    assert inputs_of(found) == inputs_of(prepared)
    np.testing.assert_array_equal(constants_of(found)["v"], floats(4, 4, seed=1))
    assert not np.array_equal(constants_of(found)["w"], W)


@pytest.mark.parametrize("node", ["y = Gemm(x, w_d)", "y_other = MatMul(x, w_d) y = Identity(y_other)"])
def test_nodes_that_the_member_does_not_have_stay_as_they_were(node: str, tmp_path: Path) -> None:
    member = model_of(SQUARE, f"w_d = DequantizeLinear(w_q, w_s, w_z) {node}", integers("w", "s8"))
    prepared = model_of(SQUARE, "y = MatMul(x, w)", {"w": W})
    assert_alike(changed(prepared, member, tmp_path), prepared)


@pytest.mark.parametrize("beta", [2.0, 0.5])
def test_a_beta_that_went_into_the_bias_is_gone(beta: float, tmp_path: Path) -> None:
    bias: Constants = {"b_q": np.array([3, -4, 0, 7], np.int32), "b_s": 0.5}
    member = model_of(SQUARE, "b_d = DequantizeLinear(b_q, b_s) y = Gemm<transB=1>(x, w, b_d)", {"w": W, **bias})
    prepared = model_of(SQUARE, f"y = Gemm<transB=1, beta={beta}>(x, w, b)", {"w": W, "b": floats(4)})
    assert_alike(changed(prepared, member, tmp_path), member)


def test_nodes_that_share_a_constant_read_what_each_of_them_stands_for(tmp_path: Path) -> None:
    """The first keeps the name, for the overrides; floats read one copy of what was there."""
    constants = {**integers("w", "s8"), **integers("v", "s8", seed=1), "w": W}
    body = """w_d = DequantizeLinear(w_q, w_s, w_z) v_d = DequantizeLinear(v_q, v_s, v_z) a = MatMul(x, w_d)
              b = MatMul(a, v_d) c = MatMul(b, w_d) d = Add(c, w) y = Mul(d, w)"""
    member = model_of(SQUARE, body, constants)
    shared = "a = MatMul(x, w) b = MatMul(a, w) c = MatMul(b, w) d = Add(c, w) y = Mul(d, w)"
    found = changed(model_of(SQUARE, shared, {"w": W}), member, tmp_path)
    assert_alike(found, member)
    assert [read[1] for read in inputs_of(found).values()] == ["w", "w_of_b", "w", "w_of_d", "w_of_d"]


@pytest.mark.parametrize(
    ("signature", "more"),
    [
        ("(float[4,4] x) => (float[4,4] y, float[4,4] w)", ""),
        (
            "(float[4,4] x, bool p) => (float[4,4] y, float[4,4] z)",
            "z = If(p) <then_branch = t () => (float[4,4] e) { e = Sin(w) },"
            " else_branch = f () => (float[4,4] g) { g = Cos(w) }>",
        ),
    ],
    ids=["output", "bodies"],
)
def test_what_outputs_or_bodies_read_keeps_its_name_and_its_value(signature: str, more: str, tmp_path: Path) -> None:
    constants = {**integers("w", "s8"), "w": W}
    member = model_of(signature, f"d = DequantizeLinear(w_q, w_s, w_z) y = MatMul(x, d) {more}", constants)
    found = changed(model_of(signature, f"y = MatMul(x, w) {more}", {"w": W}), member, tmp_path)
    assert inputs_of(found)["y"] == ["x", "w_of_y"]
    np.testing.assert_array_equal(constants_of(found)["w"], W)
    feed: dict[str, Array] = {"x": floats(4, 4, seed=3), **({"p": np.array(True)} if more else {})}
    np.testing.assert_array_equal(outputs_of(found, feed)[0], outputs_of(member, feed)[0])


@pytest.mark.parametrize("broken", ["member.onnx", "prepared.onnx"])
def test_a_file_that_cannot_be_read_is_a_model_error(broken: str, tmp_path: Path) -> None:
    model = model_of(SQUARE, "y = MatMul(x, w)", {"w": W})
    for name in ("member.onnx", "prepared.onnx"):
        saved(model, tmp_path / name)
    (tmp_path / broken).write_bytes(b"no model")
    with pytest.raises(ModelError, match=broken):
        float_model(tmp_path / "member.onnx", tmp_path / "prepared.onnx")


def test_a_constant_whose_integers_have_one_step_less_is_as_it_was(tmp_path: Path) -> None:
    """Of what the integers stand for the tool would make another scale: both ends are about halfway between two."""
    given = np.array([-2.3233135, 0.0, 1.0, 2.3062177], np.float32)
    scale, zero_point = np.array((float(given[3]) - float(given[0])) / 65535, np.float32), np.array(32889, np.uint16)
    nearest = np.rint(given / scale) + zero_point
    assert (nearest[0], nearest[3]) == (1, 65535)
    prepared = model_of("(float[2,4] x) => (float[2,4] y)", "y = Add(x, c)", {"c": given})
    for integers, expected in ((nearest, given), (nearest - 1, (nearest - 1 - zero_point) * scale)):
        constants: Constants = {"q": integers.astype(np.uint16), "s": scale, "z": zero_point}
        body = "d = DequantizeLinear(q, s, z) y = Add(x, d)"
        found = changed(prepared, model_of("(float[2,4] x) => (float[2,4] y)", body, constants), tmp_path)
        np.testing.assert_allclose(constants_of(found)["c"], expected, rtol=1e-6)
