import re

import numpy as np
import onnx
import pytest

from autoquant.model.pads import concatenate_zeros
from tests.models import constants_of, feed_of, model_of, op_types, outputs_of

CONSTANTS = {
    "behind": np.array([0, 0, 0, 0, 0, 3, 0, 0]),
    "both": np.array([0, 1, 0, 0, 0, 3, 0, 0]),
    "three": np.array([0, 3]),
    "mixed": np.array([0, 1, 1, 0, 0, 3, 0, 0]),
    "cut": np.array([0, -1, 0, 0, 0, 3, 0, 0]),
    "samples": np.array([1, 0, 0, 0, 0, 0, 0, 0]),
    "channels": np.array([-3]),
    "zero": np.zeros((), np.float32),
    "one": np.ones((), np.float32),
}


def padded(call: str, *, size: str = "2,4,5,6", opset: int = 21) -> onnx.ModelProto:
    used = {name: value for name, value in CONSTANTS.items() if re.search(rf"\b{name}\b", call)}
    return model_of(f"(float[{size}] x) => (float[] y)", call, used, opset=opset)


@pytest.mark.parametrize(
    ("call", "opset", "channels"),
    [
        ("Pad(x, behind)", 21, [3]),
        ("Pad(x, both, zero)", 21, [1, 3]),
        ("Pad(x, three, , channels)", 21, [3]),
        ('Pad<mode="constant">(x, both)', 13, [1, 3]),
        ("Pad<pads=[0,2,0,0,0,0,0,0], value=0.0>(x)", 10, [2]),
    ],
)
def test_channels_of_zeros_are_concatenated(call: str, opset: int, channels: list[int]) -> None:
    model = padded(f"y = {call}", opset=opset)
    before = model.SerializeToString(deterministic=True)
    found = concatenate_zeros(model)
    assert model.SerializeToString(deterministic=True) == before
    assert op_types(found) == ["Concat"]
    assert [array.shape for array in constants_of(found).values()] == [(2, n, 5, 6) for n in channels]
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(found, strict_mode=True), full_check=True)
    one, other = (outputs_of(each, feed_of(model))[0] for each in (found, model))
    np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("y = Pad(x, mixed)", "2,4,5,6"),
        ("y = Pad(x, cut)", "2,4,5,6"),
        ("y = Pad(x, samples)", "2,4,5,6"),
        ("y = Pad(x, behind, one)", "2,4,5,6"),
        ('y = Pad<mode="edge">(x, behind)', "2,4,5,6"),
        ("a = Abs(behind) y = Pad(x, a)", "2,4,5,6"),
        ("y = Pad(x, behind)", "N,4,5,6"),
        ("i = Cast<to=6>(x) z = Cast<to=6>(zero) p = Pad(i, behind, z) y = Cast<to=1>(p)", "2,4,5,6"),
    ],
)
def test_what_is_no_channel_of_zeros_stays(body: str, size: str) -> None:
    model = padded(body, size=size)
    assert concatenate_zeros(model) is model
