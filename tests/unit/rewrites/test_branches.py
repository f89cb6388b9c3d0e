"""Branches of convolutions that are added."""

import onnx
import pytest

from autoquant.rewrites.branches import merge_branches
from tests.models import Array, floats, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS: dict[str, Array] = {
    "w3": floats(8, 8, 3, 3),
    "v3": floats(8, 8, 3, 3, seed=1),
    "w1": floats(8, 8, 1, 1),
    "wide": floats(8, 8, 1, 3),
    "tall": floats(8, 8, 3, 1),
    "by_two": floats(8, 4, 3, 3, seed=2),
    "by_four": floats(8, 2, 1, 1, seed=3),
    "each": floats(8, 1, 1, 1, seed=4),
    "each3": floats(8, 1, 3, 3, seed=5),
    "few": floats(1, 8, 1, 1),
    "b": floats(8),
    "c": floats(8, seed=6),
    "ahead": floats(8, 8, 2, 2),
}


def a_model(body: str, written: str = "float[] y") -> onnx.ModelProto:
    return model_of(f"(float[2,8,5,6] x, float[2,8,5,6] z) => ({written})", body, used_in(body, CONSTANTS))


def left_of(model: onnx.ModelProto) -> list[str]:
    found = rewritten(merge_branches, model, rtol=1e-4, atol=1e-4)
    assert (found is model) is (op_types(found) == op_types(model))
    return op_types(found)


PADDED = "p = Conv<pads=[1,1,1,1]>(x, w3, b)"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{PADDED} q = Conv(x, w1, c) y = Add(p, q)", ["Conv"]),
        (f"{PADDED} q = Conv(x, w1) y = Add(q, p)", ["Conv"]),
        (f"{PADDED} q = Conv(x, w1, c) y = Sub(p, q)", ["Conv"]),
        (f"{PADDED} q = Conv<pads=[1,1,1,1]>(x, v3) y = Add(p, q)", ["Conv"]),
        (f"{PADDED} q = Conv<group=8>(x, each, c) y = Add(p, q)", ["Conv"]),
        (f"{PADDED} q = Conv<pads=[0,1,0,1]>(x, wide) y = Add(p, q)", ["Conv"]),
        ("p = Conv<group=2,pads=[1,1,1,1]>(x, by_two) q = Conv<group=4>(x, by_four, b) y = Add(p, q)", ["Conv"]),
        ("p = Conv<group=2,pads=[1,1,1,1]>(x, by_two) q = Conv<group=8>(x, each, b) y = Add(q, p)", ["Conv"]),
        (f"{PADDED} q = Conv(x, w1) r = Conv<group=8>(x, each) s = Add(p, q) y = Add(s, r)", ["Conv"]),
        (f"{PADDED} q = Conv(x, w1) s = Add(z, p) y = Add(s, q)", ["Conv", "Add"]),
        (f"{PADDED} q = Conv(x, w1) s = Add(p, z) y = Add(q, s)", ["Conv", "Add"]),
        (f"{PADDED} q = Conv(x, w1) s = Add(p, z) y = Sub(s, q)", ["Conv", "Add"]),
        ("p = Conv<strides=[2,2],pads=[1,1,1,1]>(x, w3) q = Conv<strides=[2,2]>(x, w1) y = Add(p, q)", ["Conv"]),
        ("p = Conv<pads=[1,1,0,0]>(x, ahead) q = Conv(x, w1) y = Add(p, q)", ["Conv"]),
        ("p = Conv(x, w1) q = Conv<pads=[1,1,1,1]>(x, w3) s = Conv<pads=[1,1,1,1]>(x, v3) t = Add(p, q) y = Add(t, s)",
         ["Conv"]),
    ],
    ids=[
        "RepVGG", "the other way round", "difference", "equal kernels", "depthwise", "wide", "groups", "groups of one",
        "three", "added to others", "others added", "taken from others", "strides", "even kernel", "smaller first",
    ],
)  # fmt: skip
def test_branches_of_one_tensor_become_a_conv(body: str, expected: list[str]) -> None:
    assert left_of(a_model(body)) == expected


@pytest.mark.parametrize(
    "body",
    [
        f"{PADDED} q = Conv(z, w1) y = Add(p, q)",
        "p = Conv<pads=[1,1,1,1],group=8>(x, each3) q = Conv(x, w1) y = Add(p, q)",
        "p = Conv<pads=[0,1,0,1]>(x, wide) q = Conv<pads=[1,0,1,0]>(x, tall) y = Add(p, q)",
        f"{PADDED} q = Conv<dilations=[2,2],pads=[2,2,2,2]>(x, v3) y = Add(p, q)",
        f"{PADDED} q = Conv(x, few) y = Add(p, q)",
        f"{PADDED} q = Conv(x, w1) r = Relu(q) s = Add(p, q) y = Add(s, r)",
        f"{PADDED} q = Conv(x, w1) y = Mul(p, q)",
        f"{PADDED} y = Add(p, p)",
        f"{PADDED} q = Conv(x, w1) s = Add(p, p) y = Add(s, q)",
        f"{PADDED} q = Conv(x, w1) s = Add(p, p) y = Sub(s, q)",
        f"{PADDED} q = Conv(x, w1) y = Sub(q, p)",
        f"{PADDED} q = Conv<auto_pad=\"SAME_UPPER\">(x, v3) y = Add(p, q)",
        f"{PADDED} q = Conv(x, w1) s = Sub(z, p) y = Add(s, q)",
        f"{PADDED} a = Abs(w1) q = Conv(x, a) y = Add(p, q)",
    ],
    ids=[
        "another tensor", "more products", "a cross", "dilated", "broadcast", "read beside", "product", "itself",
        "twice", "twice, less",
        "smaller minus larger", "padded for itself", "taken away inside", "a weight that is computed",
    ],
)  # fmt: skip
def test_others_stay(body: str) -> None:
    model = a_model(body)
    assert left_of(model) == op_types(model)


def test_what_is_written_out_stays() -> None:
    model = a_model(f"{PADDED} q = Conv(x, w1) y = Add(p, q)", "float[] y, float[] q")
    assert left_of(model) == ["Conv", "Conv", "Add"]
