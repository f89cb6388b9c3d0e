"""Sessions of onnxruntime."""

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from autoquant.domain.feed import Feed
from autoquant.domain.reason import one_line
from autoquant.domain.target import Target
from autoquant.errors import ModelError, TargetError
from autoquant.runtime.providers import provider_of

__all__ = [
    "CompiledError",
    "Initializers",
    "Session",
    "check_room",
    "open_parts",
    "open_session",
    "optimize_basic",
    "ort_values",
]

Initializers = Mapping[str, "ort.OrtValue"]
"""Initializers that a skeleton model leaves out, by name."""


_NO_IDLE_SPINNING = "session.force_spinning_stop"
_NO_PREPACKING = "session.disable_prepacking"
"""Weights are not laid out for kernels: for a session that runs nothing."""
_EXTERNAL = "session.optimized_model_external_initializers_"
_COMPILED = "it contains compiled nodes"
_SOME = 1 << 16
"""Bytes that a folder with room takes."""


class Session(Protocol):
    """What is used of ``onnxruntime.InferenceSession``."""

    def run(self, output_names: Sequence[str] | None, input_feed: Feed) -> list[npt.NDArray[np.generic]]:
        """Outputs by position."""
        ...


class CompiledError(TargetError):
    """The execution provider makes kernels of its own of whole parts of a graph, which onnxruntime cannot write."""


def ort_values(arrays: Mapping[str, npt.NDArray[np.generic]]) -> Initializers:
    """The arrays as onnxruntime holds them, without a copy where their layout allows that."""
    return {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def open_session(
    model: bytes | Path,
    target: Target,
    *,
    initializers: Initializers | None = None,
    optimized_path: Path | None = None,
    keeps_constants: bool = False,
    profile_prefix: Path | None = None,
) -> ort.InferenceSession:
    """Open a model with default session options apart from threads, logging and what the target says.

    Threads of a session that isn't running don't spin, which changes nothing for one session alone: among several, its
    idle threads would take the cores of the one that is timed.

    Args:
        model: A file, or a serialized ModelProto.
        target: Execution provider, threads and options.
        initializers: Values of initializers whose TensorProto says EXTERNAL.
        optimized_path: Where onnxruntime writes the graph that it really runs; what is in its constants of 1 KB and
            more is lost, apart from their shape and type.
        keeps_constants: Whether that is written too, beside that graph.
        profile_prefix: Kernel times are written to a file whose name begins so, until ``end_profiling`` is called.

    Raises:
        CompiledError: The graph was to be written, and the execution provider compiles it.
        ModelError: onnxruntime refuses the model.
        TargetError: The execution provider is not installed, or does not start.
    """
    provider = provider_of(target.ep), dict(target.options)
    options = ort.SessionOptions()
    options.intra_op_num_threads = target.threads
    options.log_severity_level = 4
    options.add_session_config_entry(_NO_IDLE_SPINNING, "1")
    if initializers:
        options.add_external_initializers(list(initializers), list(initializers.values()))
    if optimized_path is not None:
        _write_optimized(options, optimized_path, keeps_constants)
    if profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile_prefix)
    try:
        session = ort.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            options,
            providers=[provider],
            enable_fallback=int(target.ep != "cpu"),  # to the same provider, with the error of a second attempt
        )
    except Exception as error:
        if optimized_path is not None and _COMPILED in str(error):
            raise CompiledError(
                f"execution provider '{target.ep}' compiles graphs and does not show what it runs"
            ) from error
        where = "model" if isinstance(model, bytes) else str(model)
        raise ModelError(f"{where}: onnxruntime cannot open it: {one_line(error)}") from error
    if provider[0] not in session.get_providers():  # onnxruntime goes on with the CPU alone
        raise TargetError(
            f"execution provider '{target.ep}' is installed but does not start here; install its driver and libraries,"
            " or choose another provider"
        )
    return session


def open_parts(skeleton: bytes, arrays: Mapping[str, npt.NDArray[np.generic]], target: Target) -> ort.InferenceSession:
    """Open a model whose large weights are apart, and keep them for as long as the session is there.

    Raises:
        ModelError: onnxruntime refuses the model.
    """
    values = ort_values(arrays)
    session = open_session(skeleton, target, initializers=values)
    session.initializers = values  # their memory, which onnxruntime does not hold
    return session


def _write_optimized(options: ort.SessionOptions, path: Path, keeps_constants: bool) -> None:
    """Have the optimised graph written; its large constants, nearly all of it, go to a null device where that works."""
    options.optimized_model_filepath = str(path)
    data = path.with_name(path.name + ".data")
    options.add_session_config_entry(_EXTERNAL + "file_name", data.name)
    options.add_session_config_entry(_EXTERNAL + "min_size_in_bytes", "1024")
    if keeps_constants:
        return
    with contextlib.suppress(OSError):  # where links are not allowed, the constants are written after all
        data.symlink_to(os.devnull)


def check_room(folder: Path) -> None:
    """Where onnxruntime could not write a graph, and does not say why.

    Raises:
        OSError: Nothing can be written there any more.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(_SOME))


def optimize_basic(
    skeleton: bytes, arrays: Mapping[str, npt.NDArray[np.generic]], path: Path, *, is_whole: bool = False
) -> None:
    """Write the model after onnxruntime's provider-independent rewrites, ORT_ENABLE_BASIC.

    Constants and BatchNorm are folded, redundant nodes gone, MatMul with Add made Gemm.

    Args:
        skeleton: A serialized ModelProto.
        arrays: Values of its initializers whose TensorProto says EXTERNAL.
        path: Of the model that is written; constants of 1 KB and more are external data beside it.
        is_whole: There are none; onnxruntime 1.28 writes such of bodies twice.

    Raises:
        ModelError: onnxruntime refuses the model.
        OSError: There is no room for what it writes.
    """
    options, values = ort.SessionOptions(), ort_values(arrays)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    options.add_session_config_entry(_NO_PREPACKING, "1")
    if values:
        options.add_external_initializers(list(values), list(values.values()))
    if is_whole:
        options.optimized_model_filepath = str(path)
    else:
        _write_optimized(options, path, keeps_constants=True)
    try:
        ort.InferenceSession(skeleton, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:
        check_room(path.parent)
        raise ModelError(f"onnxruntime cannot optimize the model: {one_line(error)}") from error
