import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.model.graph import Graph
from autoquant.rewrites.lattices import lattice_of
from autoquant.rewrites.read_rows import compute_read_rows
from tests.models import floats, model_of
from tests.rewriting import rewritten

T = 40


def conv_with(attributes: str, *, kernel: int = 3, size: int | str = T) -> Graph:
    body = f"y = Conv<{attributes}>(x, w)" if attributes else "y = Conv(x, w)"
    return Graph(model_of(f"(float[1,2,{size}] x) => (float[] y)", body, {"w": floats(2, 2, kernel)}))


@pytest.mark.parametrize(
    ("attributes", "kernel", "places", "read", "others"),
    [
        ("pads=[8,0], dilations=[4]", 3, (39,), (31, 35, 39), ((0, 0), 1, 1)),
        ("pads=[8,0], dilations=[4]", 3, (31, 35, 39), (23, 27, 31, 35, 39), ((0, 0), 1, 1)),
        ("pads=[4,0], dilations=[2]", 3, (31, 35, 39), (27, 29, 31, 33, 35, 37, 39), ((0, 0), 2, 1)),
        ("pads=[8,0], dilations=[4]", 3, (37, 39), (29, 31, 33, 35, 37, 39), ((0, 0), 1, 2)),
        ("pads=[8,0], dilations=[4]", 3, (3,), (3,), ((2, 0), 1, 1)),
        ("pads=[1,1]", 3, (39,), (38, 39), ((0, 1), 1, 1)),
        ("strides=[2]", 3, (5, 7), (10, 11, 12, 13, 14, 15, 16), ((0, 0), 4, 1)),
        ("", 1, (5, 9), (5, 9), ((0, 0), 1, 1)),
        ("", 1, (5,), (5,), ((0, 0), 1, 1)),
    ],
)
def test_places_are_read_as_far_apart_as_all_allow(
    attributes: str,
    kernel: int,
    places: tuple[int, ...],
    read: tuple[int, ...],
    others: tuple[tuple[int, int], int, int],
) -> None:
    graph = conv_with(attributes, kernel=kernel)
    lattice = lattice_of(graph, graph.nodes[0], 2, places)
    assert lattice is not None
    assert (lattice.axis, lattice.places) == (0, read)
    assert (lattice.pads, lattice.stride, lattice.dilation) == others


@pytest.mark.parametrize(
    ("graph", "axis", "places"),
    [
        (conv_with(""), 1, (0,)),
        (conv_with(""), 2, (1, 2, 4)),
        (conv_with(""), 2, (4, 2)),
        (conv_with("", size="n"), 2, (0,)),
        (conv_with('auto_pad="SAME_UPPER"'), 2, (0,)),
        (conv_with("pads=[9,0]"), 2, (0,)),
        (Graph(model_of("(float[1,2,9] x, float[2,2,k] w) => (float[] y)", "y = Conv(x, w)")), 2, (0,)),
        (Graph(model_of("(float[1,2,9] x) => (float[] y)", "y = Relu(x)")), 2, (0,)),
    ],
)
def test_of_other_places_and_nodes_nothing_is_known(graph: Graph, axis: int, places: tuple[int, ...]) -> None:
    assert lattice_of(graph, graph.nodes[0], axis, places) is None


def test_of_a_causal_network_the_last_place_is_read_of_few() -> None:
    """As many places as there are windows before it, in place of all in all layers."""
    blocks = [
        f"c{i} = Conv<pads=[{2 * d},0], dilations=[{d}]>(h{i}, w) r{i} = Relu(c{i}) h{i + 1} = Add(r{i}, h{i})"
        for i, d in enumerate((1, 2, 4))
    ]
    body = f"h0 = Tanh(x) {' '.join(blocks)} y = Gather<axis=2>(h3, last)"
    model = model_of(f"(float[1,2,{T}] x) => (float[] y)", body, {"w": floats(2, 2, 3), "last": np.array(-1)})
    found = rewritten(compute_read_rows, model, rtol=1e-5, atol=1e-6)
    convs = {node.name: node for node in Graph(found).nodes if node.op_type == "Conv"}
    assert {name: list(node.attributes["strides"]) for name, node in convs.items()} == {"c0": [2], "c1": [2], "c2": [1]}
    assert all(list(node.attributes["dilations"]) == [1] for node in convs.values())


def test_rows_of_images_are_places_too() -> None:
    body = "c = Conv<pads=[1,1,1,1]>(x, w) y = Gather<axis=2>(c, last)"
    model = model_of(f"(float[1,2,{T},5] x) => (float[] y)", body, {"w": floats(3, 2, 3, 3), "last": np.array(-1)})
    found = rewritten(compute_read_rows, model, rtol=1e-5, atol=1e-6)
    (conv,) = [node for node in Graph(found).nodes if node.op_type == "Conv"]
    assert list(conv.attributes["pads"]) == [0, 1, 1, 1]


@settings(max_examples=60, deadline=None)
@given(
    kernel=st.integers(1, 4),
    dilation=st.integers(1, 4),
    stride=st.integers(1, 3),
    first=st.integers(0, 8),
    apart=st.integers(1, 5),
    n=st.integers(1, 4),
    data=st.data(),
)
def test_any_places_have_the_same_values(
    kernel: int, dilation: int, stride: int, first: int, apart: int, n: int, data: st.DataObject
) -> None:
    pads = [data.draw(st.integers(0, 6), label="pad") for _ in range(2)]
    attributes = f"pads={pads}, dilations=[{dilation}], strides=[{stride}]"
    model = model_of(
        f"(float[1,2,{T}] x) => (float[] y)",
        f"c = Conv<{attributes}>(x, w) y = Gather<axis=2>(c, places)",
        {"w": floats(3, 2, kernel), "places": first + apart * np.arange(n)},
    )
    size, places = (T + sum(pads) - dilation * (kernel - 1) - 1) // stride + 1, first + apart * np.arange(n)
    if places[-1] < size:
        read = places[:, None] * stride - pads[0] + dilation * np.arange(kernel)
        is_worth_it = n <= min(size // 2, size - 8) and bool(((read >= 0) & (read < T)).any())
        assert (rewritten(compute_read_rows, model, rtol=1e-4, atol=1e-5) is not model) is is_worth_it
