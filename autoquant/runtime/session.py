"""Sessions of onnxruntime."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from autoquant.domain.feed import Feed, InputSignature
from autoquant.domain.target import Target
from autoquant.errors import ModelError
from autoquant.runtime.providers import provider_of

__all__ = ["Initializers", "Session", "input_signatures", "open_session", "ort_values"]

Initializers = Mapping[str, "ort.OrtValue"]
"""Initializers that a skeleton model leaves out, by name."""

_NUMPY_NAMES = {"float": "float32", "double": "float64", "float16": "float16", "bool": "bool", "string": "object"}


class Session(Protocol):
    """What is used of ``onnxruntime.InferenceSession``."""

    def run(self, output_names: Sequence[str] | None, input_feed: Feed) -> list[npt.NDArray[np.generic]]:
        """Outputs by position."""
        ...


def ort_values(arrays: Mapping[str, npt.NDArray[np.generic]]) -> Initializers:
    """The arrays as onnxruntime holds them, without a copy where their layout allows that."""
    return {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def open_session(
    model: bytes | Path,
    target: Target,
    *,
    initializers: Initializers | None = None,
    optimized_path: Path | None = None,
) -> ort.InferenceSession:
    """Open a model with default session options apart from threads, logging and what the target says.

    Args:
        model: A file, or a serialized ModelProto.
        target: Execution provider, threads and options.
        initializers: Values of initializers whose TensorProto says EXTERNAL.
        optimized_path: Where onnxruntime writes the graph that it really runs.

    Raises:
        ModelError: onnxruntime refuses the model.
        TargetError: The execution provider is not installed.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = target.threads
    options.log_severity_level = 4
    if initializers:
        options.add_external_initializers(list(initializers), list(initializers.values()))
    if optimized_path is not None:
        options.optimized_model_filepath = str(optimized_path)
    try:
        return ort.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            options,
            providers=[(provider_of(target.ep), dict(target.options))],
        )
    except Exception as error:
        where = "model" if isinstance(model, bytes) else str(model)
        raise ModelError(f"{where}: onnxruntime cannot open it: {_one_line(error)}") from error


def input_signatures(session: ort.InferenceSession) -> tuple[InputSignature, ...]:
    """The inputs that a session wants."""
    return tuple(
        InputSignature(value.name, _numpy_name(value.type), tuple(d if d != "" else None for d in value.shape))
        for value in session.get_inputs()
    )


def _numpy_name(type_text: str) -> str:
    inner = type_text.removeprefix("tensor(").removesuffix(")")
    return _NUMPY_NAMES.get(inner, inner)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
