from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.model.fragments import inline_external
from experiments.accuracy.algorithms import Setting, setting_of
from experiments.accuracy.ceilings import CEILINGS, run_as_written, with_float_activations, with_float_weights
from experiments.accuracy.decibels import assignments
from experiments.believe.subjects import subject_of

SCHEME = "u8s8-tensor-minmax"


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    folder: Path = tmp_path_factory.mktemp("cache")
    return setting_of(subject_of("example:digits"), "default", folder, [SCHEME], ["none"])


def op_types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def integer_constants(model: onnx.ModelProto) -> int:
    stored = {tensor.name for tensor in model.graph.initializer}
    return sum(node.op_type == "DequantizeLinear" and node.input[0] in stored for node in model.graph.node)


def distance(setting: Setting, model: onnx.ModelProto) -> float:
    """From the float model, on calibration samples."""
    feeds = setting.calibration.feeds[:4]
    pairs = zip(run_as_written(setting.plain.prepared.graph.model, feeds), run_as_written(model, feeds), strict=True)
    return float(sum(np.square(np.subtract(a[0], b[0], dtype=np.float64)).sum() for a, b in pairs))


def test_float_weights_leave_the_activations_as_they_are(setting: Setting) -> None:
    (uniform,) = assignments(setting, SCHEME, 0)
    candidate, graph = setting.plain.builder.build(uniform), setting.plain.prepared.graph
    whole = inline_external(candidate.skeleton, candidate.constants, {})
    model = with_float_weights(candidate, graph)
    assert op_types(model) == op_types(whole)
    assert integer_constants(whole) > 0
    read = {name for node in model.graph.node if node.op_type != "DequantizeLinear" for name in node.input}
    used = [node for node in model.graph.node if node.op_type == "DequantizeLinear" and node.output[0] in read]
    stored = {tensor.name for tensor in model.graph.initializer}
    assert not any(node.input[0] in stored for node in used)
    assert 0 < distance(setting, model) < distance(setting, whole)


def test_float_activations_leave_the_weights_as_they_are(setting: Setting) -> None:
    (uniform,) = assignments(setting, SCHEME, 0)
    candidate, graph = setting.plain.builder.build(uniform), setting.plain.prepared.graph
    model = with_float_activations(candidate, graph)
    assert op_types(model) == op_types(graph.model)
    assert (
        0 < distance(setting, model) < distance(setting, inline_external(candidate.skeleton, candidate.constants, {}))
    )


def test_nothing_is_quantized_where_nothing_is_asked_for(setting: Setting) -> None:
    for make in CEILINGS.values():
        assert distance(setting, make(setting, {})) == pytest.approx(0, abs=1e-9)
