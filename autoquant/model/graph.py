"""A read-only view of a model's main graph, indexed once."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from autoquant.domain.region import NodeName, TensorName
from autoquant.model.norms import Norm, find_norms
from autoquant.model.sizes import position_tensors, size_tensors
from autoquant.model.subgraphs import bodies_of, nodes_in_bodies

__all__ = ["Graph", "Node", "draws", "subgraph_reads"]

_DRAWING = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators that give other numbers at every inference."""
_Names = tuple[TensorName, ...]
_IS_TRAINING = 2
"""The input of a Dropout that may say so."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the main graph.

    Attributes:
        index: Position in topological order.
        name: Unique.
        op_type: Operator, with the domain before it unless that is ONNX's own.
        inputs: Tensor names, empty where an optional input is left out.
        outputs: Tensor names.
        attributes: Python values; subgraphs are left out.
    """

    index: int
    name: NodeName
    op_type: str
    inputs: tuple[TensorName, ...]
    outputs: tuple[TensorName, ...]
    attributes: Mapping[str, Any]


class Graph:
    """Producers, consumers, shapes and constants of a model; the model must not change afterwards.

    Args:
        model: Its main graph counts.
        captured: Constants of the graphs around it, of which it need not hold the values.
    """

    def __init__(self, model: onnx.ModelProto, captured: Mapping[TensorName, onnx.TensorProto] | None = None) -> None:
        self.model = model
        graph = model.graph
        self.nodes: tuple[Node, ...] = tuple(_node(i, proto) for i, proto in enumerate(graph.node))
        self.inputs = tuple(TensorName(value.name) for value in graph.input)
        self.outputs = tuple(TensorName(value.name) for value in graph.output)
        self.producer: dict[TensorName, Node] = {out: node for node in self.nodes for out in node.outputs if out}
        self.consumers: dict[TensorName, tuple[Node, ...]] = _consumers(self.nodes)
        self._tensors = {TensorName(t.name): t for t in graph.initializer} | dict(captured or {})
        self._arrays: dict[TensorName, npt.NDArray[np.generic]] = {}
        self._magnitudes: dict[TensorName, float] = {}

    def is_constant(self, tensor: TensorName) -> bool:
        """Whether the tensor is an initializer."""
        return tensor in self._tensors

    def is_known(self, tensor: TensorName) -> bool:
        """Whether the tensor is an initializer or computed from initializers alone."""
        return self.is_constant(tensor) or (
            tensor in self.producer and self.producer[tensor].index in self.constant_nodes
        )

    def has_tensor(self, tensor: TensorName) -> bool:
        """Whether an input, an initializer or the output of a node has this name."""
        return tensor in self._tensors or tensor in self.producer or tensor in self.inputs

    def free_name(self, wanted: str, taken: Collection[str] = ()) -> TensorName:
        """The name, with underscores behind it until no tensor has it, those of bodies and of ``taken`` included."""
        name = TensorName(wanted)
        while self.has_tensor(name) or name in self._body_names or name in taken:
            name = TensorName(f"{name}_")
        return name

    def only_reader(self, tensor: TensorName) -> Node | None:
        """The node that reads a tensor where it is the only one, and neither a body nor an output of the graph is."""
        readers = self.consumers.get(tensor, ())
        return readers[0] if len(readers) == 1 and tensor not in self.pinned else None

    def copy_of(self, node: Node) -> onnx.NodeProto:
        """A node of the model as an object of its own."""
        found = onnx.NodeProto()
        found.CopyFrom(self.model.graph.node[node.index])
        return found

    @property
    def constants(self) -> Mapping[TensorName, onnx.TensorProto]:
        """Initializers by name."""
        return self._tensors

    def constant(self, tensor: TensorName) -> npt.NDArray[Any]:
        """Value of an initializer."""
        if tensor not in self._arrays:
            self._arrays[tensor] = numpy_helper.to_array(self._tensors[tensor])
        return self._arrays[tensor]

    def magnitude(self, tensor: TensorName) -> float:
        """Of the largest value of an initializer of floats; NaN where it holds such, 0 where it is empty."""
        if tensor not in self._magnitudes:
            values = self.constant(tensor)
            self._magnitudes[tensor] = max(-float(values.min()), float(values.max())) if values.size else 0.0
        return self._magnitudes[tensor]

    @cached_property
    def pinned(self) -> frozenset[TensorName]:
        """Tensors that must keep their name: graph outputs and those that subgraphs read."""
        return frozenset(self.outputs) | self.read_in_bodies

    @cached_property
    def read_in_bodies(self) -> frozenset[TensorName]:
        """Tensors that subgraphs read, at any depth, those of their own among them."""
        return frozenset(TensorName(name) for proto in self.model.graph.node for name in subgraph_reads(proto))

    @cached_property
    def _body_names(self) -> frozenset[str]:
        """Names of all tensors that bodies read or make, at any depth."""
        return frozenset(name for proto in self.model.graph.node for name in _names_in_bodies(proto))

    @cached_property
    def has_bodies(self) -> bool:
        """Whether there are If, Loop or Scan."""
        return any(True for node in self.model.graph.node for _ in bodies_of(node))

    @cached_property
    def float_tensors(self) -> frozenset[TensorName]:
        """Activations of type float32."""
        return frozenset(name for name, (elem, _) in self._types.items() if elem == onnx.TensorProto.FLOAT)

    @cached_property
    def has_halves(self) -> bool:
        """Whether an operator of ONNX's own other than a Cast reads float16."""
        return self._reads("float16")

    @cached_property
    def has_doubles(self) -> bool:
        """Whether an operator of ONNX's own other than a Cast reads float64, as a tree ensemble may, too."""
        return self._reads("float64")

    def _reads(self, dtype: str) -> bool:
        own = (node for node in self.nodes if node.op_type != "Cast" and ":" not in node.op_type)
        read = (name for node in own for name in node.inputs)
        return any(self.dtype(name) == dtype for name in read)

    def shape(self, tensor: TensorName) -> tuple[int, ...] | None:
        """Shape of an activation or initializer; None where it is not known or not static."""
        sizes = self.sizes(tensor)
        known = None if sizes is None else tuple(size for size in sizes if size is not None)
        return None if sizes is None or known is None or len(known) < len(sizes) else known

    @cached_property
    def size_tensors(self) -> frozenset[TensorName]:
        """What says how large other tensors are: see ``autoquant.model.sizes``."""
        pairs = zip(self.nodes, self.model.graph.node, strict=True)
        return size_tensors(
            [each for node, proto in pairs for each in (node, *(_node(node.index, p) for p in nodes_in_bodies(proto)))]
        )

    @cached_property
    def position_tensors(self) -> frozenset[TensorName]:
        """What follows from sizes and grows with them: see ``autoquant.model.sizes``."""
        return position_tensors(self.nodes, self.constants)

    @cached_property
    def norms(self) -> tuple[Norm, ...]:
        """Norms that are written as nodes: see ``autoquant.model.norms``."""
        return find_norms(self)

    @cached_property
    def norm_nodes(self) -> frozenset[int]:
        """Indices of all nodes of these norms."""
        return frozenset[int]().union(*(norm.nodes for norm in self.norms))

    def sizes(self, tensor: TensorName) -> tuple[int | None, ...] | None:
        """The shape with None for each dimension that is not known or not static; None where their number is not."""
        if tensor in self._tensors:
            return tuple(self._tensors[tensor].dims)
        return self._types.get(tensor, (0, None))[1]

    def rank(self, tensor: TensorName) -> int:
        """Number of dimensions; 0 where it is not known."""
        return len(self.sizes(tensor) or ())

    def dtype(self, tensor: TensorName) -> str | None:
        """Name of the element type, e.g. ``"float32"``; None where it is not known."""
        proto = self._tensors.get(tensor)
        elem = proto.data_type if proto is not None else self._types.get(tensor, (0, None))[0]
        return helper.tensor_dtype_to_np_dtype(elem).name if elem else None

    @cached_property
    def constant_nodes(self) -> frozenset[int]:
        """Nodes, by index, that read constants and nodes of this kind alone, in bodies too, and draw no numbers."""
        found: set[int] = set()
        for node, proto in zip(self.nodes, self.model.graph.node, strict=True):
            read = [name for name in node.inputs if name]
            read += [name for name in map(TensorName, subgraph_reads(proto)) if self.has_tensor(name)]
            sources = [self.producer[name].index if name in self.producer else None for name in read]
            is_constant = read and all(
                s in found if s is not None else t in self._tensors for s, t in zip(sources, read, strict=True)
            )
            if is_constant and not draws(proto):
                found.add(node.index)
        return frozenset(found)

    @property
    def op_types_in_bodies(self) -> list[str]:
        """Of every node in the bodies of If, Loop and Scan, at any depth."""
        return [node.op_type for proto in self.model.graph.node for node in nodes_in_bodies(proto)]

    @property
    def drawing(self) -> list[NodeName]:
        """Nodes that give other numbers at every inference, or have such in their bodies."""
        return [node.name for node, proto in zip(self.nodes, self.model.graph.node, strict=True) if draws(proto)]

    @cached_property
    def _types(self) -> dict[TensorName, tuple[int, tuple[int | None, ...] | None]]:
        graph = self.model.graph
        return {TensorName(v.name): _type_of(v) for v in (*graph.input, *graph.value_info, *graph.output)}


