import numpy as np
import pytest

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.model.ops import can_be_dynamic, is_quantizable
from autoquant.model.rewrite import infer_shapes
from tests.models import model_of

BEFORE = "r = Relu(x) s = Shape(r) hw = Slice(s, two, four) f = Cast<to=1>(hw) m = Mul(f, factor)"


def graph_of(body: str) -> Graph:
    constants = {
        "two": np.array([2]),
        "four": np.array([4]),
        "ones": np.array([1.0, 1.0], np.float32),
        "scale": np.array([2.0], np.float32),
        "some": np.array([1, 4]),
    }
    return Graph(model_of("(float[1,4,H,W] x, float[1] factor) => (float[?,?,?,?] y)", f"{BEFORE} {body}", constants))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("k = Floor(m) i = Cast<to=7>(k) n = Concat<axis=0>(some, i) y = Resize(r, , , n)", True),
        ("n = Concat<axis=0>(ones, m) y = Resize(r, , n)", True),
        ("i = Cast<to=7>(m) n = Concat<axis=0>(some, i) y = Reshape(r, n)", True),
        ("i = Cast<to=7>(m) n = Concat<axis=0>(some, i) e = Expand(scale, n) y = Add(r, e)", True),
        ("i = Cast<to=7>(m) e = Slice(r, two, i) y = Mul(e, m)", True),
        ("i = Cast<to=7>(m) n = Concat<axis=0>(some, i) y = Resize(r, , , n) z = ReduceMean(m)", True),
        ("n = Concat<axis=0>(ones, m) y = Resize(r, , n) z = Sigmoid(m)", True),
        ("i = Cast<to=7>(m) y = Gather(r, i)", False),
        ("h, v = Split<axis=0, num_outputs=2>(m) i = Cast<to=7>(h) y = Reshape(r, i)", True),
        ("y = Identity(m)", False),
        ("u = Sub(m, m) y = Identity(r)", False),
        ("t = Sigmoid(m) i = Cast<to=7>(t) n = Concat<axis=0>(some, i) y = Resize(r, , , n)", True),
        ("g = Greater(m, scale) i = Cast<to=7>(g) y = Expand(r, i)", True),
        ("t = Sigmoid(m) g = Greater(t, scale) i = Cast<to=7>(g) y = Expand(r, i)", False),
    ],
    ids=[
        "sizes",
        "scales",
        "shape",
        "expanded",
        "a value too",
        "a mean too",
        "a function too",
        "an index",
        "a part",
        "an output",
        "nothing",
        "a function",
        "compared",
        "a function compared",
    ],
)
def test_a_float_is_a_size_where_it_leads_to_how_large_a_tensor_is(body: str, expected: bool) -> None:
    graph = graph_of(body)
    assert (TensorName("m") in graph.size_tensors) == expected
    multiplied = next(node for node in graph.nodes if node.name == "m")
    assert is_quantizable(multiplied, graph) != expected


@pytest.mark.parametrize("first", ["h", "v"])
def test_a_split_stays_float_for_any_of_its_parts(first: str) -> None:
    parts = f"h, v = Split<axis=0, num_outputs=2>(m) i = Cast<to=7>({first})"
    graph = graph_of(f"{parts} e = Reshape(r, i) s_ = Add(h, v) y = Mul(e, s_)")
    assert not is_quantizable(graph.producer[TensorName("h")], graph)
    assert TensorName(first) in graph.size_tensors
    assert TensorName("s_") not in graph.size_tensors


def test_the_trip_count_of_a_loop_is_a_size() -> None:
    body = """b = body (int64 i, bool go, float[?,?,?,?] a) => (bool still, float[?,?,?,?] a_)
              { still = Identity(go) a_ = Add(a, a) }"""
    graph = graph_of(f"c = Squeeze(m) n = Cast<to=7>(c) y = Loop(n, , r) <{body}>")
    assert TensorName("m") in graph.size_tensors
    assert TensorName("r") not in graph.size_tensors


def test_what_says_how_large_something_in_a_body_is_is_a_size() -> None:
    branch = "float[?,?,?,?] {name}) {{ k = Floor(n) {name} = Resize(r, , k) }}"
    bodies = ", ".join(
        f"{name} = {name}_body () => ({branch.format(name=f'{name}_y').replace('k', f'{name}_k')}"
        for name in ("then_branch", "else_branch")
    )
    graph = graph_of(f"n = Concat<axis=0>(ones, m) g = ReduceMin<keepdims=0>(x) c = Cast<to=9>(g) y = If(c) <{bodies}>")
    assert TensorName("m") in graph.size_tensors
    assert TensorName("r") not in graph.size_tensors
    assert TensorName("g") not in graph.size_tensors


