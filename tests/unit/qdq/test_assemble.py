import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from autoquant.domain.scheme import Operators, Scheme
from autoquant.model.fragments import inline_external
from autoquant.model.graph import Graph
from tests.graphs import (
    OP_TYPES,
    U8S8_CHANNEL,
    U8S8_TENSOR,
    U16S8,
    Case,
    case_of,
    exact,
    models,
    nodes_as_text,
    opened,
    run,
    scheme,
    uses,
)
from tests.models import Array, Floats, a_convnet, floats, model_of

IMAGE = "float[1,4,6,6]"
SQUARE = "float[4,4]"

MIXES: dict[str, tuple[str, str, dict[str, Array | float], dict[str, Scheme | None]]] = {
    "convolutions": (
        f"({IMAGE} x) => ({IMAGE} y)",
        "a = Conv(x, w, b) r = Relu(a) m = MaxPool<kernel_shape=[1,1]>(r) c = Conv(m, w) y = Add(c, r)",
        {"w": floats(4, 4, 1, 1), "b": floats(4)},
        {},
    ),
    "float_between_integers": (
        f"({IMAGE} x) => ({IMAGE} y)",
        "a = Conv(x, w) f = Conv(a, v) y = Conv(f, w)",
        {"w": floats(4, 4, 1, 1), "v": floats(4, 4, 1, 1, seed=1)},
        {"f": None},
    ),
    "gemm_for_floats": (
        f"({SQUARE} x) => ({SQUARE} y)",
        "g = Gemm<beta=2.0>(x, w, b) t = Transpose(g) y = Tanh(t)",
        {"w": floats(4, 4), "b": floats(4)},
        {},
    ),
    "three_types": (
        f"({SQUARE} x) => ({SQUARE} p, {SQUARE} q, {SQUARE} r, {SQUARE} s)",
        "a = Sigmoid(x) p = Sigmoid(a) q = Sigmoid(a) r = Sigmoid(a) s = Tanh(a)",
        {},
        {"q": U16S8, "r": scheme("s8:tensor:sym", "s8:tensor:sym")},
    ),
    "linear_operators_only": (
        f"({IMAGE} x) => ({IMAGE} y)",
        "a = Conv(x, w) r = Relu(a) s = Sigmoid(r) y = Conv(s, w)",
        {"w": floats(4, 4, 1, 1)},
        dict.fromkeys("arsy", scheme("u8:tensor:asym", "s8:channel:sym", Operators.LINEAR)),
    ),
    "norm": (
        f"({SQUARE} a, {SQUARE} b) => ({SQUARE} y)",
        "x = Add(a, b) q = Pow(x, two) m = ReduceMean(q, axes) v = Add(m, e) s = Sqrt(v) n = Div(x, s) k = Mul(n, w)"
        " g = Gemm(k, p) y = Add(g, x)",
        {"two": 2.0, "axes": np.array([-1]), "e": 1e-5, "w": floats(4), "p": floats(4, 4)},
        {},
    ),
}


@pytest.mark.parametrize("name", MIXES)
def test_the_nodes_before_and_after_are_those_of_the_golden_file(
    name: str, assert_golden: Callable[[str, str], None]
) -> None:
    signature, body, constants, mix = MIXES[name]
    case = case_of(model_of(signature, body, constants))
    after = case.quantized(U8S8_CHANNEL, mix).model
    assert_golden(f"build_{name}.txt", f"{nodes_as_text(case.graph.model)}\n{nodes_as_text(after)}")


def snr_db(case: Case, model: onnx.ModelProto) -> float:
    return _snr_db(run(case.graph.model, case.feed), run(model, case.feed))


def _snr_db(reference: Sequence[Floats], found: Sequence[Floats]) -> float:
    error = sum(float(((a - b) ** 2).sum()) for a, b in zip(reference, found, strict=True))
    return float(10 * np.log10(sum(float((a**2).sum()) for a in reference) / error)) if error else np.inf


@pytest.mark.parametrize("name", MIXES)
def test_the_quantized_model_computes_what_the_float_model_does(name: str) -> None:
    signature, body, constants, mix = MIXES[name]
    case = case_of(model_of(signature, body, constants))
    exact_mix = {node: exact(taken) for node, taken in mix.items()}
    assert snr_db(case, case.quantized(exact(U8S8_CHANNEL), exact_mix).model) > 25


mixes = st.lists(st.sampled_from([None, U8S8_CHANNEL, U8S8_TENSOR, U16S8]), min_size=30, max_size=30)


