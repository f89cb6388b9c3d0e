"""Which kernels are trimmed, and that every output stays as it is."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.model.graph import Graph
from autoquant.rewrites.trimmed import trim_kernels
from tests.models import floats, model_of, op_types
from tests.rewriting import rewritten


def a_conv(kernel: tuple[int, ...], gone: tuple[int, ...], attributes: str = "", *, opset: int = 21) -> onnx.ModelProto:
    """With so many zeros before along each axis, then behind."""
    weight, n_axes = np.zeros((3, 2, *kernel), np.float32), len(kernel)
    inside = tuple(slice(gone[i], size - gone[i + n_axes]) for i, size in enumerate(kernel))
    weight[(slice(None), slice(None), *inside)] = floats(*weight[(slice(None), slice(None), *inside)].shape) ** 2 + 1
    sizes = ",".join(["40"] * n_axes)
    call = f"y = Conv<{attributes}>(x, w, b)" if attributes else "y = Conv(x, w, b)"
    return model_of(f"(float[1,2,{sizes}] x) => (float[] y)", call, {"w": weight, "b": floats(3)}, opset=opset)


def assert_equal(model: onnx.ModelProto) -> onnx.ModelProto:
    return rewritten(trim_kernels, model, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [("", ["Slice", "Conv"]), ("pads = [4, 4]", ["Conv"]), ("pads = [4, 1], dilations = [2]", ["Slice", "Conv"])],
)
def test_zeros_at_the_ends_are_padding_less_or_are_sliced_off(attributes: str, expected: list[str]) -> None:
    found = assert_equal(a_conv((8,), (2, 3), attributes))
    assert op_types(found) == expected
    graph = Graph(found)
    assert graph.shape(graph.nodes[-1].inputs[1]) == (3, 2, 3)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_outputs_stay_whatever_the_padding_and_the_steps(data: st.DataObject) -> None:
    draw, n_axes = data.draw, data.draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(3, 6)) for _ in range(n_axes))
    gone = tuple(draw(st.integers(0, (size - 1) // 2)) for size in (*kernel, *kernel))
    numbers = {
        "pads": [draw(st.integers(0, 4)) for _ in gone],
        "strides": [draw(st.integers(1, 3)) for _ in kernel],
        "dilations": [draw(st.integers(1, 2)) for _ in kernel],
    }
    model = a_conv(kernel, gone, ", ".join(f"{name} = {values}" for name, values in numbers.items()))
    assert (assert_equal(model) is not model) == any(gone)


@pytest.mark.parametrize(
    "model",
    [
        a_conv((8,), (0, 0)),
        a_conv((8,), (2, 2), 'auto_pad = "SAME_UPPER"'),
        a_conv((40,), (1, 0)),
        a_conv((8,), (2, 2), opset=9),
        model_of("(float[1,2,40] x) => (float[] y)", "y = Conv(x, w)", {"w": np.zeros((3, 2, 8), np.float32)}),
    ],
    ids=["no zeros", "automatic", "few of many", "an old opset", "nothing else"],
)
def test_others_stay(model: onnx.ModelProto) -> None:
    assert trim_kernels(model) is model
