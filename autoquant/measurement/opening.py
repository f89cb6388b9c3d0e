"""Opens candidates, and says what the first target runs of them."""

import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autoquant.domain.target import Target
from autoquant.isolation.process import memory_folder
from autoquant.model.optimized import OptimizedGraph, read_optimized, unknown_graph
from autoquant.runtime.binding import on_device
from autoquant.runtime.session import CompiledError, Initializers, Session, open_session, ort_values
from autoquant.runtime.streams import in_streams

__all__ = ["Constants", "Opened", "Opener"]

Constants = Mapping[str, npt.NDArray[np.generic]]
"""What a skeleton leaves out, by initializer name."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A candidate's sessions, by target name, and the graph that the first target runs."""

    sessions: Mapping[str, Session]
    optimized: OptimizedGraph


@dataclass(slots=True)
class Opener:
    """Candidates share their constants in memory.

    Attributes:
        targets: Where candidates are opened.
        seconds: That opening the latest one took on all of them.
    """

    targets: Sequence[Target]
    seconds: float = 0.1
    _is_compiled: bool = False
    _values: dict[int, tuple[npt.NDArray[np.generic], Initializers]] = field(default_factory=dict)

    def open(self, skeleton: bytes, constants: Constants) -> Opened:
        """Open a candidate on every target; the first one also says what it really runs.

        Raises:
            ModelError: onnxruntime refuses the candidate.
        """
        values = self.ort_values(constants)
        start = time.perf_counter()
        first, optimized = self._open_first(skeleton, values)
        others = [open_session(skeleton, target, initializers=values) for target in self.targets[1:]]
        self.seconds = time.perf_counter() - start
        opened = zip(self.targets, (first, *others), strict=True)
        return Opened(
            {target.name: in_streams(on_device(session), target.streams) for target, session in opened}, optimized
        )

    def ort_values(self, constants: Constants) -> Initializers:
        """As onnxruntime takes them, made once for each array."""
        values: dict[str, object] = {}
        for name, array in constants.items():
            if id(array) not in self._values:
                self._values[id(array)] = (array, ort_values({"": array}))
            values[name] = self._values[id(array)][1][""]
        return values

    def _open_first(self, skeleton: bytes, values: Initializers) -> tuple[Session, OptimizedGraph]:
        if not self._is_compiled:
            with (
                contextlib.suppress(CompiledError),
                tempfile.TemporaryDirectory(prefix="autoquant-", dir=memory_folder()) as folder,
            ):
                path = Path(folder) / "optimized.onnx"
                session = open_session(skeleton, self.targets[0], initializers=values, optimized_path=path)
                return session, read_optimized(path)
            self._is_compiled = True
        return open_session(skeleton, self.targets[0], initializers=values), unknown_graph(skeleton)
