from math import prod
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.transposes import move_one_axis_each
from tests.graphs import optimized
from tests.models import model_of, op_types
from tests.rewriting import rewritten

SPLIT = ["Reshape", "Transpose", "Reshape", "Transpose", "Reshape"]


def a_model(
    sizes: tuple[int, ...], permutation: tuple[int, ...], shape: tuple[int, ...], body: str = ""
) -> onnx.ModelProto:
    given_ = ",".join(map(str, sizes))
    return model_of(
        f"(float[{given_}] x) => (float[] y)",
        body or f"t = Transpose<perm = {list(permutation)}>(x) y = Reshape(t, s)",
        {"s": np.array(shape)},
    )


UNSHUFFLED = a_model((1, 4, 16, 2, 24, 2), (0, 1, 3, 5, 2, 4), (1, 16, 16, 24))
UNPATCHED = a_model((1, 14, 14, 16, 16, 3), (0, 5, 1, 3, 2, 4), (1, 3, 224, 224))


@pytest.mark.parametrize("model", [UNSHUFFLED, UNPATCHED], ids=["pixels to channels", "patches to pixels"])
def test_two_moves_come_in_place_of_one_transpose_and_stay_two(model: onnx.ModelProto, tmp_path: Path) -> None:
    found = rewritten(move_one_axis_each, model)
    assert op_types(found) == SPLIT
    assert op_types(model) == ["Transpose", "Reshape"]
    kernels = optimized(found, tmp_path).kernels
    assert kernels.count("Transpose") == 2


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=6),
    st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_values_are_where_they_were(sizes: list[int], seed: int) -> None:
    permutation = tuple(int(axis) for axis in np.random.default_rng(seed).permutation(len(sizes)))
    scaled = (*sizes[:-1], sizes[-1] * -(-4096 // prod(sizes)))
    model = a_model(scaled, permutation, (-1,))
    found = rewritten(move_one_axis_each, model)
    moves = [node.attribute[0].ints for node in found.graph.node if node.op_type == "Transpose" and found is not model]
    assert all(any(_without(tuple(each), axis) for axis in range(len(each))) for each in moves)


def _without(permutation: tuple[int, ...], axis: int) -> bool:
    """Whether all axes but one are in their order."""
    rest = [each for each in permutation if each != axis]
    return rest == sorted(rest)


@pytest.mark.parametrize(
    "model",
    [
        a_model((1, 64, 8, 32), (0, 2, 3, 1), (8, 2048)),
        a_model((1, 14, 14, 16, 16), (0, 3, 1, 4, 2), (256, 196), body="y = Transpose<perm = [0, 3, 1, 4, 2]>(x)"),
        a_model((8, 4, 8, 4, 96), (0, 3, 2, 1, 4), (8, -1)),
        a_model((2, 2, 2, 2, 2, 2), (0, 1, 3, 5, 2, 4), (8, 8)),
        a_model((8, 8, 8, 8), (3, 2, 1, 0), (64, 64)),
    ],
    ids=["one move", "no Reshape", "last axis stays", "small", "three moves"],
)
def test_others_stay(model: onnx.ModelProto) -> None:
    assert move_one_axis_each(model) is model


def test_a_transpose_that_others_read_stays() -> None:
    body = "t = Transpose<perm = [0, 3, 2, 1]>(x) y = Reshape(t, s) z = Neg(t)"
    model = model_of("(float[1,64,32,32] x) => (float[] y, float[] z)", body, {"s": np.array([32, -1])})
    assert move_one_axis_each(model) is model
