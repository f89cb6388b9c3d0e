"""What each node of a file became."""

import platform
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from autoquant.inspection.kernels import Runs
from autoquant.inspection.types import X86
from autoquant.inspection.written import Written
from tests.inspected import FROM_1_30, causes_in, inspected, node_of
from tests.models import a_convnet, a_quantized_chain, floats, model_of
from tests.qdq import Constant, Wrapped, pair, parameters, stored


def test_every_node_but_the_conversions_is_listed_with_its_kernel(tmp_path: Path) -> None:
    found = inspected(a_quantized_chain(), tmp_path)
    convs = [node for node in found.nodes if node.op_type == "Conv"]
    assert [node.name for node in convs] == ["a", "b", "c"]
    assert {(n.written, n.runs, n.kernel) for n in convs} == {
        (Written.QUANTIZED, Runs.INTEGER, "com.microsoft:QLinearConv")
    }
    assert {node.op_type for node in found.nodes} == {"Conv", "Identity"}
    assert found.unlike_written == ()


def test_a_float_model_runs_as_written_and_shows_its_fusions(tmp_path: Path) -> None:
    found = inspected(a_convnet(), tmp_path)
    assert found.unlike_written == ()
    assert {node.runs for node in found.nodes} == {Runs.FLOAT}
    assert (node_of(found, "a_relu").fused_into, node_of(found, "a").fused_into) == ("a", None)


@pytest.mark.skipif(platform.machine() not in X86, reason="elsewhere there is no blocked layout")
@pytest.mark.parametrize("op", ["Relu", "HardSwish"])
def test_a_residual_sum_and_its_activation_are_computed_by_the_convolution_before(op: str, tmp_path: Path) -> None:
    body = f"a = Conv(x, w) b = Conv(a, w) t = Add(b, a) h = {op}(t) y = GlobalAveragePool(h)"
    model = model_of("(float[1,16,8,8] x) => (float[1,16,1,1] y)", body, {"w": floats(16, 16, 1, 1)})
    found = {str(node.name): (node.kernel, node.fused_into) for node in inspected(model, tmp_path).nodes}
    conv = "com.microsoft.nchwc:Conv"
    assert found == {
        "a": (conv, None),
        "b": (conv, None),
        "t": (conv, "b"),
        "h": (conv, "b") if FROM_1_30 or op == "Relu" else ("Mul", None),
        "y": ("com.microsoft.nchwc:GlobalAveragePool", None),
    }


def test_a_sum_with_zero_is_removed(tmp_path: Path) -> None:
    body = "a = Exp(x) t = Add(a, zero) y = Reshape(t, sizes)"
    model = model_of("(float[4,8] x) => (float[8,4] y)", body, {"zero": 0.0, "sizes": np.array([8, 4])})
    found = node_of(inspected(model, tmp_path))
    assert (found.runs, found.kernel, found.fused_into) == (Runs.REMOVED, None, None)


def test_a_float_convolution_that_runs_on_integers_is_found(tmp_path: Path) -> None:
    found = inspected(a_quantized_chain(middle_is_float=True), tmp_path)
    middle = node_of(found, "b")
    assert (middle.written, middle.runs, middle.is_as_written) == (Written.FLOAT, Runs.INTEGER, False)
    assert "WeightBiasQuantization" in causes_in(found)["b"]
    assert set(causes_in(found)) == {"b"}


def test_a_sum_of_one_keeps_it_in_float_as_written(tmp_path: Path) -> None:
    found = inspected(a_quantized_chain(middle_is_float=True, breaker="Sum"), tmp_path)
    assert node_of(found, "b").runs is Runs.FLOAT
    assert found.unlike_written == ()


def test_a_product_of_what_is_quantized_at_run_time_runs_as_written(tmp_path: Path) -> None:
    body = """q, s, z = DynamicQuantizeLinear(x) x_d = DequantizeLinear(q, s, z) w_d = DequantizeLinear(w_q, w_s, w_z)
              y = MatMul(x_d, w_d)"""
    found = inspected(model_of("(float[4,8] x) => (float[4,8] y)", body, stored("w", Constant((8, 8)))), tmp_path)
    product = node_of(found, "y")
    assert (product.written, product.runs) == (Written.DYNAMIC, Runs.DYNAMIC)
    assert found.unlike_written == ()


