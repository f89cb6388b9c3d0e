from typing import cast

import numpy as np
import pytest

from autoquant.domain.region import TensorName
from autoquant.inspection.sources import Source, dequantizer, moved, source_of
from tests.inspected import graph_of
from tests.models import model_of
from tests.qdq import Constant, pair, parameters, stored

PLAIN = {"shape": np.array([6, 4]), "first": np.array([0]), "two": np.array([2])}
MIDDLES = {
    "Identity": "y = Identity(@)",
    "Transpose": "y = Transpose(@)",
    "Reshape": "y = Reshape(@, shape)",
    "Slice": "y = Slice(@, first, two)",
    "Unsqueeze": "u = Unsqueeze(@, first) y = Squeeze(u, first)",
    "Transpose twice": "u = Transpose(@) y = Transpose(u)",
    "Cast to the same": "y = Cast<to=1>(@)",
}


def source_in(body: str, signature: str = "(float[4,6] x) => (float y)") -> Source | None:
    values = parameters("x", "u8") | stored("c", Constant((4, 6))) | PLAIN
    read = f"{pair('x', 'x_d')} c_d = DequantizeLinear(c_q, c_s, c_z) {body}"
    return source_of(TensorName("y"), graph_of(model_of(signature, read, values)))


@pytest.mark.parametrize(("tensor", "is_constant"), [("x_d", False), ("c_d", True)])
@pytest.mark.parametrize("name", MIDDLES)
def test_a_dequantizer_is_found_past_what_moves_values(name: str, tensor: str, is_constant: bool) -> None:
    source = source_in(MIDDLES[name].replace("@", tensor))
    assert source is not None
    assert (source.node.name, source.is_constant) == (tensor, is_constant)


def test_what_lies_between_is_in_its_order_without_what_does_nothing() -> None:
    source = source_in("i = Identity(c_d) u = Transpose(i) v = Cast<to=1>(u) y = Reshape(v, shape)")
    assert source is not None
    assert [node.op_type for node in source.between] == ["Transpose", "Reshape"]


@pytest.mark.parametrize("body", ["y = Exp(x_d)", "y = Flatten(x_d)", "y = Gather(x_d, first)", "y = Identity(x)"])
def test_nothing_is_found_past_what_computes_or_is_not_moved_past(body: str) -> None:
    assert source_in(body) is None


@pytest.mark.parametrize(("tensor", "is_found"), [("x_d", False), ("c_d", True)])
def test_another_type_is_passed_on_the_way_to_a_constant_only(tensor: str, is_found: bool) -> None:
    source = source_in(f"y = Cast<to=10>({tensor})", "(float[4,6] x) => (float16 y)")
    assert (source is not None) is is_found


def test_the_dequantizer_is_that_of_the_source() -> None:
    graph = graph_of(model_of("(uint8[4,6] q) => (float y)", "d = DequantizeLinear(q, s) y = Transpose(d)", {"s": 0.1}))
    found = dequantizer(TensorName("y"), graph)
    assert found is not None
    assert found.name == "d"
    assert dequantizer(TensorName("q"), graph) is None


@pytest.mark.parametrize(
    ("body", "rank", "expected"),
    [
        ("y = Identity(c_d)", 2, (0, 1)),
        ("y = Transpose(c_d)", 2, (1, 0)),
        ("y = Transpose<perm=[1,0]>(c_d)", 2, (1, 0)),
        ("u = Transpose(c_d) y = Transpose(u)", 2, (0, 1)),
        ("y = Reshape(c_d, shape)", 2, None),
        ("y = Identity(c_d)", 0, None),
    ],
)
def test_axes_are_followed_through_transposes_only(body: str, rank: int, expected: tuple[int, ...] | None) -> None:
    assert cast("Source", source_in(body)).axes(rank) == expected


def test_axes_of_several_transposes_are_those_of_the_last_one() -> None:
    graph = graph_of(
        model_of(
            "(uint8[2,3,4] q) => (float y)",
            "d = DequantizeLinear(q, s) u = Transpose<perm=[1,2,0]>(d) y = Transpose<perm=[0,2,1]>(u)",
            {"s": 0.1},
        )
    )
    source = source_of(TensorName("y"), graph)
    assert source is not None
    axes = source.axes(3)
    assert axes is not None
    assert tuple((2, 3, 4)[axis] for axis in axes) == (3, 2, 4)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = Transpose(x) b = Slice(a, first, two) y = Exp(b)", "b"),
        ("a = Reshape(x, shape) b = Exp(a) y = Transpose(b)", "a"),
        ("a = Transpose(x) b = Exp(x) y = MatMul(a, b)", "x"),
        ("a = Cast<to=10>(x) y = Exp(a)", "x"),
        ("a = Flatten(x) y = Exp(a)", "x"),
    ],
)
def test_a_tensor_is_followed_to_where_its_quantizer_would_be(body: str, expected: str) -> None:
    graph = graph_of(model_of("(float[4,6] x) => (float y)", body, PLAIN))
    assert moved(TensorName("x"), graph) == expected


def test_a_tensor_that_says_where_another_one_goes_stays() -> None:
    graph = graph_of(model_of("(float[4,6] x, int64[2] s) => (float y)", "y = Reshape(x, s)"))
    assert (moved(TensorName("s"), graph), moved(TensorName("x"), graph)) == ("s", "y")
