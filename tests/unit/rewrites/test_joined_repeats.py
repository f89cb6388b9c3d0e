"""Products of what is joined repeated."""

import math

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.rewrites.joined_repeats import multiply_before_repeating
from tests.models import Array, feed_of, floats, model_of, op_types, used_in
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
    "k": floats(8, 96, 1, 1),
    "k1": floats(8, 96, 1),
    "k3": floats(8, 96, 3, 3),
    "kd": floats(96, 1, 1, 1),
    "cloud": np.array([1, 64, 60]),
    "image": np.array([1, 64, 5, 6]),
    "sizes": np.array([1, 64, 5, 6]),
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
            's = Resize<mode="linear">(n, , , sizes) c = Concat<axis=1>(s, e) y = Conv(c, k, b)',
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
        ("float[K,32] n, float[60,32] e", "s = Gather(n, from) c = Concat<axis=1>(s, e) y = MatMul(c, w64)"),
    ],
    ids=[
        *("rows joined", "read elsewhere", "not repeated", "no repeats", "channels", "no rows", "windows", "groups"),
        *("strides", "pads", "unknown sizes"),
    ],
)
def test_others_stay_as_they_are(inputs: str, body: str) -> None:
    model = a_model(inputs, body)
    assert multiply_before_repeating(model) is model


@given(
    n_nodes=st.integers(1, 20),
    n_edges=st.integers(20, 80),
    widths=st.lists(st.integers(24, 48), min_size=2, max_size=4),
    gathered=st.lists(st.booleans(), min_size=4, max_size=4),
    has_bias=st.booleans(),
)
def test_outputs_stay_the_same(
    n_nodes: int, n_edges: int, widths: list[int], gathered: list[bool], has_bias: bool
) -> None:
    names = [f"x{i}" for i in range(len(widths))]
    inputs = ", ".join(
        f"float[{n_nodes if gathered[i] else n_edges},{width}] {names[i]}" for i, width in enumerate(widths)
    )
    rows = np.random.default_rng(n_edges).integers(0, n_nodes, n_edges)
    parts = [f"g{i} = Gather({name}, rows)" if gathered[i] else f"g{i} = Relu({name})" for i, name in enumerate(names)]
    joined = ", ".join(f"g{i}" for i in range(len(widths)))
    body = f"{' '.join(parts)} c = Concat<axis=1>({joined}) y = Gemm(c, w{', b' if has_bias else ''})"
    constants: dict[str, Array] = {"rows": rows, "w": floats(sum(widths), 8), "b": floats(8)}
    model = model_of(f"({inputs}) => (float[{n_edges},8] y)", body, used_in(body, constants))
    found = rewritten(multiply_before_repeating, model, feed_of(model), rtol=1e-4, atol=1e-4)
    is_repeated = any(gathered[: len(widths)]) and n_edges >= 2 * n_nodes and math.prod((n_nodes, n_edges)) > 0
    assert (found is model) or is_repeated
