from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from autoquant.domain.region import RegionId
from autoquant.domain.rewrite import Rewrite
from autoquant.domain.scheme import Scheme
from autoquant.model.fragments import inline_external
from autoquant.qdq.gelus import exact_gelus, gelu_excerpts
from tests.graphs import U8S8_CHANNEL, Case, case_of, run, scheme
from tests.models import Array, floats, model_of

DYNAMIC = scheme("u8:tensor:asym", "s8:channel:sym:unsaturated", ranges="dynamic")
CONSTANTS: Mapping[str, Array] = {"w": floats(8, 8), "v": floats(8, 8, seed=1), "flat": np.array([2, 24])}


def a_case(body: str, given: str = "float[1,6,8] x", opset: int = 21) -> Case:
    used = {name: value for name, value in CONSTANTS.items() if f", {name})" in body}
    return case_of(model_of(f"({given}) => (float[] y)", body, used, opset=opset))


BETWEEN = a_case("a = MatMul(x, w) g = Gelu(a) y = MatMul(g, v)")


def approximations(case: Case, schemes: Mapping[str, Scheme]) -> list[str]:
    """Of its GELUs in their order, where so much is quantized and this rewrite is used."""
    builder = case.builder({each.name: each for each in schemes.values()})
    builder.write(frozenset({Rewrite.TANH_GELUS}))
    by_output = {str(node.outputs[0]): node.name for node in case.graph.nodes}
    candidate = builder.build({RegionId(by_output[name]): each.name for name, each in schemes.items()})
    model = inline_external(candidate.skeleton, candidate.constants, {})
    found = [{a.name: a.s.decode() for a in node.attribute} for node in model.graph.node if node.op_type == "Gelu"]
    return [each.get("approximate", "none") for each in found]


@pytest.mark.parametrize(
    ("body", "quantized", "expected"),
    [
        ("a = MatMul(x, w) g = Gelu(a) y = MatMul(g, v)", ["a"], ["tanh"]),
        ("a = MatMul(x, w) g = Gelu(a) y = MatMul(g, v)", ["y"], ["tanh"]),
        ("a = MatMul(x, w) g = Gelu(a) y = MatMul(g, v)", [], ["none"]),
        ("a = MatMul(x, w) r = Reshape(a, flat) g = Gelu(r) y = Neg(g)", ["a"], ["tanh"]),
        ("g = Gelu(x) t = Transpose<perm=[0,1,2]>(g) r = Relu(t) y = MatMul(r, w)", ["y"], ["tanh"]),
        ("g = Gelu(x) n = Neg(g) y = MatMul(n, w)", ["y"], ["none"]),
        ("a = MatMul(x, w) n = Neg(a) g = Gelu(n) y = Neg(g)", ["a"], ["none"]),
        ("g = Gelu(x) n = MatMul(g, w) h = Gelu(n) k = Neg(h) y = MatMul(k, v)", ["n"], ["tanh", "tanh"]),
        ("g = Gelu(x) n = MatMul(g, w) h = Neg(n) k = Gelu(h) y = MatMul(k, v)", ["n"], ["tanh", "none"]),
    ],
)
@pytest.mark.parametrize("taken", [U8S8_CHANNEL, DYNAMIC], ids=["static", "dynamic"])
def test_a_gelu_is_approximated_beside_what_is_quantized(
    body: str, quantized: list[str], expected: list[str], taken: Scheme
) -> None:
    assert approximations(a_case(body), dict.fromkeys(quantized, taken)) == expected


def test_without_the_rewrite_it_is_exact() -> None:
    nodes = BETWEEN.quantized(U8S8_CHANNEL).model.graph.node
    assert [list(node.attribute) for node in nodes if node.op_type == "Gelu"] == [[]]


def test_it_is_possible_where_there_is_an_exact_one() -> None:
    assert BETWEEN.builder({}).possible == {Rewrite.TANH_GELUS}
    case = a_case('a = MatMul(x, w) g = Gelu<approximate="tanh">(a) y = MatMul(g, v)')
    assert case.builder({}).possible == frozenset()


def test_the_largest_one_is_run_alone_exact_and_approximate() -> None:
    graph = a_case("s = MatMul(x, w) g = Gelu(s) j = Concat<axis=1>(x, g) y = Gelu(j)").graph
    found = gelu_excerpts(graph, exact_gelus(graph))
    assert found is not None
    assert [dict(each.shapes) for each in found] == [{"j": (1, 12, 8)}] * 2
    models = [onnx.load_from_string(each.model) for each in found]
    assert [[a.s for n in model.graph.node for a in n.attribute] for model in models] == [[], [b"tanh"]]
    feed = {"j": np.linspace(-8, 8, 96, dtype=np.float32).reshape(1, 12, 8)}
    exact, other = (run(model, feed)[0] for model in models)
    assert 1e-4 < np.abs(exact - other).max() < 5e-4


def test_there_is_nothing_to_run_alone_where_sizes_are_not_known() -> None:
    model = model_of("(float[N,8] x) => (float[] y)", "y = Gelu(x)", {})
    graph = case_of(model, {"x": floats(2, 8)}).graph
    assert gelu_excerpts(graph, exact_gelus(graph)) is None