def test_a_float_gemm_that_runs_on_integers_is_found(tmp_path: Path) -> None:
    model = Wrapped("Gemm(x, w)", {"x": (4, 8)}, plain={"w": floats(8, 8)}).model
    assert "WeightBiasQuantization" in causes_in(inspected(model, tmp_path))["t"]


def test_a_float_product_and_sum_that_run_as_one_on_integers_are_found(tmp_path: Path) -> None:
    values = parameters("x", "u8") | parameters("t", "u8") | {"w": floats(8, 8), "b": floats(8)}
    body = f"{pair('x', 'x_d')} m = MatMul(x_d, w) t = Add(m, b) {pair('t', 'y')}"
    found = inspected(model_of("(float[4,8] x) => (float[4,8] y)", body, values), tmp_path)
    assert (node_of(found, "m").runs, node_of(found, "m").kernel) == (Runs.INTEGER, "com.microsoft:QGemm")
    assert "WeightBiasQuantization" in causes_in(found)["m"]


def test_a_transposed_convolution_that_loses_accuracy_for_nothing_is_found(tmp_path: Path) -> None:
    model = Wrapped("ConvTranspose(x, w)", plain={"w": floats(4, 4, 3, 3)}).model
    found = inspected(model, tmp_path)
    assert (node_of(found).written, node_of(found).runs) == (Written.FLOAT, Runs.FLOAT)
    assert "accuracy is lost for nothing" in causes_in(found)["t"]
    assert len(found.dequantized) == 1


def test_what_is_computed_before_the_session_runs_is_folded(tmp_path: Path) -> None:
    body = "w = Exp(c) y = Mul(x, w)"
    found = inspected(model_of("(float[4] x) => (float[4] y)", body, {"c": floats(4)}), tmp_path)
    assert [(node.name, node.runs) for node in found.nodes] == [("w", Runs.FOLDED), ("y", Runs.FLOAT)]


def test_shapes_are_not_float(tmp_path: Path) -> None:
    body = "shape = Shape(x) y = Reshape(z, shape)"
    found = inspected(model_of("(float[N,M] x, float[K] z) => (float[N,M] y)", body), tmp_path)
    assert [node.runs for node in found.nodes] == [Runs.OTHER, Runs.FLOAT]


def test_an_eliminated_node_is_removed(tmp_path: Path) -> None:
    found = inspected(model_of("(float[4] x) => (float[4] y)", "i = Identity(x) y = Exp(i)"), tmp_path)
    assert (node_of(found, "i").runs, node_of(found, "i").kernel) == (Runs.REMOVED, None)


@pytest.mark.parametrize("call", ["Exp(@)", "Relu(@)"])
def test_a_float_node_behind_an_integer_one_is_as_written(call: str, tmp_path: Path) -> None:
    values = parameters("x", "u8") | stored("w", Constant((8, 8)))
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear(w_q, w_s, w_z)
               g = Gemm(x_d, w_d) y = {call.replace("@", "g")}"""
    found = inspected(model_of("(float[4,8] x) => (float[4,8] y)", body, values), tmp_path)
    assert (node_of(found, "g").runs, node_of(found, "y").runs) == (Runs.INTEGER, Runs.FLOAT)
    assert found.unlike_written == ()


def test_a_classifier_computes_on_floats_although_it_writes_labels(tmp_path: Path) -> None:
    model = model_of(
        "(float[1,2] x) => (int64[1] y, float[1,2] z)", "y = Cast<to=7>(x) scores = Exp(x) z = Neg(scores)"
    )
    del model.graph.node[1], model.graph.value_info[:]
    trees = {f"nodes_{each}": [0] for each in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")}
    classes = {f"class_{each}": [0] for each in ("treeids", "nodeids", "ids")}
    leaf = {"nodes_modes": ["LEAF"], "nodes_values": [0.0], "class_weights": [1.0], "classlabels_int64s": [0, 1]}
    node = model.graph.node[0]
    node.CopyFrom(helper.make_node("TreeEnsembleClassifier", ["x"], ["y", "scores"], "y", domain="ai.onnx.ml"))
    node.attribute.extend(helper.make_attribute(*each) for each in {**trees, **classes, **leaf}.items())
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    assert [node.runs for node in inspected(model, tmp_path).nodes] == [Runs.FLOAT, Runs.FLOAT]
