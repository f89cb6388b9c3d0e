from pathlib import Path

import numpy as np
import pytest

from autoquant.graph.preprocess import OPSET, prepare
from autoquant.model.copies import opset_of
from tests.models import Array, floats, model_of, saved, used_in
from tests.unit.graph.preprocessed import X, assert_equals_original, feeds_of, refusing


def test_a_model_that_cannot_be_folded_is_converted_and_frozen_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.graph.preprocess.optimize_basic", refusing("no room for it"))
    model = model_of("(float[N,4] x) => (float[N,2] y)", "h = MatMul(x, w) y = Relu(h)", {"w": floats(4, 2)}, opset=17)
    prepared = prepare(saved(model, path), feeds_of(3, 4))
    assert prepared.notes == ("constants are not folded: no room for it",)
    assert (prepared.graph.shape(X), opset_of(prepared.graph.model)) == ((3, 4), OPSET)
    assert_equals_original(prepared, feeds_of(3, 4))


def test_notes_say_of_each_thing_why_it_was_not_done(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.graph.preprocess.convert_opset", refusing("no such converter"))
    monkeypatch.setattr("autoquant.graph.preprocess.optimize_basic", refusing("no room for it"))
    model = model_of("(float[N,4] x) => (float[N,2] y)", "y = MatMul(x, w)", {"w": floats(4, 2)}, opset=17)
    prepared = prepare(saved(model, path), feeds_of(3, 4))
    assert prepared.notes == (
        "the model stays at opset 17: no such converter",
        "constants are not folded: no room for it",
    )
    assert prepared.graph.shape(X) == (3, 4)


def test_weights_in_fusions_of_onnxruntime_are_named(path: Path) -> None:
    body = "y = com.microsoft.Attention<num_heads = 2>(x, w, b)"
    model = model_of("(float[1,4,8] x) => (float[1,4,8] y)", body, {"w": floats(8, 24), "b": floats(24)})
    prepared = prepare(saved(model, path), feeds_of(1, 4, 8))
    assert [note for note in prepared.notes if "fusions" in note] == [
        "nodes with weights that are fusions of onnxruntime's own stay float (1, such as com.microsoft:Attention): give"
        " the model as it was before it was optimised by onnxruntime"
    ]


def test_convolutions_that_onnxruntime_fused_are_undone(path: Path) -> None:
    body = 't = com.microsoft.FusedConv<activation="Relu">(x, w) y = Conv(t, v)'
    model = model_of(
        "(float[1,3,5,5] x) => (float[1,4,1,1] y)", body, {"w": floats(4, 3, 3, 3), "v": floats(4, 4, 3, 3)}
    )
    prepared = prepare(saved(model, path), feeds_of(1, 3, 5, 5))
    assert [node.op_type for node in prepared.graph.nodes] == ["Conv", "Relu", "Conv"]
    assert not any("fusions" in note for note in prepared.notes)


def test_what_chooses_among_results_is_said_to_make_snr_doubtful(path: Path) -> None:
    model = model_of("(float[1,8] x) => (float[1,3] y, int64[1,3] i)", "y, i = TopK(x, k)", {"k": np.array([3])})
    prepared = prepare(saved(model, path), feeds_of(1, 8))
    assert [note for note in prepared.notes if "element by element" in note and "behind TopK a result" in note] != []


def test_outputs_in_which_results_change_places_are_told_beside_others(path: Path) -> None:
    body = "b = Neg(x) t, i = TopK(b, k) y = Relu(t)"
    model = model_of("(float[1,8] x) => (float[1,8] b, float[1,3] y, int64[1,3] i)", body, {"k": np.array([3])})
    prepared = prepare(saved(model, path), feeds_of(1, 8))
    (note,) = (each for each in prepared.notes if "element by element" in each)
    assert "so that behind TopK, in 'y', 'i', a result more or less" in note
    (name,) = (node.name for node in prepared.graph.nodes if node.op_type == "TopK")
    assert f"cut the model before '{name}'" in note


@pytest.mark.parametrize(
    ("body", "is_said"),
    [
        ("l, i = TopK<axis=0>(n, k) y = Relu(x)", False),
        ("f = Cast<to=1>(n) l0, i = TopK<axis=0>(f, k) l = Cast<to=7>(l0) y = Relu(x)", False),
        ("v = Gather(table, n) l0, i = TopK<axis=0>(v, k) l = Cast<to=7>(l0) y = Relu(x)", True),
        ("l0, i = TopK<axis=0>(x, k) l = Cast<to=7>(l0) y = Relu(x)", True),
    ],
    ids=["of integers", "of their floats", "of a table", "of floats"],
)
def test_nothing_is_said_of_a_choice_that_no_candidate_changes(path: Path, body: str, *, is_said: bool) -> None:
    constants: dict[str, Array | float] = {"k": np.array([2]), "table": floats(8)}
    model = model_of("(float[4] x, int64[4] n) => (float[4] y, int64[2] l)", body, used_in(body, constants))
    feeds = [{"x": floats(4, seed=seed), "n": np.array([3, 1, 2, 0])} for seed in range(2)]
    said = [note for note in prepare(saved(model, path), feeds).notes if "element by element" in note]
    assert bool(said) == is_said


def test_what_holds_for_several_operators_or_outputs_is_said_once(path: Path) -> None:
    model = model_of(
        "(float[8] x) => (float[K] y, float[K] z)", "f = Greater(x, c) y = Compress(x, f) z = Neg(y)", {"c": 0.0}
    )
    notes = prepare(saved(model, path), [{"x": floats(8, seed=seed)} for seed in range(3)]).notes
    assert [note[:41] for note in notes if "depends on" in note] == ["the shape of 'y', 'z' depends on the valu"]

    body = "b = Reshape(x, s) c = Reshape(x, t) i = NonMaxSuppression(b, c, k) y, j = TopK(x, k)"
    sizes = {"s": np.array([1, 2, 4]), "t": np.array([1, 4, 2]), "k": np.array([2])}
    model = model_of("(float[1,8] x) => (int64[K,3] i, float[1,2] y)", body, sizes)
    notes = prepare(saved(model, path), feeds_of(1, 8)).notes
    assert [note[:89] for note in notes if "element by element" in note] == [
        "SNR compares outputs element by element, so that behind NonMaxSuppression and TopK a resu"
    ]


@pytest.mark.parametrize(("ir_version", "n_notes"), [(3, 0), (10, 1)])
def test_inputs_that_become_constants_are_named(ir_version: int, n_notes: int, tmp_path: Path) -> None:
    model = model_of("(float[4] x, float[4] w) => (float[4] y)", "y = Add(x, w)", {"w": floats(4)})
    model.ir_version = ir_version
    prepared = prepare(saved(model, tmp_path / "model.onnx"), [{"x": floats(4)}])
    assert prepared.notes == ("inputs that the model has values for are constants of delivered models: 'w'",) * n_notes


@pytest.mark.parametrize(("last", "is_said"), [("Compress(x, f)", True), ("Where(f, x, c)", False)])
def test_outputs_whose_shape_depends_on_values_are_told(path: Path, last: str, *, is_said: bool) -> None:
    model = model_of("(float[8] x) => (float[K] y)", f"f = Greater(x, c) y = {last}", {"c": 0.0})
    feeds = [{"x": floats(8, seed=seed)} for seed in range(3)]
    assert len({int((feed["x"] > 0).sum()) for feed in feeds}) > 1
    said = [note for note in prepare(saved(model, path), feeds).notes if "the shape of 'y' depends on" in note]
    assert bool(said) == is_said


@pytest.mark.parametrize(
    ("body", "is_said"),
    [
        ("r = Relu(x) y = Expand(r, n)", False),
        ("a = Mul(x, table) m = ReduceMax<keepdims=0>(a) c = Cast<to=7>(m) d = Reshape(c, one) y = Expand(x, d)", True),
    ],
    ids=["counted by integers", "counted by floats"],
)
def test_nothing_is_said_of_a_shape_that_no_candidate_changes(path: Path, body: str, *, is_said: bool) -> None:
    constants: dict[str, Array | float] = {"table": np.array([2, 0], np.float32), "one": np.array([1])}
    model = model_of("(float[1,1] x, int64[2] n) => (float[A,B] y)", body, used_in(body, constants))
    feeds = [{"x": np.array([[k]], np.float32), "n": np.array([k, 2])} for k in (2, 3)]
    said = [note for note in prepare(saved(model, path), feeds).notes if "the shape of 'y' depends on" in note]
    assert bool(said) == is_said
