"""Samples as onnxruntime takes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Feed", "InputSignature", "Samples"]

Feed = Mapping[str, npt.NDArray[np.generic]]
"""One array per model input: a feed of ``InferenceSession.run``."""


@dataclass(frozen=True, slots=True)
class InputSignature:
    """A model input as the model declares it.

    Attributes:
        name: Its name.
        dtype: numpy's name of the element type, e.g. ``"float32"``.
        shape: Declared dimensions: a number, or a name or None where dynamic.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Checked samples.

    Attributes:
        feeds: One per sample.
        labels: Arrays named ``label*``, samples along axis 0.
        digest: Of the content, names included.
        source: Where they come from, for messages.
    """

    feeds: Sequence[Feed]
    labels: Mapping[str, npt.NDArray[np.generic]]
    digest: str
    source: str

    def __len__(self) -> int:
        return len(self.feeds)
