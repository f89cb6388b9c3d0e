"""Models that onnxruntime's own recipe quantizes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from tests.models import feed_of, saved

__all__ = ["quantized_by_recipe"]


class _OneSample(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feed: dict[str, Any]) -> None:
        self._feeds: Iterator[dict[str, Any]] = iter([feed])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def quantized_by_recipe(
    model: onnx.ModelProto, folder: Path, quant_format: QuantFormat, activation: QuantType, **options: object
) -> onnx.ModelProto:
    """``quantize_static`` with one random sample."""
    source, target = saved(model, folder / "source.onnx"), folder / "target.onnx"
    reader = _OneSample(dict(feed_of(model)))
    quantize_static(source, target, reader, quant_format=quant_format, activation_type=activation, **options)
    return onnx.load(target)