@settings(max_examples=30)
@given(models(), mixes)
def test_every_mix_is_a_valid_model_that_loses_no_node(model: onnx.ModelProto, mix: list[Scheme | None]) -> None:
    case = case_of(model)
    ours = case.quantized(None, {n.name: mix[n.index % len(mix)] for n in case.graph.nodes})
    onnx.checker.check_model(ours.model, full_check=True)
    absorbed = {case.graph.nodes[index].name for index in ours.plan.absorbed}
    assert {n.name for n in case.graph.nodes} - absorbed <= {n.name for n in ours.model.graph.node}
    run(ours.model, case.feed)


@settings(max_examples=30)
@given(models(), mixes)
def test_every_mix_computes_with_fused_kernels_what_its_single_nodes_do(
    model: onnx.ModelProto, mix: list[Scheme | None]
) -> None:
    case = case_of(model)
    ours = case.quantized(None, {n.name: exact(mix[n.index % len(mix)]) for n in case.graph.nodes}).model
    assume(case.is_well_conditioned)
    unfused = opened(ours, is_optimized=False).run(None, dict(case.feed))
    assert _snr_db(unfused, run(ours, case.feed)) > 20
    assert _snr_db(run(model, case.feed), unfused) > 3


@settings(max_examples=30)
@given(models())
def test_without_integers_the_model_is_the_prepared_one(model: onnx.ModelProto) -> None:
    case = case_of(model)
    ours = case.quantized(None).model
    assert uses(ours) == uses(model)
    np.testing.assert_array_equal(run(ours, case.feed)[0], run(model, case.feed)[0])


@settings(max_examples=20)
@given(models(), mixes)
def test_building_again_and_by_another_builder_gives_identical_bytes(
    model: onnx.ModelProto, mix: list[Scheme | None]
) -> None:
    case = case_of(model)
    chosen = {n.name: mix[n.index % len(mix)] for n in case.graph.nodes}
    first, fresh = case.quantized(None, chosen), case.quantized(None, chosen)
    assignment = {n.name: taken.name for n in case.graph.nodes if (taken := chosen[n.name])}
    everything = {n.name: next(iter(assignment.values())) for n in case.graph.nodes} if assignment else {}
    first.builder.build(everything)  # type: ignore[arg-type]
    again = first.builder.build(assignment)  # type: ignore[arg-type]
    assert first.candidate.skeleton == fresh.candidate.skeleton == again.skeleton
    assert first.candidate.digest == fresh.candidate.digest == again.digest
    assert first.model.SerializeToString(deterministic=True) == fresh.model.SerializeToString(deterministic=True)


def test_large_constants_stay_outside_and_small_ones_inside() -> None:
    candidate = case_of(a_convnet()).quantized(None, {"a": U8S8_CHANNEL}).candidate
    assert set(candidate.constants) == {"wb"}
    skeleton = onnx.load_from_string(candidate.skeleton)
    inside = {t.name for t in skeleton.graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL}
    assert {"wa_quantized", "wa_scale", "wc", "by"} <= inside
    model = inline_external(candidate.skeleton, candidate.constants, {"author": "a test"})
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.key, entry.value) for entry in model.metadata_props] == [("author", "a test")]


def test_a_weight_that_two_axes_share_is_quantized_along_each() -> None:
    body = "a = Gemm(x, w) y = Gemm<transB=1>(a, w)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", body, {"w": floats(4, 4)}))
    graph = Graph(case.quantized(exact(U8S8_CHANNEL)).model)
    axes = [graph.producer[n.inputs[1]].attributes["axis"] for n in graph.nodes if n.op_type == "Gemm"]
    assert axes == [1, 0]
    assert snr_db(case, graph.model) > 25


def test_a_constant_that_floats_and_two_formats_read_is_kept_in_each() -> None:
    body = "a = MatMul(x, w) b = Add(a, w) y = Tanh(b) z = Sub(y, w)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} z)", body, {"w": floats(4, 4)}))
    model = case.quantized(U8S8_CHANNEL).model
    dtypes = {t.name: numpy_helper.to_array(t).dtype for t in model.graph.initializer if t.dims == [4, 4]}
    assert sorted(map(str, dtypes.values())) == ["float32", "int8", "uint8"]
    assert snr_db(case, model) > 25


def test_new_constants_take_no_name_that_the_model_uses() -> None:
    body = "a = Sigmoid(x) a_zero_point = Mul(a, a_scale) y = Mul(a_zero_point, w_quantized)"
    constants: dict[str, Array | float] = {"a_scale": 3.0, "w_quantized": floats(4, 4)}
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", body, constants))
    model = case.quantized(U8S8_TENSOR, {"a_zero_point": None}).model
    names = [t.name for t in model.graph.initializer]
    assert len(set(names)) == len(names)
    assert snr_db(case, model) > 25


TAKEN = ["a_QuantizeLinear_Output", "a_DequantizeLinear_Output", "w_DequantizeLinear_Output"]


