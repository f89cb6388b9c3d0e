"""Products of what is joined repeated."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.joined_repeats import multiply_before_repeating
from tests.models import Array, floats, model_of, op_types, used_in
from tests.rewriting import rewritten

ROWS = np.random.default_rng(0).integers(0, 12, 60)
CONSTANTS: dict[str, Array] = {
    "from": ROWS,
    "to": ROWS[::-1].copy(),
    "pairs": ROWS.reshape(2, 30),
    "few": np.arange(12),
    "w": floats(96, 8),
    "wt": floats(8, 96),
    "w64": floats(64, 8),
    "w32": floats(32, 8),
    "b": floats(8),
    "one": floats(1, 8),
    "rows": floats(60, 8),
    "k": floats(8, 96, 1, 1),
    "k1": floats(8, 96, 1),
    "k3": floats(8, 96, 3, 3),
    "kd": floats(96, 1, 1, 1),
    "cloud": np.array([1, 64, 60]),
    "image": np.array([1, 64, 5, 6]),
    "all": np.array([60, 32]),
}
GRAPH, POINTS, IMAGE = "float[12,32] n, float[60,32] e", "float[1,64,1] n, float[1,32,60] e", "float[1,64,1,1] n"
IMAGE += ", float[1,32,5,6] e"


def a_model(inputs: str, body: str) -> onnx.ModelProto:
    return model_of(f"({inputs}) => (float[] y)", body, used_in(body, CONSTANTS))


def left_of(inputs: str, body: str) -> list[str]:
    return op_types(rewritten(multiply_before_repeating, a_model(inputs, body), rtol=1e-4, atol=1e-4))


@pytest.mark.parametrize(
    ("inputs", "body", "expected"),
    [
        (
            GRAPH,
            "s = Gather(n, from) t = Gather(n, to) c = Concat<axis=1>(s, t, e) y = Gemm(c, w, b)",
            ["Gemm", "Gemm", "Gather", "Add", "Gemm", "Gather", "Add"],
        ),
        (
            GRAPH,
            "s = Gather(n, from) t = Gather(n, to) c = Concat<axis=-1>(s, t) y = Gemm<alpha=0.5, beta=2.0>(c, w64, b)",
            ["Gemm", "Gather", "Gemm", "Gather", "Add"],
        ),
        (
            GRAPH,
            "s = Gather(n, from) t = Gather(n, to) c = Concat<axis=1>(s, t) y = Gemm(c, w64, one)",
            ["Gemm", "Gather", "Gemm", "Gather", "Add"],
        ),
        (
            GRAPH,
            "s = Gather(n, from) c = Concat<axis=1>(e, s) y = Gemm(c, w64, rows)",
            ["Gemm", "Gemm", "Gather", "Add"],
        ),
        (
            GRAPH,
            "s = Gather(n, from) c = Concat<axis=1>(e, s) d = Concat<axis=1>(s, e) f = MatMul(c, w64)"
            " g = MatMul(d, w64) y = Sub(f, g)",
            ["MatMul", "MatMul", "Gather", "Add", "MatMul", "MatMul", "Gather", "Add", "Sub"],
        ),
        (
            GRAPH,
            "s = Gather(n, from) c = Concat<axis=1>(e, s, e) y = Gemm<transB=1>(c, wt)",
            ["Concat", "Gemm", "Gemm", "Gather", "Add"],
        ),
        (
            GRAPH,
            "s = Gather(n, pairs) t = Gather(n, pairs) c = Concat<axis=2>(s, t) y = MatMul(c, w64)",
            ["MatMul", "Gather", "MatMul", "Gather", "Add"],
        ),
        (
            "float[1,12,32] n, float[1,60,32] e",
            "s = Gather<axis=1>(n, from) c = Concat<axis=2>(s, e) y = MatMul(c, w64)",
            ["MatMul", "MatMul", "Gather", "Add"],
        ),
        (
            "float[1,32] n, float[60,32] e",
            "s = Expand(n, all) c = Concat<axis=1>(s, e) y = MatMul(c, w64)",
            ["MatMul", "MatMul", "Add"],
        ),
        (
            "float[1,32] n, float[12,32] e",
            "s = Expand(n, all) t = Gather(e, from) c = Concat<axis=1>(s, t) y = MatMul(c, w64)",
            ["MatMul", "Gather", "MatMul", "Add"],
        ),
        (POINTS, "s = Expand(n, cloud) c = Concat<axis=1>(s, e) y = Conv(c, k1, b)", ["Conv", "Conv", "Add"]),
        (IMAGE, "s = Expand(n, image) c = Concat<axis=1>(e, s) y = Conv(c, k, b)", ["Conv", "Conv", "Add"]),
        (
            IMAGE,
            's = Resize<mode="linear">(n, , , image) c = Concat<axis=1>(s, e) y = Conv(c, k, b)',
            ["Conv", "Conv", "Add"],
        ),
    ],
)
def test_products_come_before_what_repeats_them(inputs: str, body: str, expected: list[str]) -> None:
    assert left_of(inputs, body) == expected


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        (GRAPH, "s = Gather(n, from) c = Concat<axis=0>(s, e) y = MatMul(c, w32)"),
        (GRAPH, "s = Gather(n, from) c = Concat<axis=1>(s, e) y = MatMul(c, w64) z = Relu(c)"),
        (GRAPH, "s = Gather(n, few) t = Gather(n, few) c = Concat<axis=1>(s, t) y = MatMul(c, w64)"),
        (GRAPH, "s = Relu(e) c = Concat<axis=1>(s, e) y = MatMul(c, w64)"),
        ("float[60,4] n, float[60,32] e", "s = Gather<axis=1>(n, to) c = Concat<axis=1>(e, e, e) y = MatMul(c, w)"),
        ("float[1,32] n", "s = Expand(n, all) t = Expand(n, all) c = Concat<axis=1>(s, t) y = MatMul(c, w64)"),
        (IMAGE, "s = Expand(n, image) c = Concat<axis=1>(e, s) y = Conv(c, k3, b)"),
        (IMAGE, "s = Expand(n, image) c = Concat<axis=1>(e, s) y = Conv<group=96>(c, kd)"),
        (IMAGE, "s = Expand(n, image) c = Concat<axis=1>(e, s) y = Conv<strides=[2,2]>(c, k)"),
        (IMAGE, "s = Expand(n, image) c = Concat<axis=1>(e, s) y = Conv<pads=[1,1,1,1]>(c, k)"),
        (GRAPH, "s = Gather(n, from) t = Gather(n, to) c = Concat<axis=1>(s, t) y = Gemm(c, w64, rows)"),
        ("float[K,32] n, float[60,32] e", "s = Gather(n, from) c = Concat<axis=1>(s, e) y = MatMul(c, w64)"),
    ],
    ids=[
        *("rows joined", "read elsewhere", "not repeated", "no repeats", "channels", "no rows", "windows", "groups"),
        *("strides", "pads", "a bias of rows", "unknown sizes"),
    ],
)
def test_others_stay_as_they_are(inputs: str, body: str) -> None:
    model = a_model(inputs, body)
    assert multiply_before_repeating(model) is model


@given(
    n_nodes=st.integers(1, 20),
    n_edges=st.integers(20, 80),
    widths=st.lists(st.integers(40, 64), min_size=2, max_size=4),
    gathered=st.lists(st.booleans(), min_size=4, max_size=4),
    bias=st.sampled_from([None, (8,), (1,), (1, 8), "rows", "column"]),
)
@settings(deadline=None, max_examples=60)
def test_outputs_stay_the_same(
    n_nodes: int, n_edges: int, widths: list[int], gathered: list[bool], bias: tuple[int, ...] | str | None
) -> None:
    n = len(widths)
    inputs = ", ".join(f"float[{n_nodes if gathered[i] else n_edges},{widths[i]}] x{i}" for i in range(n))
    parts = " ".join(f"g{i} = Gather(x{i}, at)" if gathered[i] else f"g{i} = Relu(x{i})" for i in range(n))
    joined = ", ".join(f"g{i}" for i in range(n))
    body = f"{parts} c = Concat<axis=1>({joined}) y = Gemm(c, w{'' if bias is None else ', b'})"
    shape = {"rows": (n_edges, 8), "column": (n_edges, 1)}[bias] if isinstance(bias, str) else bias or (8,)
    rows = np.random.default_rng(n_edges).integers(0, n_nodes, n_edges)
    constants: dict[str, Array] = {"at": rows, "w": floats(sum(widths), 8), "b": floats(*shape)}
    model = model_of(f"({inputs}) => (float[{n_edges},8] y)", body, used_in(body, constants))
    found = rewritten(multiply_before_repeating, model, rtol=1e-4, atol=1e-4)
    is_repeated = any(gathered[:n]) and n_edges >= 2 * n_nodes
    is_refused = all(gathered[:n]) and isinstance(bias, str)
    assert (found is not model) is (is_repeated and not is_refused)
