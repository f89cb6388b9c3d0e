import numpy as np
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

from autoquant.domain.feed import Feed
from autoquant.domain.target import Target
from autoquant.errors import DataError
from autoquant.measurement.latency import Outputs
from autoquant.runtime.samples import refuse_non_finite, run_sample
from autoquant.runtime.session import Session, open_session
from tests.fakes import FakeSession
from tests.models import Array, floats, model_of

SAMPLE = "data.npz, sample 3"


def session() -> Session:
    model = model_of("(float[2,3] x) => (float[2,3] y, float[2,3] z)", "y = Exp(x) z = Neg(x)")
    found: Session = open_session(model.SerializeToString(), Target())
    return found


def test_all_outputs_come_by_position_or_those_that_are_named() -> None:
    x = floats(2, 3)
    y, z = run_sample(session(), {"x": x}, SAMPLE)
    np.testing.assert_allclose(y.astype(float), np.exp(x), rtol=1e-5)
    np.testing.assert_array_equal(z, -x)
    (only,) = run_sample(session(), {"x": x}, SAMPLE, output_names=["z"])
    np.testing.assert_array_equal(only, -x)


@pytest.mark.parametrize("x", [floats(2, 4), floats(2, 3).astype(np.float64)], ids=["shape", "type"])
def test_a_sample_that_the_model_cannot_run_on_is_named_in_one_line(x: Array) -> None:
    with pytest.raises(DataError) as refused:
        run_sample(session(), {"x": x}, SAMPLE)
    assert str(refused.value).startswith(f"{SAMPLE}: onnxruntime cannot run the float model on it (")
    assert str(refused.value).endswith("); correct the sample, or leave it out")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("error", [ValueError("no shape"), MemoryError()])
def test_what_onnxruntime_did_not_raise_is_no_fault_of_the_sample(error: Exception) -> None:
    def failing(_: Feed) -> Outputs:
        raise error

    with pytest.raises(type(error)):
        run_sample(FakeSession(failing), {}, SAMPLE)


def test_what_onnxruntime_raised_is_kept_as_the_cause() -> None:
    def failing(_: Feed) -> Outputs:
        raise RuntimeException("first line\nno index 7")

    with pytest.raises(DataError, match="first line") as refused:
        run_sample(FakeSession(failing), {}, SAMPLE)
    assert isinstance(refused.value.__cause__, RuntimeException)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_output_without_any_number_is_refused_with_its_sample(value: float, dtype: type) -> None:
    outputs = [("first", floats(3)), ("second", np.array([[np.nan, value], [value, np.inf]], dtype))]
    with pytest.raises(DataError, match=r"^data\.npz, sample 3: the float model's output 'second' holds NaN or inf"):
        refuse_non_finite(outputs, SAMPLE)


@pytest.mark.parametrize(
    "values",
    [
        np.array([np.finfo(np.float32).max, 0], np.float32),
        np.array([[-np.inf, np.nan], [0, np.inf]], np.float32),
        np.zeros((0, 4), np.float32),
        np.array([np.iinfo(np.int64).max]),
        np.array([True]),
        np.array(["nan", "inf"], object),
    ],
    ids=["largest", "masked", "empty", "integers", "booleans", "strings"],
)
def test_numbers_and_what_can_be_none_are_let_pass(values: Array) -> None:
    refuse_non_finite([("y", values)], SAMPLE)
