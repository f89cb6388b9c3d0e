from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.model.graph import Graph
from autoquant.rewrites.read_rows import compute_read_rows
from tests.models import Array, floats, model_of, op_types, outputs_of, used_in
from tests.rewriting import rewritten

T, D = 24, 8
CONSTANTS: Mapping[str, Array | float] = {
    "w": floats(D, D),
    "v": floats(D, D, seed=1),
    "u": floats(D, 2 * D),
    "d": floats(2 * D, D),
    "b": floats(D),
    "places": floats(1, T, D),
    "ones": np.ones(D, np.float32),
    "zero": np.array(0),
    "last": np.array(-1),
    "first": np.array([0]),
    "second": np.array([1]),
    "ends": np.array([3]),
    "minus": np.array([-1]),
    "far": np.array([2**63 - 1]),
    "three": np.array([7, 2, 9]),
    "most": np.arange(T - 2),
    "many": np.arange(T // 2) + 1,
    "step": np.array([8]),
    "back": np.array([-8]),
    "int_far": np.array([2**31 - 1]),
    "none": np.array([], np.int64),
    "alone": np.array([1, -1, T, D]),
    "half": 0.5,
    "heads": np.array([1, T, 2, 4]),
    "joined": np.array([1, T, D]),
    "copied": np.array([0, -1, D]),
    "copied_heads": np.array([0, -1, 2, 4]),
    "two": np.array([2]),
    "column": floats(D, 1),
    "keys": floats(D, 4 * T),
    "near": np.arange(T)[None, :, None] - np.arange(T)[None, None, :] + T,
    "around": np.arange(T)[None, :, None] - np.arange(T)[None, None, :],
    "behind": np.arange(T)[None, :, None] - np.arange(T)[None, None, :] - T,
    "firsts": np.array([0, 0]),
    "seconds": np.array([2, 2]),
    "axes": np.array([1, 2]),
    "square": np.zeros((2, 2), np.int64),
    "few_keys": floats(D, 3 * T),
    "words": np.array([3, 9]),
}
ATTENTION = (
    "qp = MatMul(n, w) kp = MatMul(n, v) vp = MatMul(n, w) qh = Reshape(qp, heads) kh = Reshape(kp, heads)"
    " vh = Reshape(vp, heads) q = Transpose<perm=[0,2,1,3]>(qh) k = Transpose<perm=[0,2,3,1]>(kh)"
    " z = Transpose<perm=[0,2,1,3]>(vh) qk = MatMul(q, k) sc = Mul(qk, half) p = Softmax(sc) o = MatMul(p, z)"
    " ot = Transpose<perm=[0,2,1,3]>(o) oj = Reshape(ot, joined) a = MatMul(oj, v)"
)
BLOCK = (
    f"n = LayerNormalization(h, ones, b) {ATTENTION} r = Add(h, a) m = LayerNormalization(r, ones, b)"
    " up = MatMul(m, u) g = Gelu(up) down = MatMul(g, d) s = Add(r, down) e = LayerNormalization(s, ones, b)"
)


def model_with(body: str, *, signature: str = f"(float[1,{T},{D}] x) => (float[] y)") -> onnx.ModelProto:
    return model_of(signature, body, used_in(body, CONSTANTS))


def narrowed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Products of one row are summed up in another order."""
    return rewritten(compute_read_rows, model, rtol=1e-4, atol=1e-5)


def sizes_of(model: onnx.ModelProto, op_type: str) -> list[tuple[int | None, ...] | None]:
    """Of what nodes of a type write."""
    graph = Graph(onnx.shape_inference.infer_shapes(model))
    return [graph.sizes(node.outputs[0]) for node in graph.nodes if node.op_type == op_type]


def test_of_the_last_layer_only_keys_and_values_are_of_all_tokens() -> None:
    found = narrowed(model_with(f"h = Add(x, places) {BLOCK} c = Gather<axis=1>(e, zero) y = MatMul(c, w)"))
    assert sizes_of(found, "MatMul") == [
        (1, 1, D),
        (1, T, D),
        (1, T, D),
        (1, 2, 1, T),
        (1, 2, 1, 4),
        (1, 1, D),
        (1, 1, 2 * D),
        (1, 1, D),
        (1, D),
    ]
    assert sizes_of(found, "LayerNormalization") == [(1, T, D), (1, 1, D), (1, 1, D)]
    assert op_types(found).count("Gather") == 3  # of the normalised, of the summand, and what was there


@pytest.mark.parametrize(
    ("pick", "n_rows"),
    [
        ("y = Gather<axis=1>(m, zero)", 1),
        ("y = Gather<axis=1>(m, last)", 1),
        ("y = Gather<axis=-2>(m, first)", 1),
        ("y = Gather<axis=1>(m, three)", 3),
        ("y = Slice(m, first, ends, second)", 3),
        ("y = Slice(m, first, far, second, step)", 3),
        ("y = Slice(m, minus, first, second, back)", 3),
        ("a = Gather<axis=1>(m, zero) c = Slice(m, first, second, second) y = Add(a, c)", 1),
        ("a = Gather<axis=1>(m, zero) c = Gather<axis=1>(m, last) y = Add(a, c)", 2),
        ("a = Gather<axis=1>(m, three) c = Gather<axis=1>(m, zero) y = Add(a, c)", 4),
        ("a = Gather<axis=1>(m, last) e = LayerNormalization(m, ones, b) c = Gather<axis=1>(e, zero) y = Add(a, c)", 2),
        ("a = Gather<axis=1>(m, zero) r = Relu(m) c = Gather<axis=1>(r, zero) y = Add(a, c)", 1),
    ],
)
def test_rows_that_are_read_are_multiplied_alone(pick: str, n_rows: int) -> None:
    found = narrowed(model_with(f"h = Add(x, places) m = MatMul(h, w) {pick}"))
    assert sizes_of(found, "MatMul") == [(1, n_rows, D)]


def test_from_opset_10_on_rows_are_picked() -> None:
    constants = used_in("w zero", CONSTANTS)
    model = model_of(f"(float[{T},{D}] x) => (float[] y)", "m = MatMul(x, w) y = Gather(m, zero)", constants, opset=10)
    assert sizes_of(narrowed(model), "MatMul") == [(1, D)]


def test_a_gather_is_of_the_first_axis_unless_it_says_so() -> None:
    model = model_with("m = MatMul(x, w) y = Gather(m, zero)", signature=f"(float[{T},2,{D}] x) => (float[] y)")
    assert sizes_of(narrowed(model), "MatMul") == [(1, 2, D)]


@pytest.mark.parametrize("start", [-1, -3])
def test_a_slice_may_count_from_the_end(start: int) -> None:
    constants = {"w": floats(D, D), "s": np.array([start]), "e": np.array([2**63 - 1]), "axes": np.array([1])}
    model = model_of(f"(float[1,{T},{D}] x) => (float[] y)", "m = MatMul(x, w) y = Slice(m, s, e, axes)", constants)
    assert sizes_of(narrowed(model), "MatMul") == [(1, -start, D)]


def test_what_readers_of_unlike_rows_share_is_of_all_that_they_read() -> None:
    body = "m = MatMul(x, w) a = MatMul(m, v) c = MatMul(m, w) p = Gather<axis=1>(a, zero) q = Gather<axis=1>(c, last)"
    found = narrowed(model_with(f"{body} y = Add(p, q)"))
    assert sizes_of(found, "MatMul") == [(1, 2, D), (1, 1, D), (1, 1, D)]


@pytest.mark.parametrize("other", ["Gather<axis=1>(c, many)", "Gather<axis=2>(c, zero)", "ReduceMax(c, second)"])
def test_what_readers_of_many_rows_share_is_whole(other: str) -> None:
    body = f"m = MatMul(x, w) a = MatMul(m, v) c = Relu(m) p = Gather<axis=1>(a, zero) q = {other} s = ReduceMax(q)"
    found = narrowed(model_with(f"{body} y = Add(p, s)"))
    assert sizes_of(found, "MatMul") == [(1, T, D), (1, 1, D)]


def test_rows_of_constants_are_picked_at_once() -> None:
    found = narrowed(model_with("m = MatMul(x, w) a = Add(m, places) y = Gather<axis=1>(a, last)"))
    assert [tensor.dims for tensor in found.graph.initializer if tensor.name.startswith("places")] == [[1, 1, D]]


@pytest.mark.parametrize(
    "body",
    [
        "m = MatMul(x, w) y = Gather<axis=1>(m, most)",
        "m = MatMul(x, w) y = Gather<axis=1>(m, none)",
        "m = MatMul(x, w) y = Relu(m)",
        "m = Relu(x) y = Gather<axis=1>(m, zero)",
        "m = MatMul(x, w) r = ReduceMean(m, second) a = Gather<axis=1>(m, zero) y = Add(a, r)",
        "m = MatMul(x, w) s = Softmax<axis=1>(m) y = Gather<axis=1>(s, zero)",
        "m = MatMul(x, w) a = Shape(m) y = Gather<axis=1>(m, zero) t = Cast<to=1>(a)",
    ],
)
def test_what_all_rows_are_read_of_stays(body: str) -> None:
    outputs = ", float[] t" if " t = " in body else ""
    model = model_with(body, signature=f"(float[1,{T},{D}] x) => (float[] y{outputs})")
    assert compute_read_rows(model) is model


@pytest.mark.parametrize("kept", ["m", "r"])
def test_outputs_of_the_model_stay_whole(kept: str) -> None:
    body = "m = MatMul(x, w) r = Relu(m) y = Gather<axis=1>(r, zero)"
    model = model_with(body, signature=f"(float[1,{T},{D}] x) => (float[] y, float[] {kept})")
    assert compute_read_rows(model) is model


@pytest.mark.parametrize(
    ("size", "n_read", "is_narrowed"), [(8, 1, False), (9, 1, True), (9, 2, False), (24, 12, True), (24, 13, False)]
)
def test_rows_are_computed_alone_where_they_are_few(size: int, n_read: int, is_narrowed: bool) -> None:
    constants: dict[str, Array | float] = {"w": floats(D, D), "rows": np.arange(n_read)}
    model = model_of(
        f"(float[1,{size},{D}] x) => (float[] y)", "m = MatMul(x, w) y = Gather<axis=1>(m, rows)", constants
    )
    assert sizes_of(narrowed(model), "MatMul") == [(1, n_read if is_narrowed else size, D)]


@pytest.mark.parametrize(
    "pick",
    [
        "Slice(m, first, second)",
        "Slice(m, firsts, seconds, axes)",
        "Slice(m, i, ends, second)",
        "Gather<axis=1>(m, square)",
    ],
)
def test_what_is_read_otherwise_stays(pick: str) -> None:
    signature = f"(float[{T},{T},{D}] x, int64[1] i) => (float[] y)"
    model = model_with(f"m = MatMul(x, w) y = {pick}", signature=signature)
    assert compute_read_rows(model) is model


def test_readers_along_other_axes_read_all() -> None:
    read = "p = Gather<axis=1>(a, zero) q = Gather<axis=2>(c, zero)"
    body = f"m = MatMul(x, wide) a = Relu(m) c = Tanh(m) {read} y = Add(p, q)"
    model = model_of(f"(float[1,{T},{T}] x) => (float[] y)", body, {"wide": floats(T, T), "zero": np.array(0)})
    assert compute_read_rows(model) is model


def test_rows_of_tokens_that_are_chosen_at_run_time_stay() -> None:
    signature = f"(float[1,{T},{D}] x, int64 i) => (float[] y)"
    model = model_with("m = MatMul(x, w) y = Gather<axis=1>(m, i)", signature=signature)
    assert compute_read_rows(model) is model


@pytest.mark.parametrize(
    "pick",
    [
        "Gather<axis=1>(e, zero)",
        "Gather<axis=1>(e, last)",
        "Slice(e, first, second, second)",
        "Slice(e, minus, far, second, second)",
        "Slice(e, minus, int_far, second)",
    ],
)
def test_texts_may_be_of_any_length(pick: str) -> None:
    block = BLOCK.replace("heads", "copied_heads").replace("joined", "copied")
    body = f"h = Relu(x) {block} c = {pick} y = MatMul(c, w)"
    model = model_with(body, signature=f"(float[1,n,{D}] x) => (float[] y)")
    found = compute_read_rows(model)
    assert sizes_of(found, "MatMul").count((1, 1, D)) >= 3
    for n in (1, 5, T):
        feed = {"x": floats(1, n, D)}
        np.testing.assert_allclose(outputs_of(found, feed)[0], outputs_of(model, feed)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("flattened", ["Reshape(h, rows)", "Flatten<axis=2>(h)"])
def test_rows_of_a_batch_may_come_one_behind_the_other(flattened: str) -> None:
    """So onnxruntime writes products of three axes."""
    flat = f"f = {flattened} m = Gemm(f, u) g = Relu(m) k = Reshape(g, batch) j = Tanh(k) l = Reshape(j, long)"
    body = f"q = MatMul(x, w) h = Add(q, places) {flat} n = Gemm(l, d) i = Reshape(n, again) r = Add(h, i)"
    shapes = {"rows": [-1, D], "batch": [3, T, 2 * D], "long": [-1, 2 * D], "again": [3, T, D]}
    for pick, n_read in (("Gather<axis=1>(r, last)", 1), ("Gather<axis=1>(r, three)", 3)):
        constants = used_in(f"{body} y = {pick}", CONSTANTS) | {name: np.array(shape) for name, shape in shapes.items()}
        found = narrowed(model_of(f"(float[3,{T},{D}] x) => (float[] y)", f"{body} y = {pick}", constants))
        assert sizes_of(found, "Gemm") == [(3 * n_read, 2 * D), (3 * n_read, D)]
        assert sizes_of(found, "MatMul") == [(3, n_read, D)]


@pytest.mark.parametrize(("sizes", "read"), [([-1, D], "Gather(r, three)"), ([2, -1, D], "Gather<axis=1>(r, zero)")])
def test_rows_that_are_not_those_of_each_of_a_batch_stay(sizes: list[int], read: str) -> None:
    body = f"m = MatMul(x, w) r = Reshape(m, sizes) y = {read}"
    constants = used_in(body, CONSTANTS) | {"sizes": np.array(sizes)}
    model = model_of(f"(float[3,16,{D}] x) => (float[] y)", body, constants)
    assert compute_read_rows(model) is model


def test_an_open_size_may_move_to_another_axis() -> None:
    body = "m = MatMul(x, w) r = Reshape(m, alone) y = Gather<axis=2>(r, zero)"
    model = model_with(body, signature=f"(float[n,{T},{D}] x) => (float[] y)")
    found = rewritten(compute_read_rows, model, {"x": floats(3, T, D)}, rtol=1e-4, atol=1e-5)
    assert sizes_of(found, "MatMul") == [(None, 1, D)]


def test_both_ends_of_an_open_length_may_be_read() -> None:
    body = "m = MatMul(x, w) a = Gather<axis=1>(m, zero) c = Slice(m, minus, far, second) y = Add(a, c)"
    model = model_with(body, signature=f"(float[1,n,{D}] x) => (float[] y)")
    for n in (1, T):
        found = rewritten(compute_read_rows, model, {"x": floats(1, n, D)}, rtol=1e-4, atol=1e-5)
        assert sizes_of(found, "MatMul") == [(1, 2, D)]


def test_batches_may_be_of_any_size() -> None:
    model = model_with(
        f"h = Relu(x) {BLOCK.replace('heads', 'copied_heads').replace('joined', 'copied')} y = Gather<axis=1>(e, last)",
        signature=f"(float[n,{T},{D}] x) => (float[] y)",
    )
    found = compute_read_rows(model)
    assert sizes_of(found, "MatMul").count((None, 1, D)) >= 3
    for n in (1, 3):
        feed = {"x": floats(n, T, D)}
        np.testing.assert_allclose(outputs_of(found, feed)[0], outputs_of(model, feed)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "pick",
    [
        "Slice(m, first, two, second)",
        "Gather<axis=1>(m, second)",
        "Slice(m, first, ends, second)",
        "Slice(m, minus, ends, second)",
        "Slice(m, minus, first, second, minus)",
        "Slice(m, minus, far, second, minus)",
        "Slice(m, first, second, second, minus)",
    ],
)
def test_of_a_length_that_is_open_only_the_ends_are_known(pick: str) -> None:
    model = model_with(f"m = MatMul(x, w) y = {pick}", signature=f"(float[1,n,{D}] x) => (float[] y)")
    assert compute_read_rows(model) is model


@pytest.mark.parametrize("axis", [0, 1])
def test_of_rows_that_are_regrouped_at_run_time_nothing_is_known(axis: int) -> None:
    body = f"m = MatMul(x, w) r = Reshape(m, s) y = Gather<axis={axis}>(r, zero)"
    model = model_with(body, signature=f"(float[{T},{D}] x, int64[2] s) => (float[] y)")
    assert compute_read_rows(model) is model


def test_of_a_line_of_open_length_no_elements_are_gathered() -> None:
    body = "m = MatMul(x, column) q = Squeeze(m, minus) y = GatherElements(q, first)"
    model = model_with(body, signature=f"(float[n,{D}] x) => (float[] y)")
    assert compute_read_rows(model) is model


def test_what_is_joined_may_be_as_long_only_at_run_time() -> None:
    body = "m = MatMul(x, z) s = Concat<axis=1>(m, others) y = Gather<axis=0>(s, minus)"
    constants = used_in(body, CONSTANTS) | {"others": floats(T, 1, D)}
    model = model_of(f"(float[n,2,{D}] x, float[k,{D},{D}] z) => (float[] y)", body, constants)
    assert compute_read_rows(model) is model


@pytest.mark.parametrize("picked", ["near", "around", "behind"])
def test_of_scores_of_distances_those_that_there_are_are_computed(picked: str) -> None:
    """Attention of DeBERTa, which has columns for 512 of them."""
    found = narrowed(model_with(f"s = MatMul(x, keys) c = Mul(s, half) y = GatherElements<axis=2>(c, {picked})"))
    assert sizes_of(found, "MatMul") == [(1, T, 2 * T - 1)]


def test_of_columns_and_rows_rows_are_read() -> None:
    body = "s = MatMul(x, keys) e = GatherElements<axis=2>(s, near) y = Gather<axis=1>(e, last)"
    found = narrowed(model_with(body))
    assert sizes_of(found, "MatMul") == [(1, 1, 4 * T)]
    assert sizes_of(found, "GatherElements") == [(1, 1, T)]


def test_of_columns_that_are_read_of_a_row_those_are_computed() -> None:
    body = "s = MatMul(x, keys) e = GatherElements<axis=2>(s, near) t = Transpose<perm=[0,2,1]>(e)"
    found = narrowed(model_with(f"{body} p = Softmax(t) y = Gather<axis=1>(p, zero)"))
    assert sizes_of(found, "GatherElements") == [(1, T, 1)]
    assert sizes_of(found, "MatMul") == [(1, T, 2 * T - 1)]


@pytest.mark.parametrize(
    "body",
    [
        "s = MatMul(x, few_keys) y = GatherElements<axis=2>(s, near)",
        "s = MatMul(x, keys) y = GatherElements<axis=2>(s, i)",
        "s = MatMul(x, keys) e = GatherElements<axis=2>(s, near) m = ReduceMax(s) y = Add(e, m)",
    ],
)
def test_columns_of_which_most_are_read_or_more_than_are_known_stay(body: str) -> None:
    model = model_with(body, signature=f"(float[1,{T},{D}] x, int64[1,{T},{T}] i) => (float[] y)")
    assert compute_read_rows(model) is model


def test_logits_of_two_words_behind_the_last_one_are_computed_alone() -> None:
    model = model_with("s = MatMul(x, keys) r = Gather<axis=1>(s, last) y = Gather<axis=1>(r, words)")
    once = narrowed(model)
    assert sizes_of(once, "MatMul") == [(1, T, 2)]
    assert sizes_of(narrowed(onnx.shape_inference.infer_shapes(once)), "MatMul") == [(1, 1, 2)]


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.sampled_from(
            [
                "MatMul({}, w)",
                "Add({}, x)",
                "Mul({}, places)",
                "Add({}, b)",
                "LayerNormalization({}, ones, b)",
                "Softmax({})",
                "Softmax<axis=1>({})",
                "Tanh({})",
            ]
        ),
        min_size=1,
        max_size=6,
    ),
    place=st.integers(-T, T - 1),
)
def test_any_chain_gives_the_same_rows(steps: list[str], place: int) -> None:
    nodes = [f"a{i + 1} = {step.format(f'a{i}' if i else 'x')}" for i, step in enumerate(steps)]
    body = f"{' '.join(nodes)} y = Gather<axis=1>(a{len(steps)}, place)"
    constants = {**used_in(body, CONSTANTS), "place": np.array(place)}
    found = narrowed(model_of(f"(float[1,{T},{D}] x) => (float[] y)", body, constants))
    behind = next((i for i, step in enumerate(reversed(steps)) if "axis=1" in step), len(steps))
    pays = [i for i, step in enumerate(steps[len(steps) - behind :]) if "w" in step or "ones" in step]
    assert (op_types(found)[-1] == "Gather" and len(op_types(found)) == len(steps) + 1) is not bool(pays)
