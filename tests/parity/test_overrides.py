"""``*.overrides.json`` given to onnxruntime's quantize_static reproduces a member where its grammar can say it."""

import json
import re
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autoquant.api.steps import prepare, read_data
from autoquant.domain.scheme import Operators, Scheme
from autoquant.examples import example
from autoquant.model.dequantized import float_model
from autoquant.model.graph import Node
from autoquant.qdq.overrides import op_types_with_float_outputs, tensor_quant_overrides
from autoquant.qdq.plan import Plan
from autoquant.runtime.overrides import load_overrides
from tests.graphs import U8S8_CHANNEL, U8S8_TENSOR, U16S8, Case, Quantized, case_of, exact, models, scheme
from tests.models import Array, floats, model_of, op_types
from tests.parity.quantizer import quantized_statically

U8S8_LINEAR = scheme("u8:tensor:asym", "s8:channel:sym", Operators.LINEAR)
POWERS_OF_TWO = scheme("u8:tensor:asym:pow2", "s8:channel:sym:pow2")


def is_expressible(case: Case, plan: Plan) -> bool:
    """Not so: an input or output of the graph that is read quantized and unquantized, a tensor in a third type; Gemms
    that write unlike types; a float MatMul of two activations behind integers, which onnxruntime runs on integers
    unless it is kept from that: sums of integers differ from those of floats in the last bit, which moves what is
    rounded afterwards by a step."""
    if any(map(partial(is_kept_from_integers, case=case, plan=plan), case.graph.nodes)):
        return False
    n_types = Counter(tensor for tensor, _ in plan.entries)
    for tensor, n in n_types.items():
        has_float_reader = any(reader.index not in plan.integer for reader in case.graph.consumers[tensor])
        if n > 1 or tensor in case.graph.pinned or (has_float_reader and tensor in case.graph.inputs):
            return False
    return op_types_with_float_outputs(plan, case.graph) is not None


def is_kept_from_integers(node: Node, case: Case, plan: Plan) -> bool:
    """Those with constant weights are run as the model says once an optimizer is off, see ``outputs``."""
    is_product = node.op_type == "MatMul" and not any(case.graph.is_constant(name) for name in node.inputs)
    return is_product and node.index not in plan.integer and any(name in plan.produced for name in node.inputs)


