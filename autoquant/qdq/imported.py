"""Which scheme a region has in a model that somebody else quantized, by the names of tensors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoquant.domain.region import NodeName, TensorName
from autoquant.domain.scheme import DType, Granularity, Operators, Scheme, TensorFormat
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import Kind, activations, can_be_dynamic, can_emit_float, is_linear, kind_of, weight_of
from autoquant.model.optimized import QUANTIZED, RENAMED, original_name
from autoquant.qdq.dynamic import INT8_LEVEL
from autoquant.qdq.overrides import TYPE_NAMES

__all__ = ["FormatThere", "Quantized", "format_there", "of_graph", "of_overrides"]

_DYNAMIC = ("MatMulInteger", "com.microsoft:DynamicQuantizeLSTM")
"""Operators that find ranges when the model runs, for all that they read, which they round to u8."""
_IN_BLOCKS = {8: DType.S8, 4: DType.S4}
"""Types of weights in blocks, by their bits; what they are multiplied with is rounded to s8."""
_WHOLE = TensorFormat(dtype=DType.U8)
_QUANTIZING = ("QuantizeLinear", "com.microsoft:QuantizeLinear")
_DEQUANTIZING = ("DequantizeLinear", "com.microsoft:DequantizeLinear")
"""onnxruntime's quantizer writes those of its own domain where it is told to ``UseQDQContribOps``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """Types of the activations that a model stores as integers.

    Attributes:
        types: By tensor, for readers of which nothing else is known.
        read: By tensor and output of the node that reads it.
        entered: By name of the node that reads and position of the input: preprocessing renames tensors of nodes whose
            names stay.
        received: By tensor and name of the node that reads it, where it is not that of ``types``.
        written: Outputs of the nodes of that model: their readings are known.
        constants: Other tensors that are quantized, e.g. weights; None where readings say enough.
        dynamic: Operators that find the range of what they read when the model runs, by their names there, with the
            format to which they round it, or that of their weights where blocks have scales of their own.
    """

    types: Mapping[TensorName, DType]
    read: Mapping[tuple[TensorName, TensorName], DType] = field(default_factory=dict)
    entered: Mapping[tuple[NodeName, int], DType] = field(default_factory=dict)
    received: Mapping[tuple[TensorName, NodeName], DType] = field(default_factory=dict)
    written: frozenset[TensorName] = frozenset()
    constants: frozenset[TensorName] | None = None
    dynamic: Mapping[NodeName, TensorFormat] = field(default_factory=dict)

    def format_of_dynamic(self, node: Node) -> TensorFormat | None:
        """Which format a node of the float model has as one of ``dynamic``; None where it is none."""
        names = [NodeName(f"{name}{end}") for name in _names(node) for end in ("", *QUANTIZED)]
        return next((self.dynamic[name] for name in names if name in self.dynamic), None)

    def type_read(self, node: Node, tensor: TensorName, graph: Graph) -> DType | None:
        """With which type a node of the float model reads an activation; None for floats."""
        outputs = _outputs(node, graph)
        for output in outputs:
            if (tensor, output) in self.read:
                return self.read[tensor, output]
        for place in ((name, node.inputs.index(tensor)) for name in _names(node)):
            if place in self.entered:
                return self.entered[place]
        if not self.written.isdisjoint(outputs):
            return None
        return self.received.get((tensor, node.name), self.types.get(tensor))


def of_graph(graph: Graph) -> Quantized:
    """What a model stores as integers by QuantizeLinear nodes, and which operators find their ranges themselves."""
    types: dict[TensorName, DType] = {}
    read: dict[tuple[TensorName, TensorName], DType] = {}
    entered: dict[tuple[NodeName, int], DType] = {}
    for node in graph.nodes:
        storing = _quantizer(node, graph)
        found = _type_of(storing, graph) if storing is not None else None
        if found is None or graph.is_known(node.inputs[0]):
            continue
        tensor = _root(node.inputs[0], graph) if storing is node else _original(node.outputs[0])
        types.setdefault(tensor, found)
        for reader, position in _readers(node, graph):
            read.update({(tensor, _original(output)): found for output in reader.outputs})
            entered[reader.name, position] = found
    written = frozenset(_original(name) for node in graph.nodes for name in node.outputs)
    dynamic = {node.name: _dynamic_format(node) for node in graph.nodes}
    known = {name: found for name, found in dynamic.items() if found is not None}
    return Quantized(types=types, read=read, entered=entered, written=written, dynamic=known)


def of_overrides(overrides: Mapping[str, Sequence[Mapping[str, Any]]]) -> Quantized:
    """What onnxruntime's TensorQuantOverrides quantize, as ``runtime.overrides.load_overrides`` reads them."""
    types: dict[TensorName, DType] = {}
    received: dict[tuple[TensorName, NodeName], DType] = {}
    for name, (first, *_) in ((name, found) for name, found in overrides.items() if found):
        own = _TYPES.get(getattr(first.get("quant_type"), "name", ""))
        if own is None:
            continue
        types[TensorName(name)] = own
        conversion = first.get("convert", {})
        other = _TYPES.get(getattr(conversion.get("quant_type"), "name", ""))
        if other is not None:
            received.update(
                {(TensorName(name), NodeName(reader)): other for reader in conversion.get("recv_nodes", ())}
            )
    return Quantized(types=types, received=received, constants=frozenset(types))


