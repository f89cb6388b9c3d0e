"""A stand-in for execution providers that compile graphs, as OpenVINO, QNN and TensorRT do."""

from typing import Any

import onnxruntime as ort
import pytest

__all__ = ["compile_graphs"]

_REFUSAL = (
    "[ONNXRuntimeError] : 1 : FAIL : Unable to serialize model as it contains compiled nodes. Please disable any"
    " execution providers which generate compiled nodes."
)


def compile_graphs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Refuse to write optimised graphs from now on; the answer grows by the file of each refusal."""
    refused: list[str] = []
    session = ort.InferenceSession

    def open_session(model: bytes | str, options: ort.SessionOptions, **named: Any) -> ort.InferenceSession:
        if options.optimized_model_filepath:
            refused.append(options.optimized_model_filepath)
            raise RuntimeError(_REFUSAL)
        return session(model, options, **named)

    monkeypatch.setattr("onnxruntime.InferenceSession", open_session)
    return refused
