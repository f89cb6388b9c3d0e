from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.domain.feed import Feed
from autoquant.errors import DataError, ModelError
from autoquant.graph import narrowed as module
from autoquant.graph.narrowed import narrowed
from autoquant.graph.preprocess import prepare
from autoquant.model.around import candidate_in
from autoquant.model.copies import opset_of
from autoquant.model.prepared import PreparedModel
from autoquant.model.rewrite import convert_opset
from autoquant.model.subgraphs import nodes_in_bodies
from tests.branching import RATE, a_branching_model, feed_at, two_branches
from tests.graphs import run
from tests.models import Array, floats, in_a_function, model_of, op_types, saved

W: dict[str, Array | float] = {"w": floats(2, 2)}
AT_RATE: Sequence[Feed] = [feed_at(RATE, seed=k) for k in range(3)]
OTHERS = "candidates are that branch, and for other inputs files hold the given model beside them, in float"
STAYS = "what is in the branches of If stays float: "


def prepared_by(model: onnx.ModelProto, feeds: Sequence[Feed], path: Path) -> PreparedModel:
    return prepare(saved(model, path / "model.onnx"), feeds)


def delivered(found: PreparedModel) -> onnx.ModelProto:
    """The file of the float candidate."""
    assert found.around is not None
    whole = onnx.load_from_string(b"".join(found.around.whole(found.graph.model.SerializeToString(), {}, {})))
    onnx.checker.check_model(whole, full_check=True)
    return whole


@pytest.mark.parametrize("opset", [13, 21, 22])
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
    assert found.around is None
    assert found.notes == ("'rate' says which branch of 'y' runs: without samples both stay float",)


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
    inner = two_branches("p = Gemm(h, w)", "q = Neg(h)", "t", "d", "pq")
    body = two_branches(f"h = Gemm(x, w) d = Less(n, k) {inner}", "e = Neg(x)")
    model = model_of("(float[N,2] x, bool c, int64 n) => (float[N,2] y)", body, {**W, "k": np.array(3)})
    feeds = [{"x": floats(2, 2, seed=k), "c": np.array(True), "n": np.array(1)} for k in range(3)]
    found = prepared_by(model, feeds, tmp_path)
    assert [node.op_type for node in found.graph.nodes] == ["Gemm", "Gemm"]
    assert len(found.notes) == 2
    for feed in (*feeds, {**feeds[0], "n": np.array(5)}, {**feeds[0], "c": np.array(False)}):
        np.testing.assert_allclose(run(delivered(found), feed)[0], run(model, feed)[0], rtol=1e-5, atol=1e-6)
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


def an_untyped_output() -> onnx.ModelProto:
    model = a_branching_model()
    model.graph.output[0].ClearField("type")
    return model


def an_output_that_is_an_input() -> onnx.ModelProto:
    model = a_branching_model()
    model.graph.output.append(model.graph.input[1])
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (an_undeclared_rank(), "the model does not say how many dimensions input 'x' has"),
        (an_untyped_output(), "the model does not say of which type output 'y' is"),
        (an_output_that_is_an_input(), "output 'rate' is an input"),
        (in_a_function(a_branching_model()), "function 'Module' cannot be put in place of its calls"),
    ],
    ids=["rank", "type", "output", "function"],
)
def test_what_cannot_be_a_branch_is_refused(model: onnx.ModelProto, reason: str) -> None:
    """Of functions that stay, what is around their calls."""
    if model.functions:
        model.graph.CopyFrom(a_branching_model().graph)
    with pytest.raises(ModelError) as raised:
        narrowed(model, AT_RATE, 21)
    assert str(raised.value) == reason


