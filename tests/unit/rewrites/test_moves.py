import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.model.graph import Graph
from autoquant.rewrites.moves import axes_of, axis_behind, only_moves
from tests.models import model_of, outputs_of

AXES = {"axes": [2], "both": [0, -1], "channels": [1], "all": [1, 2], "start": [0, 0], "end": [3, 3]}
SHAPES = {
    "flat": [2, 4, 15],
    "apart": [2, 2, 2, 3, 5],
    "joined": [8, 15],
    "mixed": [1, 4, 30],
    "first": [1, 2, 4, 15],
    "rest": [-1, 4, 5, 3],
}
CONSTANTS = {name: np.array(values, np.int64) for name, values in (AXES | SHAPES).items()}


def behind(call: str, axis: int = 1, *, size: str = "2,4,3,5", opset: int = 21) -> int | None:
    constants = {name: value for name, value in CONSTANTS.items() if f" {name}" in call}
    model = model_of(f"(float[{size}] x, int64[1] r) => (float[] y)", f"y = {call}", constants, opset=opset)
    graph = Graph(model)
    return axis_behind(graph, graph.nodes[0], axis)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("Transpose<perm=[2,3,0,1]>(x)", 3),
        ("Transpose(x)", 2),
        ("Unsqueeze(x, axes)", 1),
        ("Unsqueeze(x, both)", 2),
        ("Slice(x, start, end, both)", 1),
        ("Reshape(x, flat)", 1),
        ("Reshape(x, first)", 2),
        ("Reshape(x, rest)", 1),
    ],
)
def test_an_axis_that_stays_whole_is_found_where_a_mover_puts_it(call: str, expected: int) -> None:
    assert behind(call) == expected


@pytest.mark.parametrize(
    "call",
    [
        "Slice(x, start, end, all)",
        "Slice(x, start, end)",
        "Slice(x, start, end, r)",
        "Unsqueeze(x, r)",
        "Reshape(x, apart)",
        "Reshape(x, joined)",
        "Reshape(x, mixed)",
        "Reshape(x, r)",
        "Flatten(x)",
        "Relu(x)",
        "Pad(x, r)",
        "MaxPool<kernel_shape=[1,1]>(x)",
    ],
)
def test_an_axis_that_is_cut_or_known_at_run_time_only_is_not_found(call: str) -> None:
    assert behind(call) is None


def test_an_axis_that_is_squeezed_is_gone_and_others_move_up() -> None:
    assert behind("Squeeze(x, axes)", size="2,4,1,5") == 1
    assert behind("Squeeze(x, axes)", 3, size="2,4,1,5") == 2
    assert behind("Squeeze(x, axes)", 2, size="2,4,1,5") is None
    assert behind("Squeeze(x)", size="2,4,1,5") is None


@pytest.mark.parametrize("call", ["Squeeze(x, axes)", "Unsqueeze(x, axes)", "Transpose<perm=[0,1,3,2]>(x)"])
def test_sizes_need_not_be_known_but_to_regroup(call: str) -> None:
    assert behind(call, size="N,4,1,M") == 1
    assert behind("Reshape(x, flat)", size="N,4,3,M") is None


def test_channels_that_become_places_are_gone_and_samples_are_not() -> None:
    assert behind("DepthToSpace<blocksize=2>(x)") is None
    assert behind("DepthToSpace<blocksize=2>(x)", 0) == 0


@pytest.mark.parametrize("call", ["Squeeze<axes=[-2]>(x)", "Unsqueeze<axes=[2]>(x)"])
def test_axes_were_attributes_once(call: str) -> None:
    assert behind(call, size="2,4,1,5", opset=11) == 1


