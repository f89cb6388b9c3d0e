import numpy as np
import onnx
import pytest

from autoquant.model.scatters import scatter_rows
from tests.models import Array, feed_of, floats, model_of, op_types, outputs_of

CONSTANTS: dict[str, Array | float] = {
    "column": np.array([3, 0, -1, 3, 1]).reshape(5, 1),
    "row": np.array([[3, 0, -1, 2]]),
    "deep": np.array([3, 0, -1, 3, 1]).reshape(5, 1, 1),
    "all": np.array([5, 4]),
    "some": np.array([5, 3]),
    "all_deep": np.array([5, 4, 2]),
    "data": floats(4, 4),
    "data_deep": floats(4, 4, 2),
    "own": np.array([[0, 1, 2, 3]] * 5),
}


def a_model(body: str, shape: str = "5,4", opset: int = 21) -> onnx.ModelProto:
    return model_of(f"(float[{shape}] x) => (float[] y)", body, CONSTANTS, opset=opset)


def scattered(reduction: str, column: str = "column", size: str = "all", data: str = "data") -> str:
    return f'e = Expand({column}, {size}) y = ScatterElements<axis = 0, reduction = "{reduction}">({data}, e, x)'


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_rows_are_scattered_at_once(reduction: str) -> None:
    model = a_model(scattered(reduction))
    before = model.SerializeToString(deterministic=True)
    found = scatter_rows(model)
    assert model.SerializeToString(deterministic=True) == before
    assert op_types(found) == ["Reshape", "ScatterND"]
    onnx.checker.check_model(found, full_check=True)
    feed = feed_of(model)
    np.testing.assert_allclose(outputs_of(found, feed)[0], outputs_of(model, feed)[0], rtol=1e-6)


def test_rows_may_have_several_axes() -> None:
    model = a_model(scattered("add", "deep", "all_deep", "data_deep"), "5,4,2")
    found = scatter_rows(model)
    assert op_types(found) == ["Reshape", "ScatterND"]
    np.testing.assert_allclose(outputs_of(found, feed_of(model))[0], outputs_of(model, feed_of(model))[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "shape", "opset"),
    [
        (scattered("none"), "5,4", 21),
        (scattered("max"), "5,4", 17),
        (scattered("add", size="some"), "5,3", 21),
        (scattered("add").replace("axis = 0", "axis = 1"), "5,4", 21),
        (scattered("add", "row"), "5,4", 21),
        ('y = ScatterElements<axis = 0, reduction = "add">(data, own, x)', "5,4", 21),
        ("y = Relu(x)", "5,4", 21),
    ],
    ids=["which one counts", "opset", "a part of a row", "columns", "an index for each", "no Expand", "another"],
)
def test_others_stay(body: str, shape: str, opset: int) -> None:
    model = a_model(body, shape, opset)
    assert scatter_rows(model) is model
