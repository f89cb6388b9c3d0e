import numpy as np
import onnx
import pytest

from autoquant.inspection.matching import match
from autoquant.model.graph import Graph
from tests.inspected import graph_of
from tests.models import Array, floats, model_of

IMAGE = "float[1,4,5,5]"
CONSTANTS: dict[str, Array | float] = {
    "w": floats(4, 4, 1, 1),
    "i": np.ones((5, 5), np.uint8),
    "b": 0.2,
    "s": 0.1,
    "z": np.array(0, np.uint8),
}


def graph(body: str) -> Graph:
    return graph_of(model_of(f"({IMAGE} x) => ({IMAGE} y)", body, CONSTANTS))


def kernels(given: str, optimized: str, **names: str) -> dict[str, tuple[str, str]]:
    """For each given node its kernel and the leader of that; names of the optimised nodes by their outputs."""
    first = graph(given)
    head = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "com.microsoft.nchwc" : 1]>'
    model = onnx.parser.parse_model(f"{head} optimized ({IMAGE} x) => ({IMAGE} y) {{ {optimized} }}")
    for node in model.graph.node:
        node.name = names.get(node.output[0], node.output[0])
    found = match(first, Graph(model))
    return {
        first.nodes[i].name: (kernel.op_type, found.leader[kernel.index].name) for i, kernel in found.kernel.items()
    }


def test_a_kernel_is_found_by_its_name_with_or_without_a_suffix() -> None:
    expected = {"a": ("Conv", "a"), "y": ("Exp", "y")}
    assert kernels("a = Conv(x, w) y = Exp(a)", "a = Conv(x, w) y = Exp(a)", a="a_token_3") == expected


def test_a_fused_kernel_computes_all_that_leads_to_its_output() -> None:
    found = kernels("a = Exp(x) b = Sin(a) y = Cos(b)", "y = com.microsoft.ExpSinCos(x)")
    assert set(found) == {"a", "b", "y"}
    assert {kernel for kernel, _ in found.values()} == {"com.microsoft:ExpSinCos"}


def test_what_onnxruntime_has_folded_is_in_no_kernel() -> None:
    given = graph("t = Shape(x) e = Expand(b, t) y = Add(x, e)")
    optimized = model_of(f"({IMAGE} x) => ({IMAGE} y)", "y = Add(x, e)", {"e": floats(1, 4, 5, 5)})
    assert {given.nodes[i].name for i in match(given, graph_of(optimized)).kernel} == {"y"}


def test_of_nodes_that_compute_the_same_one_kernel_is_that_of_all() -> None:
    given = "a = Conv(x, w) b = Sin(a) c = Sin(a) d = Exp(b) e = Cos(c) y = Sub(d, e)"
    found = kernels(given, "a = Conv(x, w) b = Sin(a) d = Exp(b) e = Cos(b) y = Sub(d, e)")
    assert found["c"] == found["b"] == ("Sin", "b")
    assert found["e"] == ("Cos", "e")


@pytest.mark.parametrize("kept", ["a", "b", "c"])
def test_whichever_of_three_alike_is_kept_it_computes_the_others(kept: str) -> None:
    given = "a = Sin(x) b = Sin(x) c = Sin(x) d = Exp(a) e = Cos(b) f = Neg(c) y = Sum(d, e, f)"
    found = kernels(given, f"{kept} = Sin(x) d = Exp({kept}) e = Cos({kept}) f = Neg({kept}) y = Sum(d, e, f)")
    assert {found[name] for name in "abc"} == {("Sin", kept)}


def test_the_node_of_the_same_operator_leads_although_the_kernel_is_named_after_its_output() -> None:
    optimized = """i = com.microsoft.nchwc.ReorderInput(x) k = com.microsoft.nchwc.Conv(i, w)
                   y = com.microsoft.nchwc.ReorderOutput(k)"""
    found = kernels("a = Conv(x, w) y = Relu(a)", optimized, k="y_nchwc", y="ReorderOutput")
    assert found == {"a": ("com.microsoft.nchwc:Conv", "a"), "y": ("com.microsoft.nchwc:Conv", "a")}


@pytest.mark.parametrize("named_after", ["m", "o"])
def test_the_product_leads_in_a_kernel_that_is_named_after_a_scale(named_after: str) -> None:
    given = """q, qs, qz = DynamicQuantizeLinear(x) p = MatMulInteger(q, i, qz) c = Cast<to=1>(p)
               m = Mul(qs, s) o = Mul(c, m) y = Add(o, b)"""
    found = kernels(given, "y = com.microsoft.DynamicQuantizeMatMul(x, i, s)", y=named_after)
    expected = ("com.microsoft:DynamicQuantizeMatMul", "p")
    assert [found[name] for name in "pcmoy"] == [expected] * 5


def test_the_product_leads_although_a_mul_is_fused_into_its_kernel() -> None:
    found = kernels("h = Mul(x, s) y = MatMul(h, x)", "y = com.microsoft.FusedMatMul(x, x)", y="h")
    assert found == dict.fromkeys(("h", "y"), ("com.microsoft:FusedMatMul", "y"))


def test_a_product_kernel_without_a_product_in_the_file_is_led_by_what_it_is_named_after() -> None:
    found = kernels("a = Exp(x) y = Einsum(a, x)", "y = com.microsoft.FusedMatMul(x, x)")
    assert found["y"] == ("com.microsoft:FusedMatMul", "y")