@pytest.mark.parametrize(
    "body",
    [
        "t = Relu(r) s2 = Shape(t) y = Reshape(x, s2)",
        "k = ReduceMin<keepdims=0>(r) y = Pad(x, some, k)",
        "k = ReduceMin<keepdims=0>(r) y = Clip(x, k)",
        "t = Sigmoid(r) q = NonZero(t) s2 = Shape(q) y = Expand(x, s2)",
        "t = ReduceMean(r) k = Greater(t, scale) i = Cast<to=7>(k) y = Expand(x, i)",
        "q = ArgMax(r) y = Expand(x, q)",
    ],
    ids=["shape of", "padding", "bound", "number of", "compared", "chosen"],
)
def test_activations_are_no_sizes(body: str) -> None:
    assert TensorName("r") not in graph_of(body).size_tensors


def test_layers_that_predict_how_long_something_is_stay_float() -> None:
    """As durations of sounds, of which the sum is the length of what is spoken; what is read beside them need not."""
    constants = {"w": np.ones((4, 4), np.float32), "zero": np.array(0), "one": np.array(1)}
    body = """h = MatMul(x, w) d = MatMul(h, w) e = Exp(d) c = Ceil(e) l = ReduceSum<keepdims=0>(c) i = Cast<to=7>(l)
              t = Range(zero, i, one) f = Cast<to=1>(t) v = MatMul(h, w) m = ReduceMean<keepdims=0>(v) y = Mul(f, m)"""
    graph = Graph(model_of("(float[3,4] x) => (float[N] y)", body, constants))
    products = {node.name: is_quantizable(node, graph) for node in graph.nodes if node.op_type == "MatMul"}
    assert products == {"h": False, "d": False, "v": True}
    assert can_be_dynamic(graph.producer[TensorName("v")], graph)
    assert not can_be_dynamic(graph.producer[TensorName("d")], graph)


def test_what_is_resized_is_a_value() -> None:
    graph = graph_of("n = Concat<axis=0>(ones, m) y = Resize(r, , n)")
    assert TensorName("r") not in graph.size_tensors
    assert TensorName("y") not in graph.size_tensors


POSITIONS = "s = Shape(x) l = Gather(s, two) n = Squeeze(l) p = Range(zero, n, one) f = Cast<to=1>(p)"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Mul(f, scale)", True),
        ("u = Unsqueeze(f, zeros) t = Transpose(u) a = MatMul(t, row) y = Reshape(a, some)", True),
        ("e = Expand(column, s3) u = Unsqueeze(f, zeros) y = MatMul(e, u)", True),
        ("o = ConstantOfShape(l) z = NonZero(o) c = Cast<to=1>(z) y = Mul(c, scale)", True),
        ("o = ConstantOfShape(l) c = Cast<to=1>(o) a = CumSum(c, zero) y = Mul(a, scale)", True),
        ("a = Mul(f, scale) i = Sin(a) y = Mul(i, scale)", False),
        ("o = ConstantOfShape(l) y = Mul(o, scale)", False),
        ("g = Less(p, n) c = Cast<to=1>(g) y = Mul(c, scale)", False),
        ("m = Cast<to=1>(n) d = Div(f, m) y = Mul(d, scale)", False),
        ("i = Cast<to=7>(f) e = Gather(table, i) y = Mul(e, scale)", False),
        ("r = Relu(x) y = Add(r, f)", False),
        ("i = ArgMax(x) e = Gather(table, i) a = ReduceSum(e) y = Mul(a, scale)", False),
        ("i = ArgMax(x) e = Gather(f, i) y = Mul(e, scale)", False),
        ("e = Expand(scale, s) y = Mul(e, scale)", False),
        ("m = Mul(scale, scale) y = Add(m, m)", False),
    ],
    ids=[
        *("angles", "an outer product", "a repeated constant", "places", "a running sum", "a sine", "zeros"),
        *(
            "a comparison",
            "shares of a size",
            "a table",
            "beside a value",
            "rows by a value",
            "positions by a value",
            "a constant",
            "constants",
        ),
    ],
)
def test_what_grows_with_sizes_has_no_range(body: str, expected: bool) -> None:
    constants = {
        "zero": np.array(0),
        "one": np.array(1),
        "two": np.array([2]),
        "zeros": np.array([0]),
        "some": np.array([-1]),
        "scale": np.array([2.0], np.float32),
        "s3": np.array([3, 1]),
        "column": np.ones((1, 1), np.float32),
        "row": np.ones((1, 3), np.float32),
        "table": np.ones((9, 2), np.float32),
    }
    graph = Graph(infer_shapes(model_of("(float[1,4,T] x) => (float[?] y)", f"{POSITIONS} {body}", constants)))
    assert ("y" in graph.position_tensors) is expected
    assert is_quantizable(graph.nodes[-1], graph) is not expected