@pytest.mark.parametrize("taken", [*TAKEN, "b/1_DequantizeLinear_Output"])
def test_new_activations_take_no_name_that_the_model_uses(taken: str) -> None:
    body = "a = Sigmoid(x) y = Gemm(a, w, b) z = Tanh(a) t = Neg(z) o = Mul(t, t)"
    original = model_of(f"({SQUARE} x) => ({SQUARE} y, {SQUARE} o)", body, {"w": floats(4, 4), "b": floats(4)})
    for node in original.graph.node:
        node.input[:] = [taken if tensor == "t" else tensor for tensor in node.input]
        node.output[:] = [taken if tensor == "t" else tensor for tensor in node.output]
    case = case_of(onnx.shape_inference.infer_shapes(original))
    model = case.quantized(U8S8_TENSOR, {"z": U16S8}).model
    written = [tensor for node in model.graph.node for tensor in node.output]
    assert len(set(written)) == len(written)
    assert snr_db(case, model) > 25


def test_what_a_quantized_graph_output_was_takes_no_name_that_the_model_uses() -> None:
    body = "a = Sigmoid(x) y = LeakyRelu(a) y_QuantizeLinear_Input = Sigmoid(y) z = Tanh(y_QuantizeLinear_Input)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y, {SQUARE} z)", body))
    model = case.quantized(U8S8_TENSOR).model
    onnx.checker.check_model(model, full_check=True)
    assert snr_db(case, model) > 25


def test_what_a_float_operator_between_integers_reads_takes_no_name_that_the_model_uses() -> None:
    body = "a = Conv(x, w) f = Conv(a, v) f_float_input = Sigmoid(f) y = Conv(f_float_input, w)"
    constants: dict[str, Array | float] = {"w": floats(4, 4, 1, 1), "v": floats(4, 4, 1, 1, seed=1)}
    case = case_of(model_of(f"({IMAGE} x) => ({IMAGE} y)", body, constants))
    model = case.quantized(exact(U8S8_CHANNEL), {"f": None}).model
    written = [tensor for node in model.graph.node for tensor in node.output]
    assert len(set(written)) == len(written)
    assert snr_db(case, model) > 25


@pytest.mark.parametrize("value", ["Neg(v)", "Sigmoid(v)"], ids=["float", "quantized"])
@pytest.mark.parametrize("taken", [U8S8_TENSOR, U16S8])
def test_the_value_that_pad_writes_is_read_as_floats(value: str, taken: Scheme) -> None:
    body = f"v = ReduceMin<keepdims=0>(x) s = {value} c = Conv(x, w) p = Pad(c, pads, s) y = Conv(p, w)"
    constants: dict[str, Array | float] = {"w": floats(4, 4, 1, 1), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    case = case_of(model_of(f"({IMAGE} x) => (float[1,4,8,8] y)", body, constants))
    quantized = replace(case, op_types=OP_TYPES | {"Pad"}).quantized(exact(taken))
    assert "p" in quantized.candidate.integer_nodes
    assert snr_db(case, quantized.model) > 25


def test_conversions_of_one_root_to_unlike_formats_have_numbers_of_their_own() -> None:
    body = "a = LeakyRelu(x) t = Transpose(a) y = Sigmoid(a) z = Sigmoid(t)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y, {SQUARE} z)", body))
    narrow = scheme("u16:tensor:asym", "s8:tensor:sym", ranges="percentile-60")
    model = case.quantized(U8S8_TENSOR, {"y": U16S8, "z": narrow}).model
    scales = [uses(model)[name][1][0][1] for name in ("y", "z")]  # type: ignore[index]
    assert scales[1] == pytest.approx(np.float32(0.6) * np.float32(scales[0]))


def test_conversions_take_no_name_that_another_tensor_has() -> None:
    body = """a = LeakyRelu(x) a_convert = Sigmoid(x) b = Sigmoid(a) c = Sigmoid(a_convert)
              d = LeakyRelu(a) e = LeakyRelu(a_convert) f = Add(b, c) g = Add(d, e) y = Add(f, g)"""
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", body))
    model = case.quantized(U8S8_TENSOR, {"b": U16S8, "c": U16S8}).model
    onnx.checker.check_model(model, full_check=True)
    assert snr_db(case, model) > 25


def test_a_quantized_graph_output_keeps_its_name() -> None:
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", "a = Sigmoid(x) y = LeakyRelu(a)"))
    model = case.quantized(U8S8_TENSOR).model
    assert [value.name for value in model.graph.output] == ["y"]
    assert Graph(model).producer["y"].op_type == "DequantizeLinear"  # type: ignore[index]


