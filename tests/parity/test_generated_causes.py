"""Generated models, quantized by us and by onnxruntime: everything that does not run as written is explained."""

import platform
import tempfile
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.quantization import QuantType

from autoquant.domain.scheme import Scheme
from autoquant.inspection.causes import UNKNOWN
from autoquant.inspection.inspection import Inspection
from autoquant.inspection.kernels import Runs
from autoquant.inspection.types import X86
from autoquant.inspection.written import Written
from tests.graphs import U8S8_CHANNEL, U8S8_TENSOR, U16S8, case_of, models, scheme
from tests.inspected import causes_in, inspected
from tests.models import floats, model_of
from tests.parity.quantizer import quantized_by_onnxruntime

S8S8 = scheme("s8:tensor:sym", "s8:channel:sym")


def inspection_of(model: onnx.ModelProto) -> Inspection:
    with tempfile.TemporaryDirectory() as folder:
        return inspected(model, Path(folder))


@settings(max_examples=60)
@given(models(), st.sampled_from([U8S8_TENSOR, U8S8_CHANNEL, U16S8, S8S8]))
def test_what_we_quantize_is_explained(model: onnx.ModelProto, taken: Scheme) -> None:
    case = case_of(model)
    ours = case.quantized(taken)
    found = inspection_of(ours.model)
    assert [cause for node in found.nodes for cause in node.causes if cause == UNKNOWN] == []
    if taken in (U8S8_TENSOR, U8S8_CHANNEL) and case.without_outside_clips(ours.plan):
        assert causes_in(found) == {}
        asked = {case.graph.nodes[i].name for i in ours.plan.integer}
        assert {node.name for node in found.nodes if node.written is Written.QUANTIZED} <= asked


@pytest.mark.skipif(platform.machine() not in X86, reason="elsewhere signed activations stay signed")
def test_types_that_differ_as_transposes_were_moved_are_explained() -> None:
    """The Transposes go, t0 has two readers then, and only what is behind Softmax becomes unsigned."""
    body = """t0 = Mul(x, c) t1 = Transpose<perm=[1, 0]>(t0) t2 = Softmax<axis=-1>(t1) t3 = Transpose<perm=[1, 0]>(t2)
              y = Add(t3, t0)"""
    case = case_of(model_of("(float[2,10] x) => (float[2,10] y)", body, {"c": floats(10)}))
    found = inspection_of(case.quantized(S8S8).model)
    assert "types differ at its Softmax (int8 in, uint8 out)" in causes_in(found)["t2"]


@settings(max_examples=60)
@given(
    models(),
    st.booleans(),
    st.sampled_from([(QuantType.QUInt8, QuantType.QInt8), (QuantType.QInt8, QuantType.QInt8)]),
)
def test_what_onnxruntime_quantizes_is_explained(
    model: onnx.ModelProto, per_channel: bool, types: tuple[QuantType, QuantType]
) -> None:
    activation, weight = types
    theirs = quantized_by_onnxruntime(case_of(model), per_channel=per_channel, activation=activation, weight=weight)
    found = inspection_of(theirs)
    assert [cause for node in found.nodes for cause in node.causes if cause == UNKNOWN] == []


@settings(max_examples=40)
@given(models())
def test_a_float_model_runs_as_written(model: onnx.ModelProto) -> None:
    found = inspection_of(model)
    assert (found.unlike_written, found.dequantized) == ((), ())
    assert {node.runs for node in found.nodes} <= {Runs.FLOAT, Runs.FOLDED, Runs.REMOVED}
    assert set(found.kernels) <= {Runs.FLOAT, Runs.REORDER}
