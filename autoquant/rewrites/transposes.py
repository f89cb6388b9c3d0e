"""Transposes of onnxruntime's CPU provider, of which those that move one axis are fast."""

from collections.abc import Sequence
from math import prod

from autoquant.model.graph import Graph, Node
from autoquant.rewrites.chain import Chain
from autoquant.rewrites.edits import Edit, of_each_node

__all__ = ["move_one_axis_each"]

_LEAST_VALUES = 4096
"""Fewer are moved in less time than it takes to run two nodes more."""
Permutation = tuple[int, ...]


@of_each_node()
def move_one_axis_each(edit: Edit, node: Node) -> None:
    """A Transpose before a Reshape that moves two axes, the last among them, becomes two that move one each.

    Others copy value by value, at ten times the cost. Pixels that an exporter wrote to channels, or channels to pixels,
    by Reshape, Transpose and Reshape, are such. Without the last one onnxruntime makes one Transpose of the two again.
    """
    reshape, moves = _reshape_behind(edit.graph, node), _moves(edit.graph, node)
    if reshape is None or moves is None:
        return
    chain = Chain(edit, node, output=reshape.outputs[0])
    for i, (sizes, permutation) in enumerate(moves):
        chain.reshape(sizes, f"apart_{i}")
        chain.add("Transpose", part=f"move_{i}", perm=permutation)
    chain.reshape(edit.graph.shape(reshape.outputs[0]) or (), "together")
    edit.replaced |= {node.index: chain.nodes, reshape.index: ()}


def _reshape_behind(graph: Graph, node: Node) -> Node | None:
    """The Reshape to a known shape without zeros that alone reads a Transpose."""
    reader = graph.only_reader(node.outputs[0]) if node.op_type == "Transpose" else None
    if reader is None or reader.op_type != "Reshape" or not prod(graph.shape(reader.outputs[0]) or (0,)):
        return None
    return reader


def _moves(graph: Graph, node: Node) -> list[tuple[tuple[int, ...], Permutation]] | None:
    """Two moves of one axis that do the same, with the sizes that they see; None where there are no such two."""
    sizes = graph.shape(node.inputs[0]) if node.op_type == "Transpose" else None
    if sizes is None or prod(sizes) < _LEAST_VALUES:
        return None
    sizes, wanted = _merged(sizes, tuple(node.attributes.get("perm", range(len(sizes))[::-1])))
    if wanted[-1] == len(wanted) - 1 or _is_move(wanted):
        return None
    for first in _all_moves(len(wanted)):
        second = tuple(first.index(axis) for axis in wanted)
        if _is_move(second):
            return [_merged(sizes, first), _merged([sizes[axis] for axis in first], second)]
    return None


def _merged(sizes: Sequence[int], permutation: Permutation) -> tuple[tuple[int, ...], Permutation]:
    """The same without axes of one place, and with one for those that lie side by side before and behind."""
    kept = [axis for axis in permutation if sizes[axis] != 1] or list(permutation[:1])
    runs: list[list[int]] = []
    for axis in kept:
        if runs and not any(sizes[between] != 1 for between in range(runs[-1][-1] + 1, axis)) and axis > runs[-1][-1]:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    order = sorted(runs)
    return tuple(prod(sizes[axis] for axis in run) for run in order), tuple(order.index(run) for run in runs)


def _is_move(permutation: Permutation) -> bool:
    """Whether one axis, or none, goes elsewhere and all others keep their order."""
    return permutation in {*_all_moves(len(permutation)), tuple(range(len(permutation)))}


def _all_moves(rank: int) -> list[Permutation]:
    found: list[Permutation] = []
    for axis in range(rank):
        others = [i for i in range(rank) if i != axis]
        found += [(*others[:place], axis, *others[place:]) for place in range(rank) if place != axis]
    return found
