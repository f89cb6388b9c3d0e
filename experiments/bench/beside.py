"""A float model measured beside another form of it."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from autoquant import compare

__all__ = ["measure_beside", "ratio_text"]

N_SAMPLES = 8


def measure_beside(
    given: onnx.ModelProto, other: onnx.ModelProto, shape: Sequence[int], seconds: float
) -> dict[str, Any]:
    """The ratio of the other form to what is given, with the interval of a further process, and its SNR.

    Args:
        given: Reads ``x``.
        other: The same.
        shape: Of a sample of it, without the batch of 1.
        seconds: For all of it.
    """
    samples = np.random.default_rng(1).standard_normal((N_SAMPLES, *shape)).astype(np.float32)
    with TemporaryDirectory() as folder:
        first, second, data = (Path(folder) / name for name in ("given.onnx", "other.onnx", "data.npz"))
        onnx.save(given, first)
        onnx.save(other, second)
        np.savez(data, x=samples)
        table = compare([first, second], data, seconds=seconds).table
    (row,) = table[table["model"] == str(second)].itertuples()
    return {"snr_db": row.snr_db, "ratio": row.ratio, "ratio_low": row.ratio_low, "ratio_high": row.ratio_high}


def ratio_text(ratio: float, low: float | None, high: float | None, digits: int = 2) -> str:
    """With its interval, which there is none of where there was time for one process alone."""
    interval = "no interval" if low is None or high is None else f"{low:.{digits}f} to {high:.{digits}f}"
    return f"{ratio:.{digits}f} ({interval})"
