"""Places of images that all readers skip, left out where they are computed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.windows import SPATIAL, UNPADDED
from autoquant.rewrites.edits import Edit
from autoquant.rewrites.row_wise import axes_read, that_pay

__all__ = ["skip_places"]

_WINDOWED = ("AveragePool", "Conv", "MaxPool")
Strides = tuple[int, ...]


def skip_places(model: Model) -> Model:
    """What only Convs of single places with strides read is computed where they read it.

    The first blocks of ResNet's stages, as Caffe and Keras have them, read every other place in both of their branches,
    so that the last block of the stage before may do all of its work there, but for the Conv before its window. The
    argument stays as it is, and is given back where there is nothing to do.
    """
    graph = graph_of(model)
    skipping = that_pay(graph, _skipping(graph), _WINDOWED)
    if not skipping:
        return model
    written = _Written(Edit(graph), skipping)
    for node in graph.nodes:
        written.write(node)
    return written.edit.model()


def _skipping(graph: Graph) -> dict[int, Strides]:
    """Of nodes, by index, how many places apart those are that all readers read, and that can be written alone."""
    found, read = dict[int, Strides](), dict[TensorName, set[Strides]]()
    for node in reversed(graph.nodes):
        apart = _agreed(graph, read, node)
        if apart and _can_skip(graph, node, apart):
            found[node.index] = apart
        for i, name in enumerate(node.inputs):
            read.setdefault(name, set()).add(_read_by(graph, node, i, found.get(node.index, ())))
    return found


def _agreed(graph: Graph, read: Mapping[TensorName, set[Strides]], node: Node) -> Strides:
    """Nothing where readers need other places than each other, or all."""
    wanted = read.get(node.outputs[0], set()) if len(node.outputs) == 1 else set()
    return next(iter(wanted)) if len(wanted) == 1 and node.outputs[0] not in graph.pinned else ()


def _can_skip(graph: Graph, node: Node, apart: Strides) -> bool:
    if node.op_type in _WINDOWED:
        is_said = node.attributes.get("auto_pad", UNPADDED[0]) in UNPADDED
        return (is_said or _is_of_places(graph, node)) and not node.attributes.get("ceil_mode", 0)
    return _inputs_with_places(graph, node, len(apart)) is not None


def _inputs_with_places(graph: Graph, node: Node, n_axes: int) -> tuple[bool, ...] | None:
    """For each input whether it has the places of the output; None where a place is computed of others, too."""
    each = [axes_read(graph, node, axis) for axis in range(SPATIAL, SPATIAL + n_axes)]
    found = list[bool]()
    for i, name in enumerate(node.inputs):
        axes = [None if read is None else read[i] for read in each]
        has_places = axes == list(range(SPATIAL, SPATIAL + n_axes))
        if (
            None in each
            or not (has_places or axes == [None] * n_axes)
            or (has_places and name not in graph.float_tensors)
        ):
            return None
        found.append(has_places)
    return tuple(found)


def _read_by(graph: Graph, node: Node, slot: int, apart: Strides) -> Strides:
    """How many places apart those are that a node reads of an input; nothing where it reads all."""
    if node.op_type in _WINDOWED:
        return _steps(graph, node, apart) if slot == 0 and _is_of_places(graph, node) else ()
    has_places = _inputs_with_places(graph, node, len(apart)) if apart else None
    return apart if has_places is not None and has_places[slot] else ()


def _steps(graph: Graph, node: Node, apart: Strides) -> Strides:
    """Places that a window moves on by where so many of what it writes are skipped; nothing where it skips none."""
    strides = node.attributes.get("strides") or (1,) * (len(apart) or graph.rank(node.outputs[0]) - SPATIAL)
    steps = tuple(int(stride) * n for stride, n in zip(strides, apart or (1,) * len(strides), strict=True))
    return steps if max(steps, default=1) > 1 else ()


def _is_of_places(graph: Graph, node: Node) -> bool:
    """Whether its windows are single places."""
    window = node.attributes.get("kernel_shape") or (graph.sizes(node.inputs[1]) or (0,) * 3)[SPATIAL:]
    return set(window) == {1} and not any(node.attributes.get("pads", ())) and len(node.outputs) == 1


@dataclass(slots=True)
class _Written:
    """Nodes of which some write fewer places.

    Attributes:
        edit: Of the model.
        skipping: Nodes, by index.
        names: Of tensors that hold some places alone, by the tensor and how far apart these are in it.
    """

    edit: Edit
    skipping: Mapping[int, Strides]
    names: dict[tuple[TensorName, Strides], str] = field(default_factory=dict)

    def write(self, node: Node) -> None:
        """Nodes in order."""
        apart = self.skipping.get(node.index, ())
        made = [*(self._windowed if node.op_type in _WINDOWED else self._of_places)(node, apart)]
        if apart:
            made[-1].output[0] = self.edit.names.new(f"{node.outputs[0]}_apart")
            self.names[node.outputs[0], apart] = made[-1].output[0]
        if made:
            self.edit.replaced[node.index] = made

    def _windowed(self, node: Node, apart: Strides) -> Iterator[onnx.NodeProto]:
        """With other strides; it stays where it reads what it did and writes all."""
        graph, steps = self.edit.graph, _steps(self.edit.graph, node, apart)
        source = self.names.get((node.inputs[0], steps)) if steps and _is_of_places(graph, node) else None
        if not apart and source is None:
            return
        proto = graph.copy_of(node)
        proto.input[0] = source or proto.input[0]
        others = [attribute for attribute in proto.attribute if attribute.name != "strides"]
        del proto.attribute[:]
        proto.attribute.extend(others)
        proto.attribute.append(helper.make_attribute("strides", steps if source is None else (1,) * len(steps)))
        yield proto

    def _of_places(self, node: Node, apart: Strides) -> Iterator[onnx.NodeProto]:
        """Each of what it writes of one place of what it reads."""
        if not apart:
            return
        proto = self.edit.graph.copy_of(node)
        for i, has_places in enumerate(_inputs_with_places(self.edit.graph, node, len(apart)) or ()):
            name = node.inputs[i]
            if has_places and (name, apart) not in self.names:
                made = self.edit.names.new(f"{name}_apart")
                yield helper.make_node(
                    "MaxPool", [name], [made], name=made, kernel_shape=(1,) * len(apart), strides=apart
                )
                self.names[name, apart] = made
            if has_places:
                proto.input[i] = self.names[name, apart]
        yield proto
