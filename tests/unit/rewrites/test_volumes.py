"""Which convolutions of volumes become those of slices, and that every output stays as it is."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.volumes import slice_volumes
from tests.models import floats, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS: Mapping[str, npt.NDArray[np.generic]] = {
    "w": floats(5, 4, 3, 3, 3, scale=0.1),
    "patch": floats(5, 4, 2, 4, 4, scale=0.1),
    "single": floats(5, 4, 1, 3, 3, scale=0.2),
    "column": floats(5, 4, 3, 1, 1, scale=0.4),
    "places": floats(5, 4, 1, 1, 1, scale=0.5),
    "each": floats(4, 1, 3, 3, 3, scale=0.2),
    "line": floats(4, 1, 3, 1, 1, scale=0.5),
    "flat": floats(8, 1, 1, 3, 3, scale=0.3),
    "halves": floats(4, 2, 3, 3, 3, scale=0.2),
    "wide": floats(12, 4, 3, 3, 3, scale=0.1),
    "narrow": floats(2, 4, 3, 3, 3, scale=0.1),
    "b": floats(5),
    "b2": floats(2),
    "b12": floats(12),
    "b4": floats(4),
    "b8": floats(8),
}
ROWS = ["Reshape", "Conv", "Reshape"]
SPELLED = ["Transpose", "Reshape", "Conv", "Reshape", "Transpose"]


def model_with(body: str, *, size: str = "2,4,6,8,9") -> onnx.ModelProto:
    return model_of(f"(float[{size}] x) => (float[] y)", body, used_in(body, CONSTANTS))


@pytest.mark.parametrize(
    ("conv", "expected"),
    [
        ("Conv(x, wide)", ["Transpose", *3 * ["Slice"], "Concat", *SPELLED[1:]]),
        ("Conv<pads=[1,1,1,1,1,1]>(x, wide, b12)", ["Transpose", "Concat", *3 * ["Slice"], "Concat", *SPELLED[1:]]),
        ("Conv(x, w)", ["Transpose", *4 * ["Slice"], "Concat", *SPELLED[1:]]),
        ("Conv<pads=[0,1,1,1,1,1]>(x, w, b)", ["Transpose", "Concat", *3 * ["Slice"], "Concat", *SPELLED[1:]]),
        ("Conv(x, narrow, b2)", ["Transpose", *6 * ["Slice"], "Concat", *SPELLED[1:]]),
        ("Conv<strides=[2,1,2], pads=[0,1,0,2,0,1]>(x, w)", None),
        ("Conv<dilations=[2,1,2]>(x, w, b)", None),
        ('Conv<auto_pad="SAME_UPPER", strides=[2,2,2]>(x, w)', None),
        ("Conv<strides=[2,4,4]>(x, patch, b)", SPELLED),
        ("Conv<pads=[0,1,1,0,1,1]>(x, single)", SPELLED),
        ("Conv(x, places)", ROWS),
        ("Conv<strides=[3,1,1]>(x, places, b)", ROWS),
        ("Conv<strides=[2,1,1], pads=[1,0,0,2,0,0], dilations=[2,1,1]>(x, column, b)", ROWS),
        ("Conv<strides=[3,1,2]>(x, places, b)", ["Transpose", "Slice", *SPELLED[1:]]),
        (
            "Conv<group=4, pads=[1,1,1,1,1,1]>(x, each, b4)",
            ["Transpose", "Concat", *3 * ["Slice"], "Reshape", "Conv", *2 * ["Reshape", "Conv", "Add"], *SPELLED[-2:]],
        ),
        ("Conv<group=4, strides=[2,2,1], dilations=[1,2,1]>(x, each)", None),
        ("Conv<group=4, pads=[1,0,0,1,0,0]>(x, line)", ROWS),
        ("Conv<group=4>(x, flat, b8)", None),
    ],
)
def test_a_convolution_of_volumes_is_one_of_slices(conv: str, expected: list[str] | None) -> None:
    found = rewritten(slice_volumes, model_with(f"y = {conv}"), rtol=1e-4, atol=1e-5)
    assert expected is None or op_types(found) == expected
    assert next(node.name for node in found.graph.node if node.op_type == "Conv") == "y"


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("y = Conv<group=2>(x, halves)", "2,4,6,8,9"),
        ("n = Neg(w) y = Conv(x, n)", "2,4,6,8,9"),
        ("y = Conv(x, w)", "2,4,N,8,9"),
        ("y = Relu(x)", "2,4,6,8,9"),
    ],
    ids=["groups", "weights that are computed", "depth that is not known", "no convolution"],
)
def test_others_stay(body: str, size: str) -> None:
    model = model_with(body, size=size)
    assert slice_volumes(model) is model


sizes = st.integers(1, 3)


@settings(max_examples=60, deadline=None)
@given(
    kernel=st.tuples(sizes, sizes, sizes),
    strides=st.tuples(sizes, sizes, sizes),
    dilations=st.tuples(sizes, sizes, sizes),
    pads=st.tuples(*6 * [st.integers(0, 2)]),
    read=st.tuples(sizes, sizes, st.integers(7, 9), st.integers(7, 8), st.integers(7, 8)),
    is_by_channel=st.booleans(),
)
def test_every_output_stays_as_it_is(
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    read: tuple[int, ...],
    is_by_channel: bool,
) -> None:
    attributes = ", ".join(
        f"{name}={list(values)}" for name, values in (("strides", strides), ("dilations", dilations), ("pads", pads))
    )
    n_channels = read[1]
    weight = floats(2 * n_channels, 1 if is_by_channel else n_channels, *kernel, scale=0.3)
    attributes += f", group={n_channels if is_by_channel else 1}"
    signature = f"(float[{','.join(map(str, read))}] x) => (float[] y)"
    model = model_of(signature, f"y = Conv<{attributes}>(x, w)", {"w": weight})
    assert "Reshape" in op_types(rewritten(slice_volumes, model, rtol=1e-4, atol=1e-5))