def test_a_node_without_inputs_moves_nothing() -> None:
    graph = Graph(model_of("(float[1] x) => (float[1] y)", "y = Constant<value_floats=[1.0]>()"))
    assert axis_behind(graph, graph.nodes[0], 0) is None
    assert not only_moves(graph.nodes[0])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_elements_keep_their_index_along_the_axis(data: st.DataObject) -> None:
    """What holds the index along an axis holds it, behind any mover, along the axis that is found."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    axis = data.draw(st.integers(0, len(sizes) - 1))
    model = data.draw(movers(sizes))
    graph = Graph(model)
    found = axis_behind(graph, graph.nodes[0], axis)
    shape = [-1 if i == axis else 1 for i in range(len(sizes))]
    x = np.broadcast_to(np.arange(sizes[axis], dtype=np.float32).reshape(shape), sizes).copy()
    (y,) = outputs_of(model, {"x": x})
    if found is not None:
        wanted = [-1 if i == found else 1 for i in range(y.ndim)]
        np.testing.assert_array_equal(y, np.broadcast_to(np.arange(sizes[axis]).reshape(wanted), y.shape))


@st.composite
def movers(draw: st.DrawFn, sizes: list[int]) -> onnx.ModelProto:
    """One node that reads ``x`` of these sizes."""
    n = len(sizes)
    ones = [i for i, size in enumerate(sizes) if size == 1]
    op_type = draw(st.sampled_from(["Transpose", "Reshape", "Unsqueeze", "Slice", *(["Squeeze"] if ones else [])]))
    constants: dict[str, npt.NDArray[np.generic] | float] = {}
    match op_type:
        case "Transpose":
            call = f"Transpose<perm={draw(st.permutations(range(n)))}>(x)"
        case "Reshape":
            groups = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
            total = int(np.prod(sizes))
            shape = []
            for size in groups:
                shape.append(size if total % size == 0 else 1)
                total //= shape[-1]
            constants["s"] = np.array([*shape, total], np.int64)
            call = "Reshape(x, s)"
        case "Slice":
            axes = draw(st.lists(st.sampled_from(range(n)), min_size=1, unique=True))
            n_axes = len(axes)
            constants |= {"a": np.array(axes), "b": np.full(n_axes, -1), "e": np.full(n_axes, -9)}
            call = "Slice(x, b, e, a, b)"
        case _:
            possible = ones if op_type == "Squeeze" else range(n + 1)
            constants["a"] = np.array(draw(st.lists(st.sampled_from(possible), min_size=1, max_size=1)), np.int64)
            call = f"{op_type}(x, a)"
    listed = ",".join(map(str, sizes))
    return model_of(f"(float[{listed}] x) => (float[] y)", f"y = {call}", constants)


def test_movers_add_no_values_of_their_own() -> None:
    body = "a = Transpose(x) b = Flatten(a) c = Pad(b, p) y = Relu(c)"
    graph = Graph(model_of("(float[2,3] x) => (float[N,M] y)", body, {"p": np.array([0, 1, 0, 0])}))
    assert [only_moves(node) for node in graph.nodes] == [True, True, False, False]


@pytest.mark.parametrize(
    ("call", "opset", "expected"),
    [
        ("Unsqueeze(x, both)", 21, (0, 3)),
        ("Slice(x, start, end, both)", 21, (0, 3)),
        ("ReduceMean(x, all)", 21, (1, 2)),
        ("ReduceMean<axes=[-1,1]>(x)", 13, (3, 1)),
        ("ReduceMean(x)", 21, None),
        ("ReduceMean(x, r)", 21, None),
        ("Relu(x)", 21, None),
    ],
)
def test_axes_are_read_from_constants_and_attributes(call: str, opset: int, expected: tuple[int, ...] | None) -> None:
    constants = {name: value for name, value in CONSTANTS.items() if f" {name}" in call}
    graph = Graph(model_of("(float[2,4,3,5] x, int64[1] r) => (float[] y)", f"y = {call}", constants, opset=opset))
    assert axes_of(graph, graph.nodes[0], 4) == expected
    assert axes_of(graph, graph.nodes[0], 0) is None
