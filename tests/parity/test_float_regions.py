"""What stays float between integers does, where onnxruntime would quantize it under default session options."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autoquant.domain.scheme import Operators
from tests.graphs import U8S8_CHANNEL, case_of, exact, models, op_types_of, opened, optimized, run, scheme
from tests.models import floats, model_of
from tests.parity.quantizer import quantized_by_onnxruntime

IMAGE = "float[1,4,6,6]"


def between(before: str, operator: str, behind: str) -> onnx.ModelProto:
    """A Conv, what leads to the operator ``f``, the operator, what leads away, and an operator that reads integers."""
    gemm = operator.startswith("Gemm")
    flat = "flat = Reshape(in, rows)" if gemm else "flat = Transpose<perm=[0,1,3,2]>(in)"
    return model_of(
        f"({IMAGE} x) => (float[{'N,M' if gemm else 'N,C,H,W'}] y)",
        f"""a = Conv(x, w, b) in = {before}(a) {flat} f = {operator} out = {behind}(f) y = Sigmoid(out)""",
        {
            "w": floats(4, 4, 1, 1, scale=0.5),
            "b": floats(4),
            "wf": floats(36, 4, scale=0.2) if gemm else floats(4, 4, 1, 1, seed=3),
            "rows": np.array([4, 36], np.int64),
        },
    )


BEFORE = ["MaxPool<kernel_shape=[1,1]>", "LeakyRelu"]
BEHIND = ["Relu", "LeakyRelu"]


@pytest.mark.parametrize("operator", ["Conv(flat, wf, b)", "Conv(flat, wf)", "Gemm(flat, wf, b)", "Gemm(flat, wf)"])
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("behind", BEHIND)
def test_a_float_operator_between_quantized_ones_runs_in_float_under_default_options(
    operator: str, before: str, behind: str, tmp_path: Path
) -> None:
    """Trap 23: onnxruntime's optimizer makes it int8 per tensor, unless a Sum of one input stands before it."""
    model = between(before, operator, behind)
    case = case_of(model)
    ours = case.quantized(U8S8_CHANNEL, {"f": None, "out": None} if behind == "Relu" else {"f": None})
    assert ours.candidate.float_nodes == {"f"}
    assert op_types_of(ours.model).count("Sum") == 1
    graph = optimized(ours.model, tmp_path)
    assert "a" in graph.integer_nodes
    assert "f" not in graph.integer_nodes
    assert not {"QGemm", "com.microsoft:QGemm"} & set(graph.kernels)


def test_a_pool_behind_a_float_operator_runs_in_float(tmp_path: Path) -> None:
    """onnxruntime's optimizer quantizes before it, unless a Sum of one input stands behind it."""
    model = model_of(
        "(float[1,3,8,8] x) => (float[N,C,H,W] y)",
        """c = Conv(x, w) r = Relu(c) p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
           a = Conv(p, v) b = Conv(p, u) y = Add(a, b)""",
        {"w": floats(16, 3, 1, 1), "v": floats(16, 16, 1, 1), "u": floats(16, 16, 1, 1, seed=1)},
    )
    case = case_of(model)
    ours = case.quantized(exact(U8S8_CHANNEL), dict.fromkeys("crp"))
    kernels = optimized(ours.model, tmp_path).kernels
    pools = [kernel.endswith("MaxPool") for kernel in kernels]
    assert sum(pools) == kernels.count("Sum") == kernels.count("QuantizeLinear") == 1
    assert pools.index(True) < kernels.index("Sum") < kernels.index("QuantizeLinear")
    without = onnx.ModelProto()
    without.CopyFrom(ours.model)
    (keeping,) = (node for node in without.graph.node if node.op_type == "Sum")
    for node in without.graph.node:
        node.input[:] = [keeping.input[0] if name == keeping.output[0] else name for name in node.input]
    without.graph.node.remove(keeping)
    moved = optimized(without, tmp_path).kernels
    assert moved.index("QuantizeLinear") < [kernel.endswith("MaxPool") for kernel in moved].index(True)
    np.testing.assert_array_equal(run(ours.model, case.feed)[0], run(without, case.feed)[0])


@pytest.mark.parametrize("reader", ["Sigmoid", "Tanh"])
def test_a_float_product_of_two_quantized_activations_runs_in_float(reader: str, tmp_path: Path) -> None:
    model = model_of(
        "(float[4,4] x) => (float[4,4] y)", f"a = Sigmoid(x) t = Transpose(a) f = MatMul(a, t) y = {reader}(f)"
    )
    case = case_of(model)
    assert "f" in optimized(quantized_by_onnxruntime(case, per_channel=True), tmp_path).integer_nodes
    ours = case.quantized(U8S8_CHANNEL, {"f": None})
    assert "f" not in optimized(ours.model, tmp_path).integer_nodes


