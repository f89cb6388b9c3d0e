"""How far the channels of each tensor of a graph can be filled up with zeros."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autoquant.domain.region import TensorName
from autoquant.model.graph import Node
from autoquant.rewrites.channels import Channels
from autoquant.rewrites.layouts import Layout

__all__ = ["ChannelLayouts"]


@dataclass(frozen=True, slots=True)
class ChannelLayouts:
    """Layouts of the tensors of one graph for one multiple.

    Attributes:
        channels: Of the graph.
        multiple: Of channels.
        is_tight: Whether what is joined shall need no more multiples than before.
    """

    channels: Channels
    multiple: int
    is_tight: bool = False

    def solve(self) -> Mapping[TensorName, Layout]:
        """Of all tensors that have other channels than before, if as many as may be are filled up."""
        moved = {self.channels.root(name) for node in self.channels.moving for name in node.outputs}
        sizes = {
            self.channels.root(name): size
            for name in self.channels.tensors
            if (size := self.channels.size(name)) is not None
        }
        wanted = {
            root
            for root, size in sizes.items()
            if root not in self.channels.fixed | moved and size % self.multiple and size >= self.multiple / 4
        }
        while wanted:
            known = self._propagated(wanted)
            wrong = {
                source
                for root, layout in self._derived(known)
                if known[root] != layout or not self._may_be(root, layout)
                for source in self._sources(root, wanted)
            }
            if not wrong:
                roots = {name: self.channels.root(name) for name in self.channels.tensors}
                return {name: known[root] for name, root in roots.items() if root in known and known[root].is_filled}
            wanted -= wrong
        return {}

    def parts(self, node: Node, known: Mapping[TensorName, Layout]) -> list[Layout]:
        """Of what a Concat joins; its constants are filled up where anything else is."""
        own = [None if self.channels.graph.is_constant(name) else self._layout(name, known) for name in node.inputs]
        is_filled = any(layout is not None and layout.is_filled for layout in own)
        return [
            layout or Layout.of(self.channels.size(name) or 0, self.multiple if is_filled else 1)
            for name, layout in zip(node.inputs, own, strict=True)
        ]

    def _propagated(self, wanted: set[TensorName]) -> dict[TensorName, Layout]:
        """Layouts by root; where two that are derived differ, one of them."""
        known = {root: Layout.of(self._n_channels(root), self.multiple) for root in wanted}
        for _ in self.channels.moving:
            before = dict(known)
            known.update(self._derived(known))
            if known == before:
                break
        return known

    def _derived(self, known: Mapping[TensorName, Layout]) -> Iterator[tuple[TensorName, Layout]]:
        """Of what is joined or taken out, by root."""
        for node in self.channels.moving:
            if node.op_type == "Concat":
                yield self.channels.root(node.outputs[0]), Layout.joined(self.parts(node, known))
                continue
            layout = self._layout(node.inputs[0], known)
            for name, (start, stop) in zip(node.outputs, self.channels.bounds(node), strict=True):
                yield self.channels.root(name), layout.part(start, stop)

    def _may_be(self, root: TensorName, layout: Layout) -> bool:
        if layout.is_filled and root in self.channels.fixed:
            return False
        return not self.is_tight or layout.size <= Layout.of(len(layout.places), self.multiple).size

    def _sources(self, root: TensorName, wanted: set[TensorName]) -> set[TensorName]:
        """What is filled up that a layout is derived from."""
        found: set[TensorName] = set()
        seen, left = set[TensorName](), [root]
        while left:
            root = left.pop()
            if root in seen:
                continue
            seen.add(root)
            found |= {root} & wanted
            for node in self.channels.moving:
                if any(self.channels.root(name) == root for name in node.outputs):
                    left += [
                        self.channels.root(name) for name in node.inputs if not self.channels.graph.is_constant(name)
                    ]
        return found

    def _layout(self, tensor: TensorName, known: Mapping[TensorName, Layout]) -> Layout:
        root = self.channels.root(tensor)
        return known.get(root) or Layout.of(self._n_channels(tensor))

    def _n_channels(self, tensor: TensorName) -> int:
        size = self.channels.size(tensor)
        assert size is not None, tensor
        return size
