import numpy as np
import pytest

from autoquant.domain.region import TensorName
from autoquant.domain.space import QUANTIZABLE_OP_TYPES
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import (
    Kind,
    activations,
    bias_of,
    can_be_dynamic,
    can_emit_float,
    channel_axes,
    channel_axis,
    clip_bounds,
    is_linear,
    is_quantizable,
    kind_of,
    original_of,
    weight_of,
)
from tests.models import Array, floats, model_of

SQUARE = "float[4,4]"


def graph_of(signature: str, body: str, constants: dict[str, Array | float] | None = None) -> Graph:
    return Graph(model_of(signature, body, constants))


def only_node(signature: str, body: str, **constants: tuple[int, ...]) -> tuple[Node, Graph]:
    graph = Graph(model_of(signature, body, {name: floats(*shape) for name, shape in constants.items()}))
    return graph.nodes[-1], graph


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("y = MatMul(x, x)", Kind.LINEAR),
        ("y = Add(x, x)", Kind.ARITHMETIC),
        ("y = Transpose(x)", Kind.SAME_RANGE),
        ("y = Relu(x)", Kind.CLIPPING),
        ("y = Erf(x)", Kind.FLOAT),
        ("y = com.microsoft.QuickGelu(x)", Kind.FLOAT),
    ],
)
def test_every_operator_has_its_part_in_quantization(body: str, kind: Kind) -> None:
    assert kind_of(only_node("(float[4,4] x) => (float[4,4] y)", body)[0]) is kind


def test_operators_that_a_space_may_name_are_known_here() -> None:
    for op_type in QUANTIZABLE_OP_TYPES:
        node = Node(0, "n", op_type, ("x", "w"), ("y",), {})  # type: ignore[arg-type]
        assert kind_of(node) is not Kind.FLOAT, op_type


@pytest.mark.parametrize(
    ("body", "shape", "axis"),
    [
        ("y = Conv(x, w, b)", (6, 2, 3, 3), 0),
        ("y = Conv<group=2>(x, w, b)", (6, 1, 3, 3), 0),
        ("y = ConvTranspose(x, w, b)", (2, 6, 3, 3), 1),
        ("y = ConvTranspose<group=2>(x, w, b)", (2, 3, 3, 3), None),
    ],
)
def test_convolutions_have_a_weight_a_bias_and_an_axis_of_channels(
    body: str, shape: tuple[int, ...], axis: int | None
) -> None:
    node, graph = only_node("(float[1,2,5,5] x) => (float[1,6,?,?] y)", body, w=shape, b=(6,))
    assert (weight_of(node, graph), bias_of(node), channel_axis(node, graph)) == ("w", "b", axis)
    assert activations(node, graph) == ("x",)
    assert is_linear(node, graph)
    assert not can_emit_float(node, graph)


@pytest.mark.parametrize(("attributes", "shape", "axis"), [("", (4, 3), 1), ("<transB=1>", (3, 4), 0)])
def test_a_gemm_has_its_channels_where_transposition_puts_them(
    attributes: str, shape: tuple[int, ...], axis: int
) -> None:
    node, graph = only_node("(float[2,4] x) => (float[2,3] y)", f"y = Gemm{attributes}(x, w)", w=shape)
    assert channel_axis(node, graph) == axis
    assert bias_of(node) is None
    assert can_emit_float(node, graph)


@pytest.mark.parametrize(("shape", "axis"), [((4, 3), 1), ((2, 4, 3), None), ((4,), None)])
def test_only_a_matmul_with_a_matrix_is_quantized_per_channel(shape: tuple[int, ...], axis: int | None) -> None:
    node, graph = only_node("(float[2,2,4] x) => (float[2,?] y)", "y = MatMul(x, w)", w=shape)
    assert channel_axis(node, graph) == axis
    assert is_linear(node, graph)
    assert not can_emit_float(node, graph)


def test_a_product_of_two_activations_has_no_weight() -> None:
    node, graph = only_node("(float[4,4] x) => (float[4,4] y)", "t = Relu(x) y = MatMul(x, t)")
    assert weight_of(node, graph) is None
    assert not is_linear(node, graph)
    assert activations(node, graph) == ("x", "t")
    assert can_emit_float(node, graph)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Add(x, c)", ("x", "c")),
        ("y = Clip(x, c)", ("x",)),
        ("y = Where(p, x, c)", ("x", "c")),
        ("y = Concat<axis=0>(x, x, c)", ("x", "x", "c")),
        ("y = Reshape(x, p)", ("x",)),
        ("y = Pad(x, p, c)", ("x",)),
        ("y = ReduceMean(x, p)", ("x",)),
    ],
)
def test_activations_leave_out_bounds_shapes_and_conditions(body: str, expected: tuple[str, ...]) -> None:
    node, graph = only_node("(float[4] x, int64[4] p) => (float[?] y)", body, c=(1,))
    assert activations(node, graph) == expected


