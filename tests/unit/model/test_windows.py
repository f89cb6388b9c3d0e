"""What convolutions put around what they read."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.model.graph import Graph
from autoquant.model.windows import pads_of
from tests.models import floats, model_of, outputs_of


def a_conv(attributes: str, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> onnx.ModelProto:
    call = f"y = Conv<{attributes}>(x, w)" if attributes else "y = Conv(x, w)"
    return model_of(
        f"(float[1,1,{','.join(map(str, sizes))}] x) => (float[] y)", call, {"w": floats(1, 1, *kernel, seed=1)}
    )


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ('auto_pad="SAME_UPPER"', (1, 1, 1, 2)),
        ('auto_pad="SAME_LOWER"', (1, 2, 1, 1)),
        ('auto_pad="SAME_UPPER", strides=[2,5]', (0, 0, 1, 0)),
        ('auto_pad="SAME_LOWER", strides=[2,5]', (1, 0, 0, 0)),
        ('auto_pad="VALID"', (0, 0, 0, 0)),
        ('auto_pad="NOTSET", pads=[3,1,0,2]', (3, 1, 0, 2)),
        ('auto_pad="", pads=[3,1,0,2]', (3, 1, 0, 2)),
        ("pads=[3,1,0,2]", (3, 1, 0, 2)),
        ("", (0, 0, 0, 0)),
    ],
)
def test_places_before_come_first_and_then_those_behind(attributes: str, expected: tuple[int, ...]) -> None:
    (node,) = Graph(a_conv(attributes, (6, 9), (3, 4))).nodes
    assert pads_of(node, (6, 9), (3, 4), node.attributes.get("strides", (1, 1))) == expected


AXES = st.tuples(st.integers(5, 9), st.integers(1, 5), st.integers(1, 4)).filter(lambda axis: axis[2] <= axis[1] + 2)


@given(mode=st.sampled_from(["SAME_UPPER", "SAME_LOWER"]), axes=st.lists(AXES, min_size=1, max_size=2))
@settings(deadline=None, max_examples=50)
def test_a_convolution_whose_padding_is_spelled_writes_the_same(mode: str, axes: list[tuple[int, int, int]]) -> None:
    sizes, kernel, strides = zip(*axes, strict=True)
    model = a_conv(f'auto_pad="{mode}", strides={list(strides)}', sizes, kernel)
    pads = pads_of(Graph(model).nodes[0], sizes, kernel, strides)
    spelled = a_conv(f"pads={list(pads)}, strides={list(strides)}", sizes, kernel)
    one, other = (outputs_of(each, {"x": floats(1, 1, *sizes)})[0] for each in (model, spelled))
    np.testing.assert_array_equal(one, other, strict=True)
