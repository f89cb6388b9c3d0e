"""Our builder against onnxruntime's QDQQuantizer with the same ranges."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from onnxruntime.quantization import QuantType

from autoquant.api.steps import prepare, read_data
from autoquant.domain.scheme import Scheme
from autoquant.examples import example
from autoquant.qdq.overrides import op_types_with_float_outputs
from tests.graphs import U8S8_CHANNEL, U8S8_TENSOR, Case, case_of, models, run, scheme, uses
from tests.inspected import FROM_1_31
from tests.models import floats, model_of
from tests.parity.quantizer import quantized_by_onnxruntime

pytestmark = pytest.mark.skipif(not FROM_1_31, reason="its scales differ in the last bit until 1.30")

UNIFORM = [U8S8_TENSOR, U8S8_CHANNEL]


def assert_equal_outputs(ours: onnx.ModelProto, theirs: onnx.ModelProto, case: Case) -> None:
    for a, b in zip(run(ours, case.feed), run(theirs, case.feed), strict=True):
        np.testing.assert_array_equal(a, b)


def has_room(model: onnx.ModelProto) -> bool:
    """Whether no bias takes more than half of int32: from there on our scales are others (decision 0003)."""
    biases = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT32]
    return all(np.abs(numpy_helper.to_array(bias).astype(np.int64)).max(initial=0) <= 2**30 for bias in biases)


@settings(max_examples=60)
@given(models(), st.sampled_from(UNIFORM))
def test_a_uniformly_quantized_graph_has_the_numbers_and_outputs_of_onnxruntimes(
    model: onnx.ModelProto, taken: Scheme
) -> None:
    case = case_of(model)
    ours = case.quantized(taken)
    assume(case.without_outside_clips(ours.plan))
    theirs = quantized_by_onnxruntime(case, per_channel=taken is U8S8_CHANNEL, plan=ours.plan)
    assume(has_room(theirs))
    assert uses(ours.model) == uses(theirs)
    assert_equal_outputs(ours.model, theirs, case)


@settings(max_examples=30)
@given(
    models(),
    st.sampled_from(
        [
            ("u8:tensor:asym", "u8:tensor:asym", QuantType.QUInt8, QuantType.QUInt8),
            ("s8:tensor:sym", "s8:channel:sym", QuantType.QInt8, QuantType.QInt8),
            ("u16:tensor:asym", "s8:channel:sym", QuantType.QUInt16, QuantType.QInt8),
        ]
    ),
)
def test_other_types_have_the_numbers_and_outputs_of_onnxruntimes_where_nothing_is_clipped(
    model: onnx.ModelProto, types: tuple[str, str, QuantType, QuantType]
) -> None:
    assume(not {"Relu", "Clip"} & {node.op_type for node in model.graph.node})
    case = case_of(model)
    activation, weight, *quant_types = types
    ours = case.quantized(scheme(activation, weight))
    theirs = quantized_by_onnxruntime(
        case,
        plan=ours.plan,
        per_channel="channel" in weight,
        activation=quant_types[0],
        weight=quant_types[1],
        options={"ActivationSymmetric": activation.endswith(":sym")},
    )
    assume(has_room(theirs))
    assert uses(ours.model) == uses(theirs)
    assert_equal_outputs(ours.model, theirs, case)


def converted(quant_type: QuantType, receiver: str) -> dict[str, object]:
    return {"quant_type": quant_type, "recv_nodes": {receiver}}


@pytest.mark.parametrize("taken", UNIFORM)
@pytest.mark.parametrize("op4", ["Sigmoid(op2)", "Conv(op2, w, b)"])
def test_a_16_bit_region_between_8_bit_ones_converts_for_its_own_readers_only(taken: Scheme, op4: str) -> None:
    """The example of microsoft/onnxruntime PR #19925, in which Op2 is read by Op4, Op7 and Op8."""
    shape = "float[1,4,5,5]"
    model = model_of(
        f"({shape} input_0, {shape} input_1) => ({shape} op6, {shape} op7, {shape} op8)",
        f"""op1 = Conv(input_0, w1, b1) op2 = Conv(input_1, w, b) op3 = Sigmoid(op1) op4 = {op4}
            op5 = Add(op3, op4) op6 = LeakyRelu(op5) op7 = Sigmoid(op2) op8 = Conv(op2, w1, b1)""",
        {"w": floats(4, 4, 1, 1), "b": floats(4), "w1": floats(4, 4, 1, 1, seed=1), "b1": floats(4, seed=1)},
    )
    case = case_of(model)
    wide = scheme("u16:tensor:asym", str(taken.weight))
    ours = case.quantized(taken, {"op4": wide, "op5": wide})
    u8, u16 = QuantType.QUInt8, QuantType.QUInt16
    theirs = quantized_by_onnxruntime(
        case,
        per_channel=taken is U8S8_CHANNEL,
        options={
            "TensorQuantOverrides": {
                "op2": [{"quant_type": u8, "convert": converted(u16, "op4")}],
                "op3": [{"quant_type": u8, "convert": converted(u16, "op5")}],
                "op4": [{"quant_type": u16}],
                "op5": [{"quant_type": u16, "convert": converted(u8, "op6")}],
            }
        },
    )
    assert uses(ours.model) == uses(theirs)
    assert_equal_outputs(ours.model, theirs, case)


def with_live_channels(model: onnx.ModelProto) -> onnx.ModelProto:
    """Channels of next to nothing get other weights: their scales are not onnxruntime's (decision 0003)."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    for tensor in found.graph.initializer:
        if len(tensor.dims) == 4:
            values = numpy_helper.to_array(tensor).copy()
            values[np.abs(values).max(axis=(1, 2, 3)) < 1e-6] = 1e-3
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return found


def assert_parity_of_a_file(model: Path, samples: Path, taken: Scheme) -> None:
    read = read_data(model, samples)
    prepared = prepare(model, read)
    case = case_of(with_live_channels(prepared.graph.model), read.feeds[0])
    ours = case.hard_sigmoids_in_float.quantized(taken)
    chosen = ours.plan.integer | set(ours.plan.absorbed)
    excluded = op_types_with_float_outputs(ours.plan, case.graph) or ()
    theirs = quantized_by_onnxruntime(
        case,
        plan=ours.plan,
        per_channel=taken is U8S8_CHANNEL,
        nodes=[node.name for node in case.graph.nodes if node.index in chosen],
        options={"OpTypesToExcludeOutputQuantization": sorted(excluded)},
    )
    found, expected = uses(ours.model), uses(theirs)
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []
    assert_equal_outputs(ours.model, theirs, case)


@pytest.mark.parametrize("taken", UNIFORM)
def test_the_embedded_example_has_the_numbers_and_outputs_of_onnxruntimes(taken: Scheme) -> None:
    digits = example("digits")
    assert_parity_of_a_file(digits.model, digits.calibration, taken)


@pytest.mark.zoo
@pytest.mark.parametrize("taken", UNIFORM)
@pytest.mark.parametrize("name", ["ppocr2_cls", "opennsfw"])
def test_a_real_model_has_the_numbers_and_outputs_of_onnxruntimes(name: str, taken: Scheme) -> None:
    folder = Path(os.environ["AUTOQUANT_ZOO"]) / name
    assert_parity_of_a_file(folder / "model.onnx", folder / "calib.npz", taken)