@dataclass(frozen=True, slots=True)
class FormatThere:
    """How a region is quantized.

    Attributes:
        activation: Type of its activations.
        operators: Which operators of it are, as a scheme says it; several where that makes no difference.
        is_dynamic: Whether they find the range of what they read when the model runs.
        in_blocks: Format of weights whose blocks have scales of their own; None for others.
    """

    activation: DType
    operators: frozenset[Operators]
    is_dynamic: bool = False
    in_blocks: TensorFormat | None = None

    def is_that_of(self, scheme: Scheme) -> bool:
        """Whether a scheme quantizes the same operators with the same types, and blocks or ranges of that kind."""
        theirs = scheme.weight.dtype if scheme.is_blockwise else None
        ours = self.in_blocks.dtype if self.in_blocks else None
        return self.is_like(scheme) and (scheme.activation.dtype, theirs) == (self.activation, ours)

    def has_other_blocks(self, scheme: Scheme) -> bool:
        """Whether the blocks of a scheme that ``is_that_of`` have another size."""
        return self.in_blocks is not None and scheme.weight.block != self.in_blocks.block

    def is_like(self, scheme: Scheme) -> bool:
        """The same, whatever the type of the activations."""
        return scheme.operators in self.operators and scheme.is_dynamic is self.is_dynamic


def format_there(nodes: Sequence[Node], graph: Graph, found: Quantized) -> FormatThere | None:
    """How a region is quantized in another model.

    Operators with ranges found at run time decide where there are any. Else its linear operators do, or all of them
    where none is linear; the others say whether all operators are.

    Args:
        nodes: Of the region.
        graph: The prepared float model.
        found: What is quantized there.

    Returns:
        None where it is float, or quantized in part or with several types.
    """
    ways = [(node.op_type, found.format_of_dynamic(node)) for node in nodes if can_be_dynamic(node, graph)]
    has_blocks = any(way and way.block for _, way in ways)
    dynamic = {way for op_type, way in ways if op_type != "LSTM" or not has_blocks or way}
    if dynamic - {None}:
        in_blocks = next(iter(dynamic)) if has_blocks else None
        there = FormatThere(
            DType.S8 if has_blocks else DType.U8, frozenset(Operators), is_dynamic=True, in_blocks=in_blocks
        )
        return there if len(dynamic) == 1 else None
    linear = [node for node in nodes if is_linear(node, graph)]
    others = [node for node in nodes if kind_of(node) in (Kind.LINEAR, Kind.ARITHMETIC) and node not in linear]
    deciding = linear or [node for node in nodes if kind_of(node) is not Kind.CLIPPING]
    types = {_type_at(node, graph, found) for node in deciding}
    activation = types.pop() if len(types) == 1 else None
    if activation is None:
        return None
    if not linear:
        return FormatThere(activation, frozenset({Operators.ALL}))
    if not others:
        return FormatThere(activation, frozenset(Operators))
    is_all = all(_is_whole(node, graph, found) for node in others)
    return FormatThere(activation, frozenset({Operators.ALL if is_all else Operators.LINEAR}))


