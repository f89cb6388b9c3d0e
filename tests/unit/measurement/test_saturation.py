import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

from autoquant.domain.target import Target
from autoquant.errors import TargetError
from autoquant.measurement.saturation import is_saturating

PRODUCT = """<ir_version: 8, opset_import: ["" : 13]> g (uint8[1,2] x) => (int32[1,1] y)
<int8[2,1] w = {127, 127}> { y = MatMulInteger(x, w) }"""


def test_what_is_found_is_what_the_integer_product_shows() -> None:
    session = ort.InferenceSession(parser.parse_model(PRODUCT).SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.array([[255, 255]], np.uint8)})
    assert is_saturating(Target()) is (found.item() != 2 * 127 * 255)


def test_what_cannot_run_it_is_not_known_to_saturate(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def run(self, *_: object) -> None:
            raise RuntimeError("no kernel")

    monkeypatch.setattr("autoquant.measurement.saturation.open_session", lambda *_: Failing())
    assert not is_saturating(Target())


def test_a_provider_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TargetError, match=r"^execution provider 'qnn' is not installed"):
        is_saturating(Target("qnn"))
