import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.errors import DataError, ModelError, OutputError
from autoquant.graph.preprocess import prepare
from tests.models import a_convnet, feed_of, floats, model_of, saved
from tests.unit.graph.preprocessed import assert_equals_original, feeds_of


def test_a_model_that_draws_random_numbers_is_refused_by_that_name(path: Path) -> None:
    model = model_of("(float[2,4] x) => (float[2,4] y)", "noise = RandomNormalLike(x) y = Add(x, noise)")
    with pytest.raises(ModelError, match="draws other numbers at every inference"):
        prepare(saved(model, path), feeds_of(2, 4))


def test_so_is_one_with_a_dropout_of_training(path: Path) -> None:
    half, training = np.array(0.5, np.float32), np.array(True)
    constants = {"half": half, "training": training}
    model = model_of("(float[2,4] x) => (float[2,4] y)", "y = Dropout(x, half, training)", constants)
    with pytest.raises(ModelError, match="node 'y' draws other numbers at every inference"):
        prepare(saved(model, path), feeds_of(2, 4))


def test_a_model_that_cannot_run_the_samples_is_an_error(path: Path) -> None:
    model = model_of("(float[n,4] x) => (float[2,6] y)", "y = Reshape(x, s)", {"s": np.array([2, 6])})
    with pytest.raises(DataError, match="sample 0: onnxruntime cannot run the float model on it"):
        prepare(saved(model, path), feeds_of(2, 4))


@pytest.mark.parametrize(("dtype", "code"), [("bfloat16", 16), ("float8e5m2", 19), ("int4", 22)])
def test_an_output_that_cannot_be_read_is_named(path: Path, dtype: str, code: int) -> None:
    model = model_of(f"(float[1,4] x) => (float[1,4] y, {dtype}[1,4] q)", f"y = Relu(x) q = Cast<to={code}>(y)")
    with pytest.raises(ModelError, match=r"its output 'q' is .*, which numpy cannot hold; put a Cast"):
        prepare(saved(model, path), feeds_of(1, 4))


def test_a_weight_without_numbers_is_named(path: Path) -> None:
    weight = np.array([[1, np.nan], [2, 3]], np.float32)
    model = model_of("(float[1,2] x) => (float[1,2] y)", "a = MatMul(x, w) y = Softmax(a)", {"w": weight})
    with pytest.raises(ModelError, match="its weight 'w' holds NaN, and its output 'y' no number; export the"):
        prepare(saved(model, path), feeds_of(1, 2))


def test_a_weight_without_numbers_that_a_body_reads_is_named(path: Path) -> None:
    then, other = (f"{name} () => (float[1,2] t) {{ t = {op}(k, w) }}" for name, op in (("a", "Add"), ("b", "Sub")))
    body = (
        "k = Relu(x) s = ReduceSum<keepdims=0>(x) c = Greater(s, zero)"
        f" y = If<then_branch = {then}, else_branch = {other}>(c)"
    )
    weight = np.full((1, 2), np.nan, np.float32)
    model = model_of("(float[1,2] x) => (float[1,2] y)", body, {"w": weight, "zero": 0.0})
    with pytest.raises(ModelError, match="its weight 'w' holds NaN, and its output 'y' no number"):
        prepare(saved(model, path), feeds_of(1, 2))


@pytest.mark.parametrize("value", [-np.inf, np.inf])
def test_an_infinite_constant_behind_which_no_number_is_left_is_named(path: Path, value: float) -> None:
    mask = np.full(4, value, np.float32)
    model = model_of("(float[1,4] x) => (float[1,4] y)", "a = Relu(x) y = Add(a, mask)", {"mask": mask})
    with pytest.raises(ModelError, match="its weight 'mask' holds an infinity, and its output 'y' no number"):
        prepare(saved(model, path), feeds_of(1, 4))


def test_infinite_constants_that_leave_numbers_are_no_matter(path: Path) -> None:
    """Not even a warning of numpy."""
    scale = np.array([1, np.inf, 0, 1], np.float32).reshape(1, 4, 1, 1)
    body = "a = Conv(x, w) r = Relu(a) b = Mul(r, scale) c = Sub(b, scale) y = Relu(c)"
    model = model_of("(float[1,2,3,3] x) => (float[1,4,3,3] y)", body, {"w": floats(4, 2, 1, 1), "scale": scale})
    assert prepare(saved(model, path), feeds_of(1, 2, 3, 3)).notes == ()


def test_an_output_without_any_number_is_named(path: Path) -> None:
    model = model_of(
        "(float[1,4] x) => (float[1,4] a, float[1,4] y)", "a = Relu(x) n = Sub(m, a) y = Log(n)", {"m": -1.0}
    )
    with pytest.raises(DataError, match="sample 0: the float model's output 'y' holds NaN or infinity"):
        prepare(saved(model, path), feeds_of(1, 4))
    with pytest.raises(
        DataError, match=r"a\.npz, sample 7: the float model's output 'y' holds NaN or infinity alone, so"
    ):
        prepare(path, feeds_of(1, 4), sample_names=[f"a.npz, sample {number}" for number in (7, 2, 5)])


def test_a_model_that_is_already_quantized_is_refused(path: Path) -> None:
    model = model_of("(float[4] x) => (float[4] y)", "q = QuantizeLinear(x, s) y = DequantizeLinear(q, s)", {"s": 0.1})
    with pytest.raises(ModelError, match="already quantized"):
        prepare(saved(model, path), feeds_of(4))


def test_what_is_no_model_is_refused(path: Path) -> None:
    path.write_text("PNG, perhaps")
    with pytest.raises(ModelError, match="not an ONNX model"):
        prepare(path, ())


def test_a_model_that_onnxruntime_refuses_is_an_error_that_names_the_file(path: Path) -> None:
    model = a_convnet()
    model.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(ModelError, match=r"model\.onnx: onnxruntime cannot open it: .*NoSuchOperator"):
        prepare(saved(model, path), ())


def test_external_data_are_read_and_their_absence_is_an_error(path: Path) -> None:
    model = a_convnet()
    feed = feed_of(model)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert_equals_original(prepare(path, [feed]), [feed])
    path.with_name("weights.bin").unlink()
    with pytest.raises(ModelError, match="external data cannot be read"):
        prepare(path, [feed])


def test_without_a_place_for_temporary_files_nothing_is_prepared(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(path.parent / "gone"))
    with pytest.raises(OutputError, match=r"temporary files cannot be written .* set TMPDIR"):
        prepare(saved(a_convnet(), path), [feed_of(a_convnet())])
