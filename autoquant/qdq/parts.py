"""The parts of a model in the making."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model import fragments
from autoquant.model.graph import Graph

__all__ = ["CONTRIB", "Parts", "Pieces"]

CONTRIB = "com.microsoft"
"""Domain of onnxruntime's own operators."""
_INLINE_BYTES = 1024


class Pieces:
    """Serialized fragments for models of one graph, each made once, and names that are free there."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._known: dict[Hashable, bytes] = {}
        self._node_names = frozenset(str(node.name) for node in graph.nodes)

    def piece(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """A fragment by key, made at its first use."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = make()
        return found

    def free(self, name: str) -> str:
        """A name for a new tensor that the model does not use itself."""
        return self.graph.free_name(name)

    def free_node(self, name: str) -> str:
        """The same for a new node."""
        while name in self._node_names:
            name += "_"
        return name


@dataclass(slots=True)
class Parts:
    """One model in the making.

    Attributes:
        pieces: Of its graph.
        constants: Values of those that the skeleton leaves out, by name.
        variants: Which variant of a float constant each constant is, by name.
    """

    pieces: Pieces
    constants: dict[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    variants: dict[str, str] = field(default_factory=dict)
    _opset: int = 0
    _fragments: list[bytes] = field(default_factory=list)
    _done: set[Hashable] = field(default_factory=set)

    @property
    def skeleton(self) -> bytes:
        """What was added, behind the head of the model."""
        opset = self._opset
        head = self.pieces.piece(("head", opset), lambda: fragments.head(self.pieces.graph.model, opset))
        return b"".join((head, *self._fragments))

    def is_new(self, key: Hashable) -> bool:
        """Whether this is asked for the first time."""
        if key in self._done:
            return False
        self._done.add(key)
        return True

    def add(self, key: Hashable, make: Callable[[], bytes]) -> None:
        """Append a fragment."""
        self._fragments.append(self.pieces.piece(key, make))

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str,
        **attributes: float | str | tuple[int, ...],
    ) -> None:
        """Append a new node."""
        key = ("new", op_type, tuple(inputs), tuple(outputs), name, *attributes.items())
        self.add(key, lambda: fragments.node(op_type, inputs, outputs, name, **attributes))

    def need_opset(self, version: int) -> None:
        """Let nodes be of ONNX's operators up to a version."""
        self._opset = max(self._opset, version)

    def import_contrib(self) -> None:
        """Let nodes be of onnxruntime's own domain."""
        if self.is_new(CONTRIB) and all(known.domain != CONTRIB for known in self.pieces.graph.model.opset_import):
            self.add(CONTRIB, lambda: fragments.opset_import(CONTRIB, 1))

    def base(self, name: TensorName, label: str) -> str:
        """A base name for a variant of a constant: the constant's own for the first one."""
        first = self.variants.get(self.pieces.free(f"{name}_quantized"), label)
        return name if first == label else f"{name}:{label}"

    def constant(self, name: str, values: npt.NDArray[np.generic], label: str) -> str:
        """A constant under its own name, left out of the skeleton where it is large; returns the name."""
        if values.nbytes < _INLINE_BYTES or values.dtype.kind not in "iufb":
            self._inline(name, values)
        elif name not in self.constants:
            self.constants[name] = values
            self.add(("external", name, label), lambda: fragments.external(name, values))
        self.variants.setdefault(name, label)
        return name

    def new_constant(self, name: str, values: npt.NDArray[np.generic]) -> str:
        """A constant that the model does not have itself; returns its name."""
        free = self.pieces.free(name)
        self._inline(free, values)
        return free

    def _inline(self, name: str, values: npt.NDArray[np.generic]) -> None:
        if self.is_new(("inline", name)):
            content = values.tobytes() if values.dtype != object else name
            key = ("inline", name, values.dtype.str, values.shape, content)
            self.add(key, lambda: fragments.initializer(name, values))
