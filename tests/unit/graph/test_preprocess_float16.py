from pathlib import Path

import numpy as np
import pytest

from autoquant.graph.preprocess import prepare
from tests.models import floats, model_of, op_types, outputs_of, saved
from tests.unit.graph.preprocessed import assert_equals_original, feeds_of, refusing


def test_weights_that_onnxruntime_casts_from_float16_are_constants(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.graph.preprocess.widen_halves", refusing("it is left to onnxruntime"))
    half = {"w": floats(4, 3, 3, 3).astype(np.float16), "b": floats(4).astype(np.float16)}
    body = "h = Cast<to=10>(x) c = Conv(h, w, b) r = Relu(c) y = Cast<to=1>(r)"
    model = model_of("(float[1,3,5,5] x) => (float[1,4,3,3] y)", body, half)
    prepared = prepare(saved(model, path), feeds_of(1, 3, 5, 5))
    assert prepared.difference_db >= 60
    conv = next(node for node in prepared.graph.nodes if node.op_type == "Conv")
    assert [prepared.graph.dtype(name) for name in conv.inputs[1:]] == ["float32", "float32"]
    assert all(prepared.graph.is_constant(name) for name in conv.inputs[1:])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_float16_transformer_is_prepared_as_in_float32(path: Path, dtype: type[np.generic]) -> None:
    tensors = {"g": floats(8), "h": floats(8), "w": floats(8, 8)}
    numbers = {"two": 2.0, "eps": 1e-5, "one": 1.0, "half": 0.5, "sqrt2": 2**0.5}
    body = """m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps)
              s = Sqrt(e) n = Div(d, s) ng = Mul(n, g) l = Add(ng, h) t = Transpose<perm=[0,2,1]>(l)
              a = MatMul(l, t) p = Softmax(a) o = MatMul(p, l) f = MatMul(o, w)
              z = Div(f, sqrt2) r = Erf(z) u = Add(r, one) k = Mul(f, u) y = Mul(k, half)"""
    kind = "float16" if dtype is np.float16 else "float"
    constants = {name: np.asarray(value, dtype) for name, value in {**tensors, **numbers}.items()}
    model = model_of(f"({kind}[1,4,8] x) => ({kind}[1,4,8] y)", body, constants, opset=17)
    prepared = prepare(saved(model, path), [{"x": floats(1, 4, 8).astype(dtype)}])
    middle = ["LayerNormalization", "Transpose", "MatMul", "Softmax", "MatMul", "Reshape", "Gemm", "Reshape", "Gelu"]
    ends = ["Cast"] * (dtype is np.float16)
    assert op_types(prepared.graph.model) == [*ends, *middle, *ends]
    assert prepared.from_halves == (dtype is np.float16)
    assert any(note.startswith("float16 becomes float32") for note in prepared.notes) == prepared.from_halves


def test_a_float16_model_whose_outputs_hang_on_its_rounding_is_left_to_onnxruntime(path: Path) -> None:
    constants = {
        "w": floats(4, 3, 3, 3, scale=1e-3),
        "g": np.full(4, 1e-3),
        "zero": np.zeros(4),
        "one": np.ones(4),
        "k": np.array(1e4),
    }
    halves = {name: value.astype(np.float16) for name, value in constants.items()}
    body = """h = Cast<to=10>(x) c = Conv(h, w) b = BatchNormalization(c, g, zero, zero, one)
              m = Mul(b, k) y = Cast<to=1>(m)"""
    model = model_of("(float[1,3,5,5] x) => (float[1,4,3,3] y)", body, halves)
    prepared = prepare(saved(model, path), feeds_of(1, 3, 5, 5))
    assert [note.split(" (")[0] for note in prepared.notes] == ["float16 is left to onnxruntime: outputs differ"]
    assert prepared.from_halves


def test_float16_inputs_and_outputs_keep_their_type(path: Path) -> None:
    halves = {"w": floats(4, 4).astype(np.float16)}
    model = model_of("(float16[2,4] x) => (float16[2,4] y, float[2,4] z)", "y = MatMul(x, w) z = Cast<to=1>(y)", halves)
    feeds = [{"x": floats(2, 4, seed=seed).astype(np.float16)} for seed in range(3)]
    prepared = prepare(saved(model, path), feeds)
    assert [array.dtype for array in outputs_of(prepared.graph.model, feeds[0])] == [np.float16, np.float32]
    assert_equals_original(prepared, feeds)
    assert not prepared.graph.has_halves