@pytest.mark.parametrize(
    ("call", "signature", "shape", "axes"),
    [
        ("Conv(x, w)", "(float[1,2,5,5] x) => (float[1,6,?,?] y)", (6, 2, 3, 3), (1, 1)),
        ("ConvTranspose(x, w)", "(float[1,2,5,5] x) => (float[1,6,?,?] y)", (2, 6, 3, 3), (1, 1)),
        ("Gemm(x, w)", "(float[2,4] x) => (float[2,3] y)", (4, 3), (-1, -1)),
        ("Gemm<transA=1>(x, w)", "(float[4,2] x) => (float[2,3] y)", (4, 3), (0, -1)),
        ("MatMul(x, w)", "(float[1,2,4] x) => (float[1,2,3] y)", (4, 3), (-1, -1)),
    ],
)
def test_the_channels_of_activations_lie_where_the_operator_has_them(
    call: str, signature: str, shape: tuple[int, ...], axes: tuple[int, int]
) -> None:
    node, _ = only_node(signature, f"y = {call}", w=shape)
    assert channel_axes(node) == axes


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("Gemm(x, w, b)", True),
        ("Gemm(x, w)", True),
        ("Gemm(x, w, row)", True),
        ("Gemm(x, w, one)", True),
        ("Gemm(x, w, column)", False),
        ("Gemm(x, w, full)", False),
        ("Gemm(x, w, x)", False),
        ("Gemm<alpha=2.0>(x, w)", False),
        ("Gemm<beta=2.0>(x, w, b)", True),
        ("Gemm(w, w)", False),
        ("MatMul(x, w)", True),
        ("MatMul(w, x)", True),
        ("MatMul(w, w)", False),
        ("MatMul(infinite, x)", False),
        ("MatMul(x, x)", True),
        ("MatMul(x, infinite)", False),
        ("Add(x, w)", True),
        ("Add(x, infinite)", False),
        ("Add(x, least)", False),
        ("Add(x, largest)", False),
        ("Add(x, far)", True),
        ("Add(w, w)", False),
        ("Tanh(x)", True),
        ("ReduceMean<keepdims=1>(x, axes)", True),
        ("Erf(x)", False),
        ("Transpose(x)", True),
        ("Transpose(w)", False),
        ("Relu(x)", True),
        ("Clip(x, zero, one)", True),
        ("Clip(x, one, )", False),
        ("Clip(x, zero, bound)", False),
        ('Resize<mode="nearest">(x, , , sizes)', True),
        ('Resize<mode="linear">(x, , , sizes)', False),
        ('Resize<mode="nearest", coordinate_transformation_mode="tf_crop_and_resize">(x, roi, , sizes)', False),
    ],
)
def test_a_node_is_quantizable_where_an_integer_kernel_could_take_it(call: str, expected: bool) -> None:
    constants: dict[str, Array | float] = {
        "w": floats(4, 4),
        "b": floats(4),
        "row": floats(1, 4),
        "column": floats(4, 1),
        "full": floats(4, 4),
        "one": 1.0,
        "zero": 0.0,
        "axes": np.array([1]),
        "sizes": np.array([4, 4]),
        "roi": np.array([0, 0, 1, 1], np.float32),
        "infinite": np.full((4, 4), -np.inf, np.float32),
        "least": np.array(np.finfo(np.float32).min),
        "largest": np.array(np.finfo(np.float32).max),
        "far": -10000.0,
    }
    graph = graph_of(f"({SQUARE} x, float bound) => ({SQUARE} y)", f"y = {call}", constants)
    assert is_quantizable(graph.nodes[0], graph) == expected


def test_a_product_that_says_how_large_tensors_are_is_not_quantized_in_any_way() -> None:
    body = "m = MatMul(x, w) n = Cast<to=7>(m) y = Expand(x, n)"
    graph = graph_of("(float[2] x) => (float[a,b] y, float[2] z)", body + " z = MatMul(x, w)", {"w": floats(2, 2)})
    m, *_, z = graph.nodes
    assert (can_be_dynamic(z, graph), is_quantizable(z, graph)) == (True, True)
    assert (can_be_dynamic(m, graph), is_quantizable(m, graph)) == (False, False)


