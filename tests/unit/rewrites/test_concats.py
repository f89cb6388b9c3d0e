import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.concats import fill_concats
from tests.models import constants_of, feed_of, floats, model_of, op_types, outputs_of
from tests.rewriting import rewritten


def joined(
    sizes: tuple[int, ...], *, behind: str = "y = Conv(c, w)", outputs: str = "", places: str = "5,6", axis: int = 1
) -> onnx.ModelProto:
    """What joins tensors of so many channels, and a Conv of 3 x 3 behind it; the first tensor is computed."""
    n, names = sum(sizes), [f"x{i}" for i in range(len(sizes))]
    read = ", ".join(f"float[1,{size},{places}] {name}" for name, size in zip(names, sizes, strict=True))
    body = f"a = Relu(x0) c = Concat<axis={axis}>({', '.join(['a', *names[1:]])}) {behind}"
    kernel = (3,) * (places.count(",") + 1)
    constants = {"w": floats(5, n, *kernel), "v": floats(7, n, *[1] * len(kernel)), "g": floats(6, n // 3, *kernel)}
    used = {name: value for name, value in constants.items() if f"{name})" in behind or f" {name}," in behind}
    return model_of(f"({read}) => (float[] y{outputs})", body, used)


@given(sizes=st.lists(st.integers(1, 20), min_size=2, max_size=4), is_line=st.booleans(), is_last=st.booleans())
@settings(max_examples=40, deadline=None)
def test_outputs_stay_the_same(sizes: list[int], is_line: bool, is_last: bool) -> None:
    places = "9" if is_line else "5,6"
    model = joined(tuple(sizes), places=places, axis=1 if is_last else 1 - 2 - places.count(",") - 1)
    found = rewritten(fill_concats, model, rtol=1e-5, atol=1e-5)
    is_filled = sum(sizes) > 16 and sum(sizes) % 4 > 0
    assert (found is not model) is is_filled
    weight = next(array for name, array in constants_of(found).items() if name.startswith("w"))
    assert weight.shape[1] == (sum(sizes) + 3) // 4 * 4 if is_filled else sum(sizes)


def test_all_convs_that_read_it_have_wider_weights() -> None:
    model = joined(
        (32, 3), behind="b = Conv(c, v) d = Conv<pads=[1,1,1,1]>(c, w) z = Conv(c, v) y = Concat<axis=1>(b, d, z)"
    )
    found = fill_concats(model)
    assert op_types(found) == ["Relu", "Concat", "Conv", "Conv", "Conv", "Concat"]
    shapes = sorted(array.shape[:2] for array in constants_of(found).values())
    assert shapes == [(1, 1), (5, 36), (7, 36)], "that of two Convs is there once"
    one, other = (outputs_of(each, feed_of(model))[0] for each in (found, model))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        joined((12, 3)),
        joined((32, 4)),
        joined((32, 3), behind="b = Conv(c, w) d = Relu(c) y = Mul(d, d)", outputs=", float[] b"),
        joined((32, 3), outputs=", float[] c"),
        joined((32, 1), behind="y = Conv<group=3>(c, g)"),
        joined((32, 3), behind="y = Relu(c)"),
        joined((32, 3), places="1100,1100", behind="y = Conv(c, v)"),
    ],
    ids=["in a block", "multiple", "other reader", "output", "groups", "no conv", "large"],
)
def test_others_stay(model: onnx.ModelProto) -> None:
    assert fill_concats(model) is model
