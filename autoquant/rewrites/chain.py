"""Nodes in a row in place of one."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.model.windows import SPATIAL
from autoquant.rewrites.edits import Edit, of_each_node

__all__ = ["TO_THE_END", "Chain", "of_each_chain"]

TO_THE_END = np.iinfo(np.int64).max
"""Where a Slice ends that takes all that is left."""


@dataclass(slots=True)
class Chain:
    """Each node reads what the one before it writes.

    Attributes:
        edit: Of the model.
        node: That is replaced once ``edit`` is told so; the new ones are called after it.
        source: What the first one reads; by default the first that the replaced one does.
        output: What the last one writes; by default what the replaced one does.
        nodes: So far.
    """

    edit: Edit
    node: Node
    source: TensorName | None = None
    output: TensorName | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def add(
        self, op_type: str, constants: Mapping[str, npt.ArrayLike] | None = None, *, part: str = "", **attributes: Any
    ) -> None:
        """Another node behind those so far.

        Args:
            op_type: Of it.
            constants: What it reads beside its first input, by what they are called behind its name.
            part: What the node is called behind the name of the replaced one.
            attributes: Of it.
        """
        name = f"{self.node.name}_{part}" if part else self.node.name
        source: str = self.source or self.node.inputs[0]
        if self.nodes:
            source = self.nodes[-1].output[0] = self.edit.names.new(f"{self.nodes[-1].name}_out")
        read = [self.edit.constant(f"{name}_{called}", values) for called, values in (constants or {}).items()]
        output = self.output or self.node.outputs[0]
        self.nodes.append(helper.make_node(op_type, [source, *read], [output], name=name, **attributes))

    def reshape(self, shape: Sequence[int], part: str) -> None:
        """Another shape; as in a Reshape 0 stands for the size that there was, -1 for what is left."""
        self.add("Reshape", {"shape": np.array(shape, np.int64)}, part=part)

    def crop(self, before: Sequence[int], behind: Sequence[int], part: str) -> None:
        """So many places less along each axis of images or lines, before the first ones and behind the last ones."""
        axes = range(SPATIAL, SPATIAL + len(before))
        ends = [-n if n else TO_THE_END for n in behind]
        numbers = {"starts": before, "ends": ends, "axes": axes}
        self.add("Slice", {name: np.array(values, np.int64) for name, values in numbers.items()}, part=part)

    def interleave(self, shape: Sequence[int], block: Sequence[int], *, is_in_a_row: bool) -> None:
        """What a DepthToSpace does, by Transposes that move one axis each: those have fast kernels, and it has none.

        Args:
            shape: Of the volumes, images or lines that are read: (N, C, D, H, W), (N, C, H, W) or (N, C, L).
            block: Slices, rows and columns of a block, or places of a line.
            is_in_a_row: Whether the channels that become a block lie side by side (``CRD``), or all that become the
                same place of theirs do (``DCR``).
        """
        n, n_channels, *sizes = shape
        n_left = n_channels // math.prod(block)
        outside, inside = (n * n_left, 1) if is_in_a_row else (n, n_left)
        whole = [size * n for size, n in zip(sizes, block, strict=True)]
        for axis, called in zip(range(len(sizes))[::-1], ("columns", "rows", "slices"), strict=False):
            if block[axis] > 1:
                before, behind = inside * math.prod(sizes[: axis + 1]), whole[axis + 1 :]
                last = (math.prod(behind),) if behind else ()
                self.reshape((outside * math.prod(block[:axis]), block[axis], before, *last), f"{called}_apart")
                self.add("Transpose", part=called, perm=(0, 2, 1, 3)[: 3 + len(last)])
        self.reshape((n, n_left, *whole), ("line", "image", "volume")[len(sizes) - 1])


def of_each_chain(opset: int = 0) -> Callable[[Callable[[Graph, Chain], None]], Callable[[Model], Model]]:
    """What adds to the chain of a node what comes in its place, nothing where it stays, becomes a rewrite of models.

    Args:
        opset: Models of older ones stay as they are.
    """

    def rewrite_of(write: Callable[[Graph, Chain], None]) -> Callable[[Model], Model]:
        @of_each_node(opset)
        @wraps(write)
        def rewrite(edit: Edit, node: Node) -> None:
            chain = Chain(edit, node)
            write(edit.graph, chain)
            if chain.nodes:
                edit.replaced[node.index] = chain.nodes

        return rewrite

    return rewrite_of