def _type_at(node: Node, graph: Graph, found: Quantized) -> DType | None:
    """The type of all activations that a node reads; None where they differ or one is float."""
    weight = weight_of(node, graph)
    if weight is not None and found.constants is not None and weight not in found.constants:
        return None
    types = {found.type_read(node, name, graph) for name in activations(node, graph) if not graph.is_constant(name)}
    return types.pop() if len(types) == 1 else None


def _is_whole(node: Node, graph: Graph, found: Quantized) -> bool:
    """Whether a node reads and writes integers, or reads them and may write floats."""
    if _type_at(node, graph, found) is None:
        return False
    if can_emit_float(node, graph):
        return True
    return any(name in found.types for name in _outputs(node, graph))


def _outputs(node: Node, graph: Graph) -> tuple[TensorName, ...]:
    """What a node writes, and what the Relu or Clip behind it would, which its range may make redundant."""
    readers = graph.consumers.get(node.outputs[0], ())
    clipped = (name for reader in readers if kind_of(reader) is Kind.CLIPPING for name in reader.outputs)
    return (*node.outputs, *clipped)


def _dynamic_format(node: Node) -> TensorFormat | None:
    """What ``Quantized.dynamic`` says of an operator of a quantized model; None where it is none of these."""
    if node.op_type in _DYNAMIC:
        return _WHOLE
    dtype = _IN_BLOCKS.get(node.attributes.get("bits", 4))
    is_rounding = node.attributes.get("accuracy_level", 0) == INT8_LEVEL
    if node.op_type != "com.microsoft:MatMulNBits" or not is_rounding or dtype is None:
        return None
    size = int(node.attributes["block_size"])
    return TensorFormat(dtype=dtype, granularity=Granularity.BLOCK, symmetric=True, block=size)


_TYPES = {name: dtype for dtype, name in TYPE_NAMES.items()}


def _type_of(quantize: Node, graph: Graph) -> DType | None:
    """What a QuantizeLinear stores, u8 where neither its zero point nor its output says so; None for other types."""
    has_zero_point = any(quantize.inputs[2:3])
    name = graph.dtype(quantize.inputs[2] if has_zero_point else quantize.outputs[0]) or "uint8"
    return next((dtype for dtype in TYPE_NAMES if dtype.numpy.name == name), None)


def _quantizer(node: Node, graph: Graph) -> Node | None:
    """The QuantizeLinear of what a node stores: itself, or the one before a Clip of integers (decision 0040)."""
    before = graph.producer.get(node.inputs[0]) if node.op_type == "Clip" else node
    return before if before is not None and before.op_type in _QUANTIZING else None


def _root(tensor: TensorName, graph: Graph) -> TensorName:
    """The float tensor behind pairs in a row, which convert from one type to another."""
    while (dequantize := graph.producer.get(tensor)) is not None and dequantize.op_type in _DEQUANTIZING:
        quantize = graph.producer.get(dequantize.inputs[0])
        if quantize is None or quantize.op_type not in _QUANTIZING:
            break
        tensor = quantize.inputs[0]
    return _original(tensor)


def _readers(quantize: Node, graph: Graph) -> Iterable[tuple[Node, int]]:
    """Nodes that read what is stored, a Clip or one behind its DequantizeLinear, with the position of that input.

    An operator with a float weight runs in float, whatever it reads.
    """
    for dequantize in graph.consumers.get(quantize.outputs[0], ()):
        if dequantize.op_type == "Clip":
            yield dequantize, 0
        if dequantize.op_type in _DEQUANTIZING:
            tensor = dequantize.outputs[0]
            for reader in graph.consumers.get(tensor, ()):
                if weight_of(reader, graph) is None:
                    yield reader, reader.inputs.index(tensor)


def _names(node: Node) -> tuple[NodeName, NodeName]:
    """That of a prepared node, and the one in the user's file where onnxruntime fused it."""
    return node.name, NodeName(original_name(node.name))


def _original(tensor: TensorName) -> TensorName:
    return TensorName(tensor.removesuffix(RENAMED))
