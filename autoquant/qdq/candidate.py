"""A mixed-precision QDQ model, built and not yet written."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autoquant.domain.arguments import check_path
from autoquant.domain.region import NodeName
from autoquant.domain.scheme import Rounding
from autoquant.model import fragments
from autoquant.model.around import Around
from autoquant.model.io import save_pieces

__all__ = ["Candidate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model as a skeleton and the constants that it leaves out.

    Attributes:
        skeleton: Serialized ModelProto; large initializers are EXTERNAL.
        constants: Their values, by initializer name.
        variants: Which variant of a float constant each quantized one is, by initializer name.
        integer_nodes: Operators with a kernel of their own that shall run on integers.
        float_nodes: Linear operators that shall run on floats.
        around: What its file has around it; None where it is the whole of it.
    """

    skeleton: bytes = field(repr=False)
    constants: Mapping[str, npt.NDArray[np.generic]] = field(repr=False)
    variants: Mapping[str, str] = field(repr=False)
    integer_nodes: frozenset[NodeName]
    float_nodes: frozenset[NodeName]
    around: Around | None = field(default=None, repr=False)

    @property
    def variants_digest(self) -> str:
        """Equal where the constants left out are equal."""
        labels = "\n".join(f"{name} {label}" for name, label in sorted(self.variants.items()))
        return hashlib.sha256(labels.encode()).hexdigest()[:16]

    @property
    def roundings(self) -> frozenset[Rounding]:
        """By which constants were rounded, the nearest integers apart; their labels say it."""
        return frozenset(rounding for rounding in Rounding if any(f":{rounding}-" in v for v in self.variants.values()))

    @property
    def size_bytes(self) -> int:
        """Bytes of the model with its constants and what is around it, without metadata."""
        n_around = 0 if self.around is None else len(self.around.model)
        return n_around + len(self.skeleton) + sum(values.nbytes for values in self.constants.values())

    @property
    def digest(self) -> str:
        """Equal for equal models."""
        return hashlib.sha256(self.skeleton).hexdigest() + self.variants_digest

    @property
    def parts(self) -> tuple[bytes, Mapping[str, npt.NDArray[np.generic]]]:
        """What a session is opened with that runs as the file does, and constants that are apart where they can be."""
        if self.around is None:
            return self.skeleton, self.constants
        return self.around.framed(self.skeleton, self.constants), {}

    def pieces(self, metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
        """The file, with metadata beside those of the model."""
        whole = fragments.whole if self.around is None else self.around.whole
        return whole(self.skeleton, self.constants, metadata)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one file, which any ``onnxruntime.InferenceSession`` opens.

        Raises:
            OutputError: There is no room, or the folder cannot be written.
            UsageError: It is no path.
        """
        check_path("where to write the model", path, is_needed=True)
        save_pieces(self.pieces({}), Path(path))