@pytest.mark.parametrize(
    ("shape", "expected"), [((1, 1, 5), False), ((1, 5), True), ((5,), True), ((2, 1, 5), True), ((), True)]
)
def test_a_product_that_a_vector_gives_dimensions_is_not_dynamic(shape: tuple[int, ...], expected: bool) -> None:
    """onnxruntime takes it for the bias, and writes as many dimensions as the product has."""
    constants: dict[str, Array | float] = {"w": floats(8, 5), "b": floats(*shape) if shape else 1.0}
    graph = graph_of("(float[3,8] x) => (float[?,?,?] y)", "m = MatMul(x, w) y = Add(m, b)", constants)
    assert can_be_dynamic(graph.nodes[0], graph) == expected


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_extremes_of_integers_need_an_opset_that_has_them(op_type: str) -> None:
    body = f"y = {op_type}<axes=[1]>(x)"
    for opset, expected in ((11, False), (12, True)):
        graph = Graph(model_of(f"({SQUARE} x) => (float[4,1] y)", body, opset=opset))
        assert is_quantizable(graph.nodes[0], graph) == expected


def test_integers_are_not_quantized() -> None:
    graph = graph_of("(int64[4] x) => (int64[4] y)", "y = Add(x, x)")
    assert not is_quantizable(graph.nodes[0], graph)


def test_a_bound_that_is_not_constant_says_nothing() -> None:
    graph = graph_of(f"({SQUARE} x, float bound) => ({SQUARE} y)", "y = Clip(x, zero, bound)", {"zero": 0.0})
    assert clip_bounds(graph.nodes[0], graph) is None


def test_relu_lets_pass_what_is_not_negative() -> None:
    graph = graph_of(f"({SQUARE} x) => ({SQUARE} y)", "a = Relu(x) b = Clip(a, , six) y = Clip(b)", {"six": 6.0})
    assert [clip_bounds(node, graph) for node in graph.nodes] == [(0, np.inf), (-np.inf, 6), (-np.inf, np.inf)]


def test_the_original_of_a_tensor_is_the_first_one_with_the_same_values() -> None:
    body = "a = Relu(x) b = Transpose(a) c = Unsqueeze(b, axes) d = Identity(c) e = Slice(d, axes, axes) y = Flatten(e)"
    graph = graph_of(f"({SQUARE} x) => (float[1,m] y)", body, {"axes": np.zeros(1, np.int64)})
    names = [TensorName(name) for name in "xabcdey"]
    assert [original_of(name, graph) for name in names] == ["x", "a", "a", "a", "a", "e", "e"]


@pytest.mark.parametrize(
    ("attribute", "expected"), [("", True), (", dilations=[1,1]", False), (", dilations=[2,2]", False)]
)
def test_a_pooling_that_says_dilations_has_no_integer_kernel(attribute: str, expected: bool) -> None:
    body = f"y = AveragePool<kernel_shape=[2,2]{attribute}>(x)"
    node, graph = only_node("(float[1,3,8,8] x) => (float[1,3,?,?] y)", body)
    assert is_quantizable(node, graph) == expected


@pytest.mark.parametrize(
    ("attributes", "size", "expected"),
    [
        ("pads=[1,1,1,1], ceil_mode=1, count_include_pad=1", "8,8", False),
        ("pads=[1,1,1,1], ceil_mode=1, count_include_pad=1", "H,8", False),
        ("pads=[1,1,1,1], ceil_mode=1, count_include_pad=1", "9,9", True),
        ("pads=[1,1,1,1], ceil_mode=1", "8,8", True),
        ("pads=[1,1,1,1], count_include_pad=1", "8,8", True),
        ("ceil_mode=1, count_include_pad=1", "8,8", True),
    ],
)
def test_a_pooling_that_counts_places_beyond_its_padding_has_no_integer_kernel(
    attributes: str, size: str, expected: bool
) -> None:
    body = f"y = AveragePool<kernel_shape=[3,3], strides=[2,2], {attributes}>(x)"
    node, graph = only_node(f"(float[1,3,{size}] x) => (float[1,3,?,?] y)", body)
    assert is_quantizable(node, graph) == expected
