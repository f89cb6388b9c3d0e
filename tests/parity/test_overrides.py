"""``*.overrides.json`` given to onnxruntime's quantize_static reproduces a member where its grammar can say it."""

import json
import re
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autoquant.api.steps import prepare, read_data
from autoquant.domain.scheme import Operators, Scheme
from autoquant.examples import example
from autoquant.model.dequantized import float_model
from autoquant.qdq.overrides import op_types_with_float_outputs, tensor_quant_overrides
from autoquant.qdq.plan import Plan
from autoquant.runtime.overrides import load_overrides
from tests.graphs import U8S8_CHANNEL, U8S8_TENSOR, U16S8, Case, Quantized, case_of, exact, models, run, scheme
from tests.models import floats, model_of, op_types
from tests.parity.quantizer import quantized_statically

U8S8_LINEAR = scheme("u8:tensor:asym", "s8:channel:sym", Operators.LINEAR)
POWERS_OF_TWO = scheme("u8:tensor:asym:pow2", "s8:channel:sym:pow2")


def is_expressible(case: Case, plan: Plan) -> bool:
    """Not so: an input or output of the graph that is read quantized and unquantized, a tensor in a third type, or in
    a second one beside floats; Gemms that write unlike types."""
    n_types = Counter(tensor for tensor, _ in plan.entries)
    for tensor, n in n_types.items():
        has_float_reader = any(reader.index not in plan.integer for reader in case.graph.consumers[tensor])
        is_fixed = tensor in case.graph.pinned or (
            has_float_reader and (tensor in case.graph.inputs or tensor in plan.produced)
        )
        if n > 1 or is_fixed:
            return False
    return op_types_with_float_outputs(plan, case.graph) is not None


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
    for a, b in zip(run(ours.model, case.feed), run(theirs, case.feed), strict=True):
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


HELD_APART = {
    "two tensors": ("a = Conv(x, w) c = Conv(a, v) d = Add(c, a) e = Conv(d, v) y = Add(e, d)", ["c", "e"], ["a", "d"]),
    "a HardSigmoid": (
        "a = Conv(x, w) h = HardSigmoid(a) c = Conv(h, v) d = Conv(a, v) e = Add(c, a) y = Add(d, e)",
        ["h", "c", "d"],
        ["a"],
    ),
    "two types": ("a = Conv(x, w) c = Conv(a, v) d = Conv(a, w) e = Add(c, d) y = Add(e, a)", ["c"], []),
    "two readers": ("a = Conv(x, w) c = Conv(a, v) t = Add(c, a) y = Add(t, a)", ["c"], ["a"]),
}


@pytest.mark.parametrize("held", HELD_APART)
def test_which_tensors_have_another_name_where_they_are_floats(held: str, tmp_path: Path) -> None:
    body, integers, names = HELD_APART[held]
    shape = "float[1,4,6,6]"
    constants = {"w": floats(4, 4, 1, 1), "v": floats(4, 4, 1, 1, seed=1)}
    case = case_of(model_of(f"({shape} x) => ({shape} y)", body, dict(constants)))
    taken = {node.name: exact(U8S8_LINEAR) for node in case.graph.nodes if set(node.outputs) & set(integers)}
    if held == "two types":
        taken |= {node.name: U16S8 for node in case.graph.nodes if "d" in node.outputs}
    ours = case.quantized(None, taken)
    changed = changed_float_model(case, ours, tmp_path)
    onnx.checker.check_model(changed, full_check=True)
    assert [node.output[0] for node in changed.graph.node if node.op_type == "Identity"] == names
    if names:
        assert_reproduced(case, ours)


def test_what_is_kept_in_float_is_kept_again() -> None:
    shape = "float[1,4,6,6]"
    body = "a = Conv(x, w) c = Conv(a, v) s = Sigmoid(c) d = Conv(s, w) e = Conv(d, v) y = Add(e, c)"
    constants = {"w": floats(4, 4, 1, 1), "v": floats(4, 4, 1, 1, seed=1)}
    case = case_of(model_of(f"({shape} x) => ({shape} y)", body, dict(constants)))
    left = {node.name: None for node in case.graph.nodes if "d" in node.outputs}
    ours = case.quantized(exact(U8S8_CHANNEL), left)
    assert "Sum" in op_types(ours.model)
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
