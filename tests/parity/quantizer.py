"""onnxruntime's own quantizer with given ranges."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import CalibrationMethod, TensorData, TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

from autoquant.domain.feed import Feed
from autoquant.qdq.plan import Plan
from tests.graphs import OP_TYPES, Case

__all__ = ["quantized_by_onnxruntime", "quantized_statically"]

_SOFTMAX = {"rmin": np.float32(0), "rmax": np.nextafter(np.float32(1), np.float32(0))}


def quantized_by_onnxruntime(
    case: Case,
    *,
    per_channel: bool,
    activation: QuantType = QuantType.QUInt8,
    weight: QuantType = QuantType.QInt8,
    nodes: Sequence[str] = (),
    options: Mapping[str, object] | None = None,
    plan: Plan | None = None,
) -> onnx.ModelProto:
    """What QDQQuantizer makes of the float model; all nodes where none are named.

    Its Softmax has our range, and what a Concat joins has that of the Concat where a plan says so.
    """
    ranges: dict[str, Any] = {n.outputs[0]: [dict(_SOFTMAX)] for n in case.graph.nodes if n.op_type == "Softmax"}
    if plan is not None:
        ranges |= dict(_shared(case, plan))
    given: Any = (options or {}).get("TensorQuantOverrides", {})
    model = onnx.ModelProto()
    model.CopyFrom(case.graph.model)
    data = {
        name: TensorData(lowest=np.array([low], np.float32), highest=np.array([high], np.float32))
        for name, (low, high) in case.extremes.items()
    }
    quantizer = QDQQuantizer(
        model,
        per_channel,
        False,
        weight,
        activation,
        TensorsData(CalibrationMethod.MinMax, data),
        list(nodes),
        [],
        sorted(OP_TYPES),
        {**(options or {}), "TensorQuantOverrides": ranges | given},
    )
    quantizer.quantize_model()
    found: onnx.ModelProto = quantizer.model.model
    return found


def _shared(case: Case, plan: Plan) -> Iterator[tuple[str, list[dict[str, np.float32]]]]:
    """Ranges of tensors that are quantized as a Concat behind them is."""
    producer = case.graph.producer
    for tensor, key in plan.produced.items():
        joining = producer[key.root]
        if joining.op_type == "Concat" and producer[tensor].index < joining.index:
            low, high = case.extremes[key.root]
            yield tensor, [{"rmin": low, "rmax": high}]


class _OneSample(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feed: Feed) -> None:
        self._feeds: Iterator[dict[str, Any]] = iter([dict(feed)])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def quantized_statically(
    case: Case,
    model: onnx.ModelProto,
    plan: Plan,
    overrides: Mapping[str, object],
    folder: Path,
    *,
    float_outputs: Sequence[str] = (),
) -> onnx.ModelProto:
    """``quantize_static`` of a float model with overrides, for the nodes that a plan quantizes."""
    source, target = folder / "float.onnx", folder / "quantized.onnx"
    onnx.save(model, source)
    chosen = plan.integer | set(plan.absorbed)
    quantize_static(
        source,
        target,
        _OneSample(case.feed),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=sorted(OP_TYPES),
        nodes_to_quantize=[node.name for node in case.graph.nodes if node.index in chosen],
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options={
            "TensorQuantOverrides": dict(overrides),
            "OpTypesToExcludeOutputQuantization": list(float_outputs),
        },
    )
    return onnx.load(target)
