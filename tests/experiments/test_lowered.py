import onnx
import pytest

from autoquant.graph import rewriting
from experiments.bench.lowered import MODELS, REWRITES, measure_lowered, render_lowered, small_model
from tests.models import feed_of, op_types, outputs_of


@pytest.mark.parametrize("name", MODELS)
def test_every_model_runs_and_is_written_otherwise(name: str) -> None:
    model = small_model(MODELS[name])
    onnx.checker.check_model(model)
    assert outputs_of(model, feed_of(model))[0].any()
    found = model
    for rewrite in REWRITES:
        found = onnx.shape_inference.infer_shapes(getattr(rewriting, rewrite)(found))
    assert (op_types(found) == op_types(model)) is name.startswith("hard swish")  # candidates write it


def test_forms_are_measured_beside_the_given_model() -> None:
    case = ((2, 6, 6), *MODELS["DepthToSpace, 64 to 16 channels of 64 x 64"][1:])
    small = (case[0], case[1], {"first": (8, 2, 3, 3), "last": (2, 2, 1, 1)})
    found = measure_lowered(small, 2.0)
    assert list(found) == ["u8, as given", "float, written otherwise", "u8, written otherwise"]
    assert all(each["ratio"] > 0 for each in found.values())
    assert "| small |" in render_lowered({"parts": {"small": {"model": "small", **found}}})
