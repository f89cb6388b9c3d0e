from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.domain.feed import Feed
from autoquant.errors import ModelError
from autoquant.graph import narrowed as module
from autoquant.graph.narrowed import narrowed
from autoquant.graph.preprocess import prepare
from autoquant.model.copies import opset_of
from autoquant.model.prepared import PreparedModel
from tests.branching import RATE, a_branching_model, feed_at, two_branches
from tests.models import Array, floats, in_a_function, model_of, op_types, saved

W: dict[str, Array | float] = {"w": floats(2, 2)}
AT_RATE: Sequence[Feed] = [feed_at(RATE, seed=k) for k in range(3)]
OTHERS = "candidates are that branch, and for other inputs files hold the given model beside them, in float"
STAYS = "what is in the branches of If stays float: "


def prepared_by(model: onnx.ModelProto, feeds: Sequence[Feed], path: Path) -> PreparedModel:
    return prepare(saved(model, path / "model.onnx"), feeds)


@pytest.mark.parametrize("opset", [13, 21])
def test_a_branch_that_all_samples_take_is_what_candidates_are_made_of(tmp_path: Path, opset: int) -> None:
    found = prepared_by(a_branching_model(opset=opset), AT_RATE, tmp_path)
    assert [node.op_type for node in found.graph.nodes] == ["Gemm", "Relu", "Gemm"]
    assert found.around is not None
    assert found.difference_db > 100
    assert found.notes == (f"all samples take one branch of 'y', by 'rate', which is 16 in all of them: {OTHERS}",)


def test_branches_that_samples_take_both_stay(tmp_path: Path) -> None:
    found = prepared_by(a_branching_model(), [*AT_RATE, feed_at(8)], tmp_path)
    assert "If" in op_types(found.graph.model)
    assert found.around is None
    assert found.notes == (
        "samples take both branches of 'y', by 'rate': what is in them stays float; give samples that take one",
    )


def test_without_samples_nothing_is_known(tmp_path: Path) -> None:
    found = prepared_by(a_branching_model(), [], tmp_path)
    assert "If" in op_types(found.graph.model)
    assert (found.around, found.notes) == (None, ())


def test_inputs_that_decide_together_or_are_no_single_number_have_no_value_in_the_note() -> None:
    body = f"m = ReduceMax(mask) c = And(m, d) {two_branches('t = Gemm(x, w)', 'e = Neg(x)')}"
    model = model_of("(float[2,2] x, bool[3] mask, bool d) => (float[2,2] y)", body, W)
    feed = {"x": floats(2, 2), "mask": np.ones(3, bool), "d": np.array(True)}
    _, (note,) = narrowed(model, [feed] * 2, 21)
    assert note == f"all samples take one branch of 'y', by 'mask', 'd': {OTHERS}"
    body = f"c = ReduceMax(mask) {two_branches('t = Gemm(x, w)', 'e = Neg(x)')}"
    model = model_of("(float[2,2] x, bool[3] mask) => (float[2,2] y)", body, W)
    _, (note,) = narrowed(model, [feed] * 2, 21)
    assert note == f"all samples take one branch of 'y', by 'mask': {OTHERS}"


def test_an_if_inside_a_branch_that_is_taken_is_taken_too(tmp_path: Path) -> None:
    inner = (
        "then_branch = a () => (float[N,2] p) { p = Gemm(h, w) }, else_branch = b () => (float[N,2] q) { q = Neg(h) }"
    )
    body = two_branches(f"h = Gemm(x, w) d = Less(n, k) t = If(d) <{inner}>", "e = Neg(x)")
    model = model_of("(float[N,2] x, bool c, int64 n) => (float[N,2] y)", body, {**W, "k": np.array(3)})
    feeds = [{"x": floats(2, 2, seed=k), "c": np.array(True), "n": np.array(1)} for k in range(3)]
    found = prepared_by(model, feeds, tmp_path)
    assert [node.op_type for node in found.graph.nodes] == ["Gemm", "Gemm"]
    assert len(found.notes) == 2
    varying = prepared_by(model, [*feeds, {**feeds[0], "n": np.array(5)}], tmp_path)
    assert [node.op_type for node in varying.graph.nodes if node.op_type in ("If", "Gemm")] == ["Gemm", "If"]
    assert [note.partition(" of ")[0] for note in varying.notes] == [
        "all samples take one branch",
        "samples take both branches",
    ]


def an_undeclared_rank() -> onnx.ModelProto:
    model = a_branching_model()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    return model


def an_output_that_is_an_input() -> onnx.ModelProto:
    model = a_branching_model()
    model.graph.output.append(model.graph.input[1])
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (an_undeclared_rank(), "it does not say how many dimensions input 'x' has"),
        (an_output_that_is_an_input(), "no node writes output 'rate'"),
        (in_a_function(a_branching_model()), "function 'Module' cannot be put in place of its calls"),
    ],
    ids=["rank", "output", "function"],
)
def test_what_cannot_be_a_branch_is_refused(model: onnx.ModelProto, reason: str) -> None:
    """Of functions that stay, what is around their calls."""
    if model.functions:
        model.graph.CopyFrom(a_branching_model().graph)
    with pytest.raises(ModelError) as raised:
        narrowed(model, AT_RATE, 21)
    assert str(raised.value) == reason


def test_a_model_that_fits_into_no_file_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGEST_BYTES", 100)
    with pytest.raises(ModelError, match=r"files would hold it beside candidates, and it has 0\.0 GB"):
        narrowed(a_branching_model(), AT_RATE, 21)


def test_where_a_branch_cannot_be_taken_the_reason_is_a_note(tmp_path: Path) -> None:
    found = prepared_by(an_output_that_is_an_input(), AT_RATE, tmp_path)
    assert "If" in op_types(found.graph.model)
    assert found.notes == (f"{STAYS}no node writes output 'rate'",)


def test_where_nothing_keeps_the_outputs_of_the_branch_the_if_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(model: onnx.ModelProto, taken: object) -> onnx.ModelProto:
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        del changed.graph.node[:]
        changed.graph.node.extend(onnx.parser.parse_graph("g (float[N,8] x) => (float[N,4] y) { y = Gemm(x, u) }").node)
        return changed

    monkeypatch.setattr(module, "with_taken", other)
    found = prepared_by(a_branching_model(), AT_RATE, tmp_path)
    assert "If" in op_types(found.graph.model)
    assert found.around is None
    (note,) = found.notes
    assert note.startswith(f"{STAYS}outputs differ (")


def test_a_model_that_cannot_be_converted_is_searched_at_its_own_opset(tmp_path: Path) -> None:
    body = f"c = Equal(rate, k) {two_branches('h = Gemm(x, w, z) t = Hardmax(h)', 'e = Gemm(x, w, z)')}"
    constants = {"w": floats(2, 3), "z": floats(3), "k": np.array(RATE)}
    model = model_of("(float[N,2] x, int64 rate) => (float[N,3] y)", body, constants, opset=11)
    feeds = [{"x": floats(2, 2, seed=k), "rate": np.array(RATE)} for k in range(3)]
    found = prepared_by(model, feeds, tmp_path)
    assert found.around is not None
    assert opset_of(found.graph.model) == 11
    assert op_types(found.graph.model) == ["Gemm", "Hardmax"]
    assert [note.partition(":")[0] for note in found.notes] == [
        "all samples take one branch of 'y', by 'rate', which is 16 in all of them",
        "the model stays at opset 11",
    ]