def test_a_cast_that_onnxruntime_added_computes_nothing() -> None:
    optimized = """i = Cast<to=1>(x) k = com.microsoft.nchwc.Conv(i, w) o = com.microsoft.nchwc.ReorderOutput(k)
                   c = Cast<to=10>(o) y = Exp(c)"""
    added = "InsertedPrecisionFreeCast_"
    names = {"i": f"{added}x", "k": f"{added}r_nchwc", "o": "ReorderOutput", "c": f"{added}r"}
    found = kernels("a = Conv(x, w) r = Relu(a) y = Exp(r)", optimized, **names)
    assert found["a"] == found["r"] == ("com.microsoft.nchwc:Conv", "a")


def test_a_cast_of_the_file_keeps_its_kernel_whatever_its_name() -> None:
    name = "InsertedPrecisionFreeCast_x"
    body = f"{name} = Cast<to=1>(x) y = Exp({name})"
    assert kernels(body, body)[name] == ("Cast", name)


def test_a_convolution_with_a_fourth_input_owns_the_sum_and_the_activation_behind_it() -> None:
    optimized = """i = com.microsoft.nchwc.ReorderInput(x)
                   k = com.microsoft.nchwc.Conv<activation="HardSwish">(i, w, , i) y = com.microsoft.nchwc.MaxPool(k)"""
    given = "a = Conv(x, w) t = Add(a, x) h = HardSwish(t) y = MaxPool<kernel_shape=[1,1]>(h)"
    found = kernels(given, optimized, k="a_nchwc", y="y_nchwc")
    assert [found[name] for name in "ath"] == [("com.microsoft.nchwc:Conv", "a")] * 3
    assert found["y"] == ("com.microsoft.nchwc:MaxPool", "y")


def test_the_sum_belongs_to_the_later_of_two_convolutions_and_what_is_computed_behind_it_does_not() -> None:
    optimized = """i = com.microsoft.nchwc.ReorderInput(x) k = com.microsoft.nchwc.Conv(i, w)
                   l = com.microsoft.nchwc.Conv(i, w, , k) m = com.microsoft.nchwc.ReorderOutput(l) y = Relu(m)"""
    given = "a = Conv(x, w) c = Conv(x, w) t = Add(a, c) y = Relu(t)"
    found = kernels(given, optimized, k="a_nchwc", l="c_nchwc", m="ReorderOutput")
    conv = "com.microsoft.nchwc:Conv"
    assert found == {"a": (conv, "a"), "c": (conv, "c"), "t": (conv, "c"), "y": ("Relu", "y")}


def test_an_activation_that_the_kernel_is_named_after_is_not_looked_for_again() -> None:
    optimized = """k = com.microsoft.nchwc.Conv<activation="Sigmoid">(x, w)
                   l = com.microsoft.nchwc.Conv(k, w) y = com.microsoft.nchwc.ReorderOutput(l)"""
    found = kernels("a = Conv(x, w) r = Sigmoid(a) t = Sigmoid(r) y = Conv(t, w)", optimized, k="r_nchwc", l="y_nchwc")
    assert (found["r"][1], found["t"][1]) == ("a", "y")


def test_a_kernel_that_has_no_node_s_name_computes_what_its_reader_reads() -> None:
    optimized = """k = com.microsoft.nchwc.Conv(x, w) g = HardSigmoid(k) m = Mul(k, g)
                   p = com.microsoft.nchwc.GlobalAveragePool(m) y = com.microsoft.nchwc.ReorderOutput(p)"""
    names = {"k": "a_nchwc", "g": "gate", "p": "y_nchwc"}
    found = kernels("a = Conv(x, w) h = HardSwish(a) y = GlobalAveragePool(h)", optimized, **names)
    assert found["h"] == ("Mul", "h")


@pytest.mark.parametrize("op", ["MaxPool<kernel_shape=[1,1]>", "GlobalAveragePool", "Softmax", "Transpose"])
def test_a_sum_that_is_gone_is_not_computed_by_what_only_pools_or_moves(op: str) -> None:
    found = kernels(f"a = Exp(x) t = Add(a, b) y = {op}(t)", f"a = Exp(x) y = {op}(a)")
    assert set(found) == {"a", "y"}


def test_what_moves_values_is_computed_by_what_pools_them() -> None:
    found = kernels("t = Transpose(x) y = GlobalAveragePool(t)", "y = GlobalAveragePool(x)")
    assert found["t"] == ("GlobalAveragePool", "y")


def test_a_relu_that_is_gone_is_in_the_kernel_before() -> None:
    given = "a = Conv(x, w) r = Relu(a) q = QuantizeLinear(r, s, z) y = DequantizeLinear(q, s, z)"
    found = kernels(given, "k = QLinearConv(x, w) y = DequantizeLinear(k, s, z)", k="a")
    assert (found["a"], found["r"]) == (("QLinearConv", "a"), ("QLinearConv", "a"))


def test_reorders_are_kept_apart_from_transposes_of_the_file() -> None:
    first = graph("t = Transpose(x) y = Transpose(t)")
    second = graph("t = Transpose(x) new = Transpose(t) y = Transpose(new)")
    assert match(first, second).reorders == {1}
