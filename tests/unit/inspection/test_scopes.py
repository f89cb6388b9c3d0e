"""What runs inside If, Loop and Scan."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autoquant.inspection.kernels import Runs
from tests.inspected import causes_in, inspected, node_of
from tests.models import Array, floats, model_of
from tests.qdq import Constant, Wrapped, pair, parameters, stored

_IMAGE = "float[1,4,5,5]"
_CONVOLUTION = f"{pair('x', 'x_d')} w_d = DequantizeLinear(w_q, w_s, w_z) t = Conv(x_d, w_d) {pair('t', '@')}"
_NUMBERS = parameters("x", "u8") | parameters("t", "u8") | stored("w", Constant((4, 4, 1, 1)))
_WIDE = parameters("x", "u16") | parameters("t", "u16") | stored("w", Constant((4, 4, 1, 1)))


def graph_of(signature: str, body: str) -> onnx.GraphProto:
    graph: onnx.GraphProto = onnx.parser.parse_graph(f"g {signature} {{ {body} }}")
    for node in graph.node:
        node.name = node.output[0]
    return graph


def branch(output: str, body: str) -> onnx.GraphProto:
    return graph_of(f"() => ({_IMAGE} {output})", body)


def with_if(then: onnx.GraphProto, other: onnx.GraphProto, values: dict[str, Array | float]) -> onnx.ModelProto:
    model = model_of(f"(bool c, {_IMAGE} x) => ({_IMAGE} y)", "y = Cos(x)", values)
    model.graph.node.insert(0, helper.make_node("If", ["c"], ["i"], "outer", then_branch=then, else_branch=other))
    model.graph.node[1].input[0] = "i"
    return model


def a_quantized_branch(values: dict[str, Array | float] = _NUMBERS) -> onnx.ModelProto:
    then = branch("a", _CONVOLUTION.replace("@", "a"))
    return with_if(then, branch("b", "e = Exp(x) b = Sin(e)"), values)


def test_nodes_of_both_branches_are_listed_behind_where_they_are(tmp_path: Path) -> None:
    found = inspected(a_quantized_branch(), tmp_path)
    runs = {node.name: node.runs for node in found.nodes}
    assert runs == {
        "outer": Runs.CONTROL,
        "y": Runs.FLOAT,
        "outer/then_branch/t": Runs.INTEGER,
        "outer/else_branch/e": Runs.FLOAT,
        "outer/else_branch/b": Runs.FLOAT,
    }
    assert found.unlike_written == ()
    assert found.remarks == ()


def test_kernels_of_bodies_are_counted_too(tmp_path: Path) -> None:
    kernels = inspected(a_quantized_branch(), tmp_path).kernels
    assert kernels[Runs.INTEGER] == {"com.microsoft:QLinearConv": 1}
    assert kernels[Runs.CONVERSION] == {"QuantizeLinear": 1, "DequantizeLinear": 1}
    assert kernels[Runs.CONTROL] == {"If": 1}
    assert kernels[Runs.FLOAT] == {"Cos": 1, "Exp": 1, "Sin": 1}


def test_causes_are_found_in_a_body(tmp_path: Path) -> None:
    found = inspected(a_quantized_branch(_WIDE), tmp_path)
    assert causes_in(found) == {"outer/then_branch/t": "16-bit activations have no integer kernel"}


def test_a_weight_of_the_main_graph_that_a_body_dequantizes_keeps_its_name(tmp_path: Path) -> None:
    (constant,) = inspected(a_quantized_branch(_WIDE), tmp_path).dequantized
    assert (constant.tensor, constant.readers) == ("w_q", ("outer/then_branch/t",))


def test_a_weight_of_the_body_has_the_name_of_its_place(tmp_path: Path) -> None:
    model = a_quantized_branch(_WIDE)
    (weight,) = (tensor for tensor in model.graph.initializer if tensor.name == "w_q")
    (then,) = (attribute.g for attribute in model.graph.node[0].attribute if attribute.name == "then_branch")
    then.initializer.append(weight)
    model.graph.initializer.remove(weight)
    (constant,) = inspected(model, tmp_path).dequantized
    assert (constant.tensor, constant.size_bytes) == ("outer/then_branch/w_q", 16)


def test_a_fused_node_names_its_leader_in_the_body(tmp_path: Path) -> None:
    then = branch("a", "t = Conv(x, w) a = Relu(t)")
    found = inspected(with_if(then, branch("b", "b = Sin(x)"), {"w": floats(4, 4, 1, 1)}), tmp_path)
    assert node_of(found, "outer/then_branch/a").fused_into == "outer/then_branch/t"


def test_bodies_inside_bodies_are_seen(tmp_path: Path) -> None:
    then = branch("a", _CONVOLUTION.replace("@", "a"))
    inner = helper.make_node("If", ["c"], ["n"], "inner", then_branch=then, else_branch=branch("b", "b = Sin(x)"))
    middle = helper.make_graph([inner], "m", [], [helper.make_tensor_value_info("n", 1, (1, 4, 5, 5))])
    found = inspected(with_if(middle, branch("d", "d = Exp(x)"), _NUMBERS), tmp_path)
    assert node_of(found, "outer/then_branch/inner/then_branch/t").runs is Runs.INTEGER
    assert found.kernels[Runs.CONTROL] == {"If": 2}


def in_a_loop() -> onnx.ModelProto:
    inner = _CONVOLUTION.replace("(x, ", "(before, ").replace("@", "after")
    body = graph_of(f"(int64 i, bool go, {_IMAGE} before) => (bool on, {_IMAGE} after)", f"on = Identity(go) {inner}")
    model = model_of(f"(int64 n, {_IMAGE} x) => ({_IMAGE} y)", "y = Cos(x)", _NUMBERS)
    model.graph.node.insert(0, helper.make_node("Loop", ["n", "", "x"], ["l"], "loop", body=body))
    model.graph.node[1].input[0] = "l"
    return model


def in_a_scan() -> onnx.ModelProto:
    inner = _CONVOLUTION.replace("(x, ", "(slice, ").replace("@", "out")
    body = graph_of(f"(float[1] s, {_IMAGE} slice) => (float[1] s_out, {_IMAGE} out)", f"s_out = Exp(s) {inner}")
    model = model_of("(float[1] s, float[3,1,4,5,5] x) => (float[3,1,4,5,5] y)", "y = Cos(x)", _NUMBERS)
    model.graph.node.insert(0, helper.make_node("Scan", ["s", "x"], ["e", "l"], "scan", body=body, num_scan_inputs=1))
    model.graph.node[1].input[0] = "l"
    return model


@pytest.mark.parametrize(("model", "name"), [(in_a_loop(), "loop"), (in_a_scan(), "scan")], ids=["Loop", "Scan"])
def test_the_body_of_a_loop_is_seen(model: onnx.ModelProto, name: str, tmp_path: Path) -> None:
    found = inspected(model, tmp_path)
    assert node_of(found, f"{name}/body/t").runs is Runs.INTEGER
    assert node_of(found, name).runs is Runs.CONTROL
    assert found.unlike_written == ()


def test_nodes_without_names_in_bodies_are_told_apart(tmp_path: Path) -> None:
    model = a_quantized_branch()
    for attribute in model.graph.node[0].attribute:
        for node in attribute.g.node:
            node.name = ""
    names = [node.name for node in inspected(model, tmp_path).nodes]
    assert "outer/then_branch/Conv_3" in names
    assert len(set(names)) == len(names)


def test_a_constant_condition_takes_the_node_away_which_is_said(tmp_path: Path) -> None:
    model = a_quantized_branch()
    model.graph.input.pop(0)
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "c"))
    found = inspected(model, tmp_path)
    assert [(remark.name, remark.text.partition(":")[0]) for remark in found.remarks] == [
        ("outer", "what is inside it (8 nodes) is not inspected")
    ]
    assert found.kernels[Runs.INTEGER] == {"com.microsoft:QLinearConv": 1}


def test_two_pairs_in_a_row_are_remarked_upon_in_a_body(tmp_path: Path) -> None:
    values = parameters("x", "u8") | parameters("x_d", "u8", 0.07) | parameters("t", "u8")
    body = f"{pair('x', 'x_d')} {pair('x_d', 'x_e')} t = Sigmoid(x_e) {pair('t', 'a')}"
    found = inspected(with_if(branch("a", body), branch("b", "b = Sin(x)"), values), tmp_path)
    assert [remark.name for remark in found.remarks] == ["outer/then_branch/x_d_q"]


def test_a_model_without_bodies_has_the_names_of_its_nodes(tmp_path: Path) -> None:
    assert "t" in [node.name for node in inspected(Wrapped("Sigmoid(x)").model, tmp_path).nodes]
