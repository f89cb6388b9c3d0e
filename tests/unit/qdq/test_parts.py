import numpy as np
import onnx
import pytest

from autoquant.domain.region import TensorName
from autoquant.model import fragments
from autoquant.model.graph import Graph
from autoquant.qdq.parts import Parts, Pieces
from tests.models import Array, constants_of, floats, model_of

W = TensorName("w")
LARGEST_INSIDE = np.arange(1023, dtype=np.uint8)


def some_pieces() -> Pieces:
    return Pieces(Graph(model_of("(float[4] x) => (float[4] y)", "y = Mul(x, w)", {"w": floats(4)})))


def model_in(parts: Parts) -> onnx.ModelProto:
    return onnx.load_from_string(parts.skeleton)


def external(model: onnx.ModelProto) -> set[str]:
    return {t.name for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL}


def test_a_fragment_is_made_once_for_all_models() -> None:
    pieces, made = some_pieces(), []

    def make() -> bytes:
        made.append(1)
        return fragments.opset_import("com.microsoft", len(made))

    first, second = Parts(pieces), Parts(pieces)
    for parts in (first, second, second):
        parts.add("key", make)
    assert made == [1]
    assert len(model_in(first).opset_import) + 1 == len(model_in(second).opset_import)
    assert pieces.piece("other", make) != pieces.piece("key", make)


def test_a_model_begins_with_the_head_and_has_its_nodes_in_the_order_of_their_making() -> None:
    parts = Parts(some_pieces())
    parts.node("Transpose", ["x"], ["a"], "first", axis=0)
    parts.node("com.microsoft:FusedMatMul", ["a", "w"], ["y"], "second", transA=1, transB=1)
    model = model_in(parts)
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["x", "y"]
    assert [(node.name, node.domain, node.op_type) for node in model.graph.node] == [
        ("first", "", "Transpose"),
        ("second", "com.microsoft", "FusedMatMul"),
    ]
    assert {a.name: a.i for a in model.graph.node[1].attribute} == {"transA": 1, "transB": 1}


def test_nodes_that_differ_in_one_thing_alone_are_different_ones() -> None:
    parts = Parts(some_pieces())
    calls: list[tuple[str, list[str], list[str], str, dict[str, int]]] = [
        ("Add", ["x", "w"], ["a"], "n", {}),
        ("Mul", ["x", "w"], ["a"], "n", {}),
        ("Add", ["w", "x"], ["a"], "n", {}),
        ("Add", ["x", "w"], ["b"], "n", {}),
        ("Add", ["x", "w"], ["a"], "m", {}),
        ("Add", ["x", "w"], ["a"], "n", {"axis": 0}),
        ("Add", ["x", "w"], ["a"], "n", {"axis": 1}),
    ]
    for op_type, inputs, outputs, name, attributes in calls:
        parts.node(op_type, inputs, outputs, name, **attributes)
    nodes = model_in(parts).graph.node
    assert len({node.SerializeToString() for node in nodes}) == len(calls)


def test_a_thing_is_new_once_in_each_model() -> None:
    pieces = some_pieces()
    first, second = Parts(pieces), Parts(pieces)
    assert [first.is_new(key) for key in ("a", "b", "a")] == [True, True, False]
    assert second.is_new("a")


@pytest.mark.parametrize(
    ("values", "is_outside"),
    [
        (LARGEST_INSIDE, False),
        (np.append(LARGEST_INSIDE, np.uint8(0)), True),
        (floats(256), True),
        (np.ones(2048, bool), True),
        (np.array(["a" * 99] * 99, object), False),
        (np.zeros(2048, np.complex64), False),
        (np.zeros((0, 4), np.float32), False),
    ],
    ids=["small", "large", "floats", "booleans", "strings", "complex", "empty"],
)
def test_only_large_numbers_are_left_outside(values: Array, is_outside: bool) -> None:
    parts = Parts(some_pieces())
    for _ in range(2):
        assert parts.constant("w", values, "float") == "w"
    (tensor,) = model_in(parts).graph.initializer
    assert (external(model_in(parts)) == {"w"}) is is_outside
    assert (list(parts.constants) == ["w"]) is is_outside
    assert tuple(tensor.dims) == values.shape
    if not is_outside:
        np.testing.assert_array_equal(constants_of(model_in(parts))["w"].astype(values.dtype), values)


def test_models_of_one_graph_keep_their_own_values_under_one_name() -> None:
    pieces = some_pieces()
    small, large = (floats(4), floats(4, seed=1)), (floats(512), floats(512, seed=1))
    both = [Parts(pieces), Parts(pieces)]
    for parts, inside, outside in zip(both, small, large, strict=True):
        parts.constant("s", inside, "a")
        parts.constant("l", outside, "a")
    for parts, inside, outside in zip(both, small, large, strict=True):
        (tensor,) = (t for t in model_in(parts).graph.initializer if t.name == "s")
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), inside)
        np.testing.assert_array_equal(parts.constants["l"], outside)


def test_the_first_variant_of_a_constant_has_its_name_and_others_theirs_with_a_label() -> None:
    parts = Parts(some_pieces())
    assert parts.base(W, "s8") == "w"
    parts.constant("w_quantized", floats(4), "s8")
    parts.constant("w_quantized", floats(4), "u8")
    assert parts.variants == {"w_quantized": "s8"}
    assert (parts.base(W, "s8"), parts.base(W, "u8")) == ("w", "w:u8")


def test_the_first_variant_is_known_by_a_name_that_was_free() -> None:
    body = "w_quantized = Mul(x, w) y = Sin(w_quantized)"
    parts = Parts(Pieces(Graph(model_of("(float[4] x) => (float[4] y)", body, {"w": floats(4)}))))
    parts.constant(parts.pieces.free("w_quantized"), floats(4), "s8")
    assert (parts.base(W, "s8"), parts.base(W, "u8")) == ("w", "w:u8")


def test_a_new_constant_takes_no_name_of_the_model_and_is_there_once() -> None:
    parts = Parts(some_pieces())
    names = [parts.new_constant(name, floats(2)) for name in ("w", "w", "v")]
    assert names == ["w_", "w_", "v"]
    assert [t.name for t in model_in(parts).graph.initializer] == ["w_", "v"]


def test_new_nodes_get_names_that_are_free() -> None:
    model = model_of("(float[4] x) => (float[4] y)", "a = Mul(x, w) y = Mul(a, w)", {"w": floats(4)})
    model.graph.node[0].name, model.graph.node[1].name = "x_keep", "x_keep_"
    pieces = Pieces(Graph(model))
    assert [pieces.free_node(name) for name in ("x_keep", "y_keep")] == ["x_keep__", "y_keep"]