def test_a_float_matmul_that_becomes_a_gemm_with_its_bias_runs_in_float(tmp_path: Path) -> None:
    model = model_of(
        "(float[4,4] x) => (float[4,4] y)",
        "a = Sigmoid(x) f = MatMul(a, w) g = Add(f, b) y = Sigmoid(g)",
        {"w": floats(4, 4), "b": floats(4)},
    )
    case = case_of(model)
    theirs = optimized(quantized_by_onnxruntime(case, per_channel=True, nodes=["a", "y"]), tmp_path)
    ours = optimized(case.quantized(U8S8_CHANNEL, {"f": None, "g": None}).model, tmp_path)
    assert "com.microsoft:QGemm" in theirs.kernels
    assert "com.microsoft:QGemm" not in ours.kernels


def test_a_float_conv_that_takes_in_a_constant_summand_runs_in_float(tmp_path: Path) -> None:
    model = model_of(
        f"({IMAGE} x) => ({IMAGE} y)",
        "a = Sigmoid(x) f = Conv(a, w) g = Add(f, b) y = Sigmoid(g)",
        {"w": floats(4, 4, 1, 1), "b": floats(1, 4, 1, 1)},
    )
    case = case_of(model)
    theirs = optimized(quantized_by_onnxruntime(case, per_channel=True, nodes=["a", "y"]), tmp_path)
    ours = optimized(case.quantized(U8S8_CHANNEL, {"f": None, "g": None}).model, tmp_path)
    assert any("QLinearConv" in kernel for kernel in theirs.kernels)
    assert not any("QLinearConv" in kernel for kernel in ours.kernels)


@pytest.mark.parametrize(
    ("call", "kernel"),
    [
        ("Add(c, d)", "Add"),
        ("Mul(c, d)", "Mul"),
        ("Concat<axis=1>(c, d)", "Concat"),
        ("Where(b, c, d)", "Where"),
        ("Sigmoid(c)", "Sigmoid"),
        ("LeakyRelu(c)", "LeakyRelu"),
        ("Softmax(c)", "Softmax"),
        ("GlobalAveragePool(c)", "GlobalAveragePool"),
    ],
)
def test_other_float_operators_between_integers_run_within_a_step_of_float(
    call: str, kernel: str, tmp_path: Path
) -> None:
    n_channels = 8 if kernel == "Concat" else 4
    size = 1 if kernel == "GlobalAveragePool" else 6
    constants = {"w": floats(4, 4, 1, 1), "u": floats(3, n_channels, 1, 1), "b": np.arange(6) % 2 == 0}
    body = f"c = Conv(x, w) d = Conv(c, w) m = {call} y = Conv(m, u)"
    case = case_of(model_of(f"({IMAGE} x) => (float[1,3,{size},{size}] y)", body, constants))
    ours = case.quantized(exact(scheme("u8:tensor:asym", "s8:channel:sym", Operators.LINEAR))).model
    assert f"com.microsoft:QLinear{kernel}" in optimized(ours, tmp_path).kernels
    (quantize,) = (node for node in ours.graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "m")
    ours.graph.output.append(helper.make_tensor_value_info(quantize.output[0], onnx.TensorProto.UINT8, None))
    fused = run(ours, case.feed)[-1].astype(int)
    rounded = opened(ours, is_optimized=False).run(None, dict(case.feed))[-1].astype(int)
    assert np.abs(fused - rounded).max() <= 1


def test_without_the_sum_onnxruntime_quantizes_a_node_that_was_excluded(tmp_path: Path) -> None:
    case = case_of(between("LeakyRelu", "Conv(flat, wf)", "LeakyRelu"))
    others = [node.name for node in case.graph.nodes if node.name != "f"]
    theirs = quantized_by_onnxruntime(case, per_channel=True, nodes=others)
    assert "f" in optimized(theirs, tmp_path).integer_nodes


@pytest.mark.parametrize("behind", ["Tanh", "Exp"])
def test_a_float_operator_that_leads_to_floats_needs_no_sum(behind: str, tmp_path: Path) -> None:
    case = case_of(between("LeakyRelu", "Conv(flat, wf, b)", behind))
    ours = case.quantized(U8S8_CHANNEL, {"f": None})
    assert "Sum" not in op_types_of(ours.model)
    assert "f" not in optimized(ours.model, tmp_path).integer_nodes


@settings(max_examples=40)
@given(models(), st.sets(st.integers(0, 30), max_size=8))
def test_no_float_operator_of_any_mix_becomes_an_integer_kernel(
    tmp_path_factory: pytest.TempPathFactory, model: onnx.ModelProto, in_float: set[int]
) -> None:
    case = case_of(model)
    chosen = {node.name: None for node in case.graph.nodes if node.index in in_float}
    ours = case.quantized(U8S8_CHANNEL, chosen)
    graph = optimized(ours.model, tmp_path_factory.mktemp("optimized"))
    assert not ours.candidate.float_nodes & graph.integer_nodes
