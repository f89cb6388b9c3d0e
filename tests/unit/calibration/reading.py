"""Calibration data of small arrays, read or refused."""

import numpy as np
import pytest

from autoquant.calibration.batches import read_samples
from autoquant.calibration.files import HELD_BYTES, Array
from autoquant.calibration.sources import DataSource
from autoquant.domain.feed import InputSignature, Samples
from autoquant.errors import DataError

IMAGE = InputSignature("image", "float32", ("batch", 3))
MASK = InputSignature("mask", "int64", (1, 2))


def images(n_samples: int) -> Array:
    return np.arange(3 * n_samples, dtype=np.float32).reshape(n_samples, 3)


def read(source: DataSource, *inputs: InputSignature, held_bytes: int = HELD_BYTES) -> Samples:
    return read_samples(source, inputs or (IMAGE,), role="calibration", held_bytes=held_bytes)


def refused(source: DataSource, *inputs: InputSignature, held_bytes: int = HELD_BYTES) -> str:
    with pytest.raises(DataError) as error:
        read(source, *inputs, held_bytes=held_bytes)
    return str(error.value)