def test_a_model_of_which_no_file_would_hold_both_keeps_its_if(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGEST_BYTES", 100)
    found = prepared_by(a_branching_model(), AT_RATE, tmp_path)
    assert found.around is None
    assert found.notes == (f"{STAYS}files would hold 0.0 GB, a candidate and the given model",)


def test_where_a_branch_cannot_be_taken_the_reason_is_a_note(tmp_path: Path) -> None:
    found = prepared_by(an_output_that_is_an_input(), AT_RATE, tmp_path)
    assert "If" in op_types(found.graph.model)
    assert found.notes == (f"{STAYS}output 'rate' is an input",)


def test_where_nothing_keeps_the_outputs_of_the_branch_the_if_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(model: onnx.ModelProto, taken: object) -> onnx.ModelProto:
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        del changed.graph.node[:]
        changed.graph.node.extend(onnx.parser.parse_graph("g (float[N,8] x) => (float[N,4] y) { y = Gemm(x, u) }").node)
        return changed

    monkeypatch.setattr("autoquant.graph.levels.with_taken", other)
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


def test_a_condition_of_a_branch_is_computed_where_the_branch_runs_alone(tmp_path: Path) -> None:
    """Elsewhere it may fail, as here by a number that is in no table."""
    inner = two_branches("p = Gemm(h, w)", "q = Neg(h)", "i", "d", "pq")
    second = two_branches("p = Gemm(i, w)", "q = Neg(i)", "t", "e", "pq")
    looked_up = f"h = Gemm(x, w) k = Gather(table, n) d = Cast<to=9>(k) {inner} e = Not(d) {second}"
    body = two_branches(looked_up, "o = Neg(x)", ends="to")
    constants = {**W, "table": np.array([1, 0])}
    model = model_of("(float[N,2] x, bool c, int64 n) => (float[N,2] y)", body, constants)
    feeds = [{"x": floats(2, 2, seed=k), "c": np.array(True), "n": np.array(0)} for k in range(3)]
    found = prepared_by(model, feeds, tmp_path)
    assert op_types(found.graph.model) == ["Gemm", "Gemm", "Neg"]
    whole = delivered(found)
    for c, n in ((True, 0), (True, 1), (False, 0), (False, 7), (False, -9)):
        feed = {"x": floats(2, 2), "c": np.array(c), "n": np.array(n)}
        np.testing.assert_allclose(run(whole, feed)[0], run(model, feed)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [0, 1, 500])
def test_outputs_that_a_branch_has_as_constants_are_written(tmp_path: Path, size: int) -> None:
    """As Optimum gives the branch with a cache those of the encoder, without any element."""
    branches = """then_branch = a () => (float[N,2] p, float[K,4] q)
                    { p = Gemm(x, w) q = Identity(cache) },
                  else_branch = b () => (float[N,2] e, float[K,4] f)
                    { e = Neg(x) f = MatMul(x, v) }"""
    model = model_of(
        "(float[N,2] x, bool c) => (float[N,2] y, float[K,4] k)",
        f"y, k = If(c) <{branches}>",
        {**W, "cache": floats(size, 4), "v": floats(2, 4)},
    )
    feeds = [{"x": floats(2, 2, seed=k), "c": np.array(True)} for k in range(3)]
    found = prepared_by(model, feeds, tmp_path)
    assert op_types(found.graph.model) == ["Gemm"]
    assert len(found.notes) == 1
    for feed in (*feeds, {**feeds[0], "c": np.array(False)}):
        for own, given in zip(run(delivered(found), feed), run(model, feed), strict=True):
            np.testing.assert_allclose(own, given, rtol=1e-5, atol=1e-6)


def test_sizes_of_what_a_branch_does_not_read_are_free(tmp_path: Path) -> None:
    model = model_of(
        "(float[N,2] x, float[P,2] past, bool c) => (float[M,2] y)",
        two_branches("t = Gemm(x, w)", "j = Concat<axis=0>(x, past) e = Gemm(j, w)"),
        W,
    )
    feeds = [{"x": floats(2, 2, seed=k), "past": floats(1, 2), "c": np.array(True)} for k in range(3)]
    found = prepared_by(model, feeds, tmp_path)
    whole = delivered(found)
    candidate_in(whole.graph).node.append(onnx.helper.make_node("Neg", ["y"], ["minus"]))
    candidate_in(whole.graph).output[0].name = "minus"
    for past, n, sign in ((1, 2, -1), (0, 2, -1), (5, 2, -1), (1, 3, 1)):
        feed = {"x": floats(n, 2), "past": floats(past, 2), "c": np.array(True)}
        np.testing.assert_allclose(run(whole, feed)[0], sign * run(model, feed)[0], rtol=1e-5, atol=1e-6)


def test_sizes_of_which_a_branch_reads_nothing_else_are_not(tmp_path: Path) -> None:
    """They become constants of it."""
    first = "g = Gemm(x, w) s = Shape<start=0, end=1>(past) f = Cast<to=1>(s) t = Mul(g, f)"
    model = model_of(
        "(float[N,2] x, float[P,2] past, bool c) => (float[M,2] y)", two_branches(first, "e = Gemm(x, w)"), W
    )
    feeds = [{"x": floats(2, 2, seed=k), "past": floats(3, 2), "c": np.array(True)} for k in range(3)]
    whole = delivered(prepared_by(model, feeds, tmp_path))
    for n in (3, 5):
        feed = {**feeds[0], "past": floats(n, 2)}
        np.testing.assert_allclose(run(whole, feed)[0], run(model, feed)[0], rtol=1e-5, atol=1e-6)


def test_sizes_of_what_a_body_inside_reads_are_not(tmp_path: Path) -> None:
    """Of an If that samples choose unlike."""
    inner = two_branches(
        "k = Shape<start=0, end=1>(past) f = Cast<to=1>(k) p = Mul(g, f)", "q = Neg(g)", "t", "d", "pq"
    )
    model = model_of(
        "(float[N,2] x, float[P,2] past, bool c, bool d) => (float[M,2] y)",
        two_branches(f"g = Gemm(x, w) {inner}", "e = Gemm(x, w)"),
        W,
    )
    feeds = [{"x": floats(2, 2), "past": floats(3, 2), "c": np.array(True), "d": np.array(d)} for d in (True, False)]
    whole = delivered(prepared_by(model, feeds, tmp_path))
    for n in (3, 5):
        feed = {**feeds[0], "past": floats(n, 2)}
        np.testing.assert_allclose(run(whole, feed)[0], run(model, feed)[0], rtol=1e-5, atol=1e-6)


def test_a_candidate_that_does_not_run_beside_the_given_model_is_none(tmp_path: Path) -> None:
    model = a_branching_model()
    found, _ = narrowed(model, AT_RATE, 21)
    assert found is not None
    assert found.around(found.model)
    with pytest.raises(ModelError, match="onnxruntime cannot run it beside the given model: "):
        replace(found, feed={}).around(found.model)


def test_numbers_that_choose_alike_and_differ_are_not_said() -> None:
    model = a_branching_model()
    model.graph.node[0].op_type = "LessOrEqual"
    _, (note,) = narrowed(model, [feed_at(RATE), feed_at(8)], 21)
    assert note == f"all samples take one branch of 'y', by 'rate': {OTHERS}"


@pytest.mark.parametrize("is_inside", [False, True])
def test_what_a_conversion_would_change_in_the_branch_that_no_sample_takes_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_inside: bool
) -> None:
    def wrong(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
        converted = convert_opset(model, version)
        for node in (inner for outer in converted.graph.node for inner in nodes_in_bodies(outer)):
            node.op_type = "Abs" if node.op_type == "Neg" else node.op_type
        return converted

    inner = two_branches("p = Gemm(x, w)", "n = Neg(x) q = Gemm(n, w)", "t", "c", "pq")
    plain = two_branches("t = Gemm(x, w)", "n = Neg(x) e = Gemm(n, w)")
    body = f"c = Equal(rate, k) {two_branches(inner, 'e = Gemm(x, w)') if is_inside else plain}"
    constants = {**W, "k": np.array(RATE)}
    model = model_of("(float[N,2] x, int64 rate) => (float[N,2] y)", body, constants, opset=17)
    feeds = [{"x": floats(2, 2, seed=k), "rate": np.array(RATE)} for k in range(3)]
    assert opset_of(prepared_by(model, feeds, tmp_path).graph.model) == 21
    monkeypatch.setattr(module, "convert_opset", wrong)
    found = prepared_by(model, feeds, tmp_path)
    assert opset_of(found.graph.model) == 17
    assert found.around is not None
    assert found.notes[-1].endswith("branches that no sample takes would compute something else")


def test_where_samples_fit_only_the_branch_that_they_take_nothing_is_seen(tmp_path: Path) -> None:
    body = f"c = Equal(rate, k) {two_branches('t = Gemm(x, w)', 'r = Reshape(x, s) e = Gemm(r, u)')}"
    constants = {**W, "k": np.array(RATE), "s": np.array([-1, 3]), "u": floats(3, 2)}
    model = model_of("(float[N,M] x, int64 rate) => (float[A,2] y)", body, constants, opset=17)
    feeds = [{"x": floats(2, 2, seed=k), "rate": np.array(RATE)} for k in range(3)]
    found = prepared_by(model, feeds, tmp_path)
    assert found.around is not None
    assert opset_of(found.graph.model) == 21
    other = {"x": floats(2, 3), "rate": np.array(8)}
    np.testing.assert_allclose(run(delivered(found), other)[0], run(model, other)[0], rtol=1e-5, atol=1e-6)


def test_names_that_the_converter_gives_in_several_bodies_stay_apart(tmp_path: Path) -> None:
    unsqueezed = "u = Unsqueeze<axes=[0]>(q) v = Softmax(u) p = Squeeze<axes=[0]>(v)"
    inner = two_branches(unsqueezed, "o = Identity(q)", "e", "d", "po")
    other = f"g = Gemm(x, w, z) f = Unsqueeze<axes=[0]>(g) q = Squeeze<axes=[0]>(f) {inner}"
    body = two_branches("t = Gemm(x, w, z)", other)
    model = model_of("(float[N,2] x, bool c, bool d) => (float[N,2] y)", body, {**W, "z": floats(2)}, opset=11)
    feeds = [{"x": floats(2, 2, seed=k), "c": np.array(True), "d": np.array(True)} for k in range(3)]
    found = prepared_by(model, feeds, tmp_path)
    assert opset_of(found.graph.model) == 21
    for c, d in ((True, True), (False, True), (False, False)):
        feed = {"x": floats(2, 2), "c": np.array(c), "d": np.array(d)}
        np.testing.assert_allclose(run(delivered(found), feed)[0], run(model, feed)[0], rtol=1e-5, atol=1e-6)


def test_several_that_are_taken_are_one_sentence(tmp_path: Path) -> None:
    ifs = " ".join(
        two_branches(f"t = Gemm({x}, w)", f"e = Neg({x})", y, c)
        for x, y, c in (("x", "a", "c"), ("a", "b", "c"), ("b", "y", "d"))
    )
    model = model_of("(float[N,2] x, bool c, bool d) => (float[N,2] y)", ifs, W)
    feeds = [{"x": floats(2, 2, seed=k), "c": np.array(True), "d": np.array(False)} for k in range(3)]
    found = prepared_by(model, feeds, tmp_path)
    assert found.notes == (f"all samples take one branch of 'a', 'b', 'y', by 'c', 'd': {OTHERS}",)
    for c, d in ((True, True), (True, False), (False, False)):
        feed = {"x": floats(2, 2), "c": np.array(c), "d": np.array(d)}
        np.testing.assert_allclose(run(delivered(found), feed)[0], run(model, feed)[0], rtol=1e-5, atol=1e-6)


def test_a_sample_of_which_no_condition_can_be_computed_is_named(tmp_path: Path) -> None:
    """One behind those that the model was compared on."""
    body = f"k = Gather(table, n) c = Cast<to=9>(k) {two_branches('t = Gemm(x, w)', 'e = Neg(x)')}"
    model = model_of("(float[N,2] x, int64 n) => (float[N,2] y)", body, {**W, "table": np.array([1, 0])})
    feeds = [{"x": floats(2, 2), "n": np.array(0 if i < 5 else 9)} for i in range(6)]
    with pytest.raises(DataError, match=r"^sample 5: onnxruntime cannot run the float model on it"):
        prepared_by(model, feeds, tmp_path)


def test_a_condition_that_is_no_single_truth_in_a_sample_is_left_to_the_if(tmp_path: Path) -> None:
    model = model_of("(float[N,2] x, bool[M] c) => (float[N,2] y)", two_branches("t = Gemm(x, w)", "e = Neg(x)"), W)
    feeds = [{"x": floats(2, 2), "c": np.ones(1 if i < 5 else 3, bool)} for i in range(6)]
    found = prepared_by(model, feeds, tmp_path)
    assert found.around is None
    assert found.notes[0].startswith("samples take both branches of 'y', by 'c'")