def test_what_a_subgraph_reads_keeps_its_name() -> None:
    body = """a = Sigmoid(x) c = Constant<value = bool {1}>()
              y = If(c) <then_branch = t () => (float[4,4] then) { then = Identity(a) },
                         else_branch = e () => (float[4,4] other) { other = Neg(a) }>
              z = LeakyRelu(a)"""
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y, {SQUARE} z)", body))
    model = case.quantized(U8S8_TENSOR).model
    onnx.checker.check_model(model, full_check=True)
    assert snr_db(case, model) > 25


def test_float_operators_of_other_domains_keep_their_domain() -> None:
    body = "a = MatMul(x, w) b = com.microsoft.FastGelu(a) y = MatMul(b, w)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", body, {"w": floats(4, 4)}))
    model = case.quantized(U8S8_TENSOR).model
    assert [(node.domain, node.op_type) for node in model.graph.node if node.domain] == [("com.microsoft", "FastGelu")]
    run(model, case.feed)


@pytest.mark.parametrize("outputs", [f"{SQUARE} y", f"{SQUARE} y, {SQUARE} g"])
def test_a_gemm_of_which_one_reader_takes_integers_runs_on_integers(tmp_path: Path, outputs: str) -> None:
    """As before a hard swish, whose gate has no integer kernel while its product has one."""
    body = "g = Gemm(x, w, b) h = HardSigmoid(g) y = Mul(g, h)"
    case = case_of(model_of(f"({SQUARE} x) => ({outputs})", body, {"w": floats(4, 4), "b": floats(4)}))
    quantized = case.quantized(U8S8_TENSOR, {"h": None})
    opened(quantized.model, str(tmp_path / "optimized.onnx"))
    kernels = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert {"QGemm", "QLinearMul", "HardSigmoid"} <= set(kernels)
    assert "Gemm" not in kernels


def test_what_is_added_to_a_product_of_16_bits_overflows_nowhere() -> None:
    """onnxruntime quantizes the bias of the Gemm that it would make of them at the product of both scales."""
    body = "s = Softmax(x) t = Transpose(s) m = MatMul(s, t) a = Add(m, b) y = Sigmoid(a)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", body, {"b": 4 * floats(4)}))
    assert snr_db(case, case.quantized(exact(U16S8), {"a": None}).model) > 60


HALF = "kernel_shape=[2,2], strides=[2,2]"


@pytest.mark.parametrize(
    "attributes",
    [
        f"{HALF}, ceil_mode=1, count_include_pad=1",
        f"{HALF}, count_include_pad=1, pads=[1,1,1,1]",
        "kernel_shape=[3,3], strides=[3,3], ceil_mode=1, count_include_pad=1, pads=[1,1,1,1]",
        f"{HALF}, dilations=[1,1]",
        f"{HALF}, dilations=[2,1]",
    ],
)
def test_a_pool_means_what_it_did_whatever_the_integer_kernel_knows(attributes: str) -> None:
    body = f"c = Conv(x, w) p = AveragePool<{attributes}>(c) y = Conv(p, w)"
    case = case_of(model_of("(float[1,4,9,9] x) => (float[] y)", body, {"w": floats(4, 4, 1, 1)}))
    ours = case.quantized(exact(U8S8_CHANNEL)).model
    assert snr_db(case, ours) > 25
    assert _snr_db(opened(ours, is_optimized=False).run(None, dict(case.feed)), run(ours, case.feed)) > 28


OPENS = """
import sys, onnxruntime
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
"""


@pytest.mark.parametrize(
    "call", ["MaxPool<kernel_shape=[1,1]>(a)", "Transpose(a)", "Reshape(a, dims)", "Slice(a, i, j)"]
)
def test_what_bodies_read_of_integers_that_moved_can_be_opened(call: str, tmp_path: Path) -> None:
    """Elsewhere: onnxruntime would end the process."""
    body = f"""a = LeakyRelu(x) m = {call} least = ReduceMin<keepdims=0>(x) b = IsNaN(least)
               y = If(b) <then_branch = t () => (float[] p) {{ p = Sigmoid(m) }},
                          else_branch = e () => (float[] q) {{ q = Tanh(m) }}>"""
    constants = {"dims": np.array([1, -1]), "i": np.array([0, 0, 0, 1]), "j": np.array([1, 4, 6, 6])}
    case = case_of(model_of(f"({IMAGE} x) => (float[] y)", body, constants))
    model = case.quantized(U8S8_TENSOR, {"m": None}).model
    onnx.save(model, tmp_path / "model.onnx")
    subprocess.run([sys.executable, "-c", OPENS, str(tmp_path / "model.onnx")], check=True)
    (expected,), (found,) = run(case.graph.model, case.feed), run(model, case.feed)
    np.testing.assert_allclose(found, expected, atol=0.02)