def outputs(model: onnx.ModelProto, case: Case) -> list[Array]:
    """Without the optimizer that makes float operators int8: the grammar cannot say what our model says against it."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["WeightBiasQuantization"],
    )
    found: list[Array] = session.run(None, dict(case.feed))
    return found


def changed_float_model(case: Case, ours: Quantized, folder: Path) -> onnx.ModelProto:
    onnx.save(case.graph.model, folder / "prepared.onnx")
    onnx.save(ours.model, folder / "member.onnx")
    return float_model(folder / "member.onnx", folder / "prepared.onnx")


def reproduced(case: Case, ours: Quantized, folder: Path) -> onnx.ModelProto:
    changed = changed_float_model(case, ours, folder)
    file = folder / "member.overrides.json"
    file.write_text(json.dumps(tensor_quant_overrides(ours.plan, ours.builder.planner)))
    excluded = op_types_with_float_outputs(ours.plan, case.graph)
    assert excluded is not None
    return quantized_statically(case, changed, ours.plan, load_overrides(file), folder, float_outputs=sorted(excluded))


def assert_reproduced(case: Case, ours: Quantized) -> None:
    with TemporaryDirectory() as folder:
        theirs = reproduced(case, ours, Path(folder))
    for a, b in zip(outputs(ours.model, case), outputs(theirs, case), strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=15)
@given(models(), st.sampled_from([U8S8_TENSOR, U8S8_CHANNEL, POWERS_OF_TWO]))
def test_overrides_reproduce_a_uniformly_quantized_graph(model: onnx.ModelProto, taken: Scheme) -> None:
    case = case_of(model)
    ours = case.quantized(taken)
    assume(is_expressible(case, ours.plan))
    assert_reproduced(case, ours)


@settings(max_examples=15)
@given(models(), st.randoms(use_true_random=False), st.sampled_from([None, U16S8, U8S8_TENSOR, U8S8_LINEAR]))
def test_overrides_reproduce_a_mix_of_nodes(model: onnx.ModelProto, random: Random, other: Scheme | None) -> None:
    case = case_of(model)
    half = {node.name: other for node in case.graph.nodes if random.random() < 0.4}
    ours = case.quantized(U8S8_CHANNEL, half)
    assume(ours.plan.integer and is_expressible(case, ours.plan))
    assert_reproduced(case, ours)


@pytest.mark.parametrize("in_float", ["nothing", "stage2", "stem|stage3"])
def test_overrides_reproduce_the_embedded_example(in_float: str) -> None:
    digits = example("digits")
    samples = read_data(digits.model, digits.calibration)
    case = case_of(prepare(digits.model, samples).graph.model, samples.feeds[0])
    left = {node.name: None for node in case.graph.nodes if re.search(in_float, node.name)}
    ours = case.quantized(U8S8_CHANNEL, left)
    assert bool(left) == (in_float != "nothing")
    assert is_expressible(case, ours.plan)
    assert_reproduced(case, ours)


@pytest.mark.parametrize("gate", ["m = Mul(c, h)", "m = Mul(x, h)"], ids=["hard swish", "gate"])
def test_overrides_reproduce_what_a_hard_sigmoid_clips(gate: str) -> None:
    shape = "float[1,4,6,6]"
    body = f"c = Conv(x, w) h = HardSigmoid(c) {gate} y = Conv(m, w)"
    case = case_of(model_of(f"({shape} x) => ({shape} y)", body, {"w": 2 * floats(4, 4, 1, 1)}))
    ours = case.quantized(exact(U8S8_CHANNEL))
    assert "Clip" in op_types(ours.model)
    assert_reproduced(case, ours)


BESIDE_FLOATS = {
    "a sum": "a = Conv(x, w) c = Conv(a, v) y = Add(c, a)",
    "two operators": "a = Conv(x, w) s = Sigmoid(a) c = Conv(a, v) d = Conv(a, w) e = Add(c, s) y = Add(d, e)",
    "behind a pool": "b = Conv(x, w) a = MaxPool<kernel_shape=[1,1]>(b) c = Conv(a, v) y = Add(c, a)",
    "a clip": "b = Conv(x, w) a = Relu(b) c = Conv(a, v) y = Mul(c, a)",
}


@pytest.mark.parametrize("body", BESIDE_FLOATS.values(), ids=BESIDE_FLOATS)
def test_a_tensor_that_is_read_as_integers_and_as_floats_is_reproduced(body: str, tmp_path: Path) -> None:
    shape = "float[1,4,6,6]"
    constants = {"w": floats(4, 4, 1, 1), "v": floats(4, 4, 1, 1, seed=1)}
    case = case_of(model_of(f"({shape} x) => ({shape} y)", body, dict(constants)))
    linear = [node.name for node in case.graph.nodes if node.op_type == "Conv" and "a" in node.inputs]
    ours = case.quantized(None, dict.fromkeys(linear, exact(U8S8_LINEAR)))
    (identity,) = [node for node in changed_float_model(case, ours, tmp_path).graph.node if node.op_type == "Identity"]
    assert identity.output == ["a"]
    assert is_expressible(case, ours.plan)
    assert_reproduced(case, ours)


@pytest.mark.parametrize(
    "body", ["c = Conv(x, w) y = Add(c, x)", "y = Conv(x, w) z = Conv(y, w)"], ids=["input", "output"]
)
def test_inputs_and_outputs_of_the_graph_keep_their_names(body: str, tmp_path: Path) -> None:
    shape = "float[1,4,6,6]"
    outputs_of = ", ".join(f"{shape} {name}" for name in ("y", "z") if f"{name} = " in body)
    case = case_of(model_of(f"({shape} x) => ({outputs_of})", body, {"w": floats(4, 4, 1, 1)}))
    ours = case.quantized(None, {node.name: U8S8_LINEAR for node in case.graph.nodes if node.op_type == "Conv"})
    assert any(name in ("x", "y") for name, _ in ours.plan.entries)
    assert "Identity" not in op_types(changed_float_model(case, ours, tmp_path))
