import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from autoquant.model.saturation import EXACT, two_products


def test_exact_arithmetic_gives_the_exact_number() -> None:
    model = onnx.load_from_string(two_products())
    onnx.checker.check_model(model, full_check=True)
    (found,) = ReferenceEvaluator(model).run(None, {"x": np.array([[255, 255]], np.uint8)})
    assert np.asarray(found).tolist() == [[EXACT]]