def _node(index: int, proto: onnx.NodeProto) -> Node:
    prefix = "" if proto.domain in ("", "ai.onnx") else proto.domain + ":"
    inputs, outputs = cast("_Names", tuple(proto.input)), cast("_Names", tuple(proto.output))
    return Node(index, NodeName(proto.name), prefix + proto.op_type, inputs, outputs, _Attributes(proto))


class _Attributes(Mapping[str, Any]):
    """Python values of a node's attributes but subgraphs, made when asked for: a tree ensemble has millions."""

    __slots__ = ("_found", "_node")

    def __init__(self, node: onnx.NodeProto) -> None:
        self._node = node
        self._found: dict[str, onnx.AttributeProto] | None = None

    @property
    def _protos(self) -> Mapping[str, onnx.AttributeProto]:
        if self._found is None:
            self._found = {a.name: a for a in self._node.attribute if not (a.HasField("g") or a.graphs)}
        return self._found

    def __getitem__(self, name: str) -> Any:
        return helper.get_attribute_value(self._protos[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._protos)

    def __len__(self) -> int:
        return len(self._protos)


def _consumers(nodes: tuple[Node, ...]) -> dict[TensorName, tuple[Node, ...]]:
    readers: dict[TensorName, dict[int, Node]] = {}
    for node in nodes:
        for name in node.inputs:
            if name:
                readers.setdefault(name, {})[node.index] = node
    return {name: tuple(found.values()) for name, found in readers.items()}


def subgraph_reads(proto: onnx.NodeProto) -> Iterator[str]:
    """What the bodies of If, Loop and Scan read, names of their own among it."""
    for graph in bodies_of(proto):
        yield from (value.name for value in graph.output)
        for node in graph.node:
            yield from filter(None, node.input)
            yield from subgraph_reads(node)


def draws(proto: onnx.NodeProto) -> bool:
    """Whether a node, or one in its bodies, gives other numbers at every inference."""
    return any(
        node.op_type in _DRAWING or (node.op_type == "Dropout" and len(node.input) > _IS_TRAINING)
        for node in (proto, *nodes_in_bodies(proto))
    )


def _names_in_bodies(proto: onnx.NodeProto) -> Iterator[str]:
    yield from subgraph_reads(proto)
    for graph in bodies_of(proto):
        yield from (value.name for value in graph.input)
        yield from (tensor.name for tensor in graph.initializer)
        for node in graph.node:
            yield from node.output
            yield from _names_in_bodies(node)


def _type_of(value: onnx.ValueInfoProto) -> tuple[int, tuple[int | None, ...] | None]:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return tensor.elem_type, None
    return tensor.elem_type, tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
