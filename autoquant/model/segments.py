"""A model in parts that run one after the other."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from autoquant.domain.region import NodeName, TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import subgraph_reads
from autoquant.model.subgraphs import bodies_of

__all__ = ["Segment", "segments"]

_DEQUANTIZE = "DequantizeLinear"
_SEQUENCES = (
    "Optional",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceMap",
    "SplitToSequence",
)
"""What writes no tensors."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Nodes in topological order, the last of which ends it.

    Attributes:
        source: The whole model.
        nodes: Of this part.
        end: The node that ends it.
        target: What that writes.
        reads: Tensors from before, without constants.
        writes: What later parts read, and ``target``.
        kept: What later parts read at all: everything else can be forgotten.
    """

    source: Model
    nodes: tuple[onnx.NodeProto, ...]
    end: NodeName
    target: TensorName
    reads: tuple[TensorName, ...]
    writes: tuple[TensorName, ...]
    kept: frozenset[TensorName]

    def model(self, dtypes: Mapping[TensorName, np.dtype[np.generic]]) -> Model:
        """This part alone.

        Args:
            dtypes: Of what it reads.
        """
        read = {name for node in self.nodes for name in _reads(node)}
        return onnx.ModelProto(
            ir_version=self.source.ir_version,
            opset_import=self.source.opset_import,
            functions=self.source.functions,
            graph=onnx.GraphProto(
                name="segment",
                node=self.nodes,
                initializer=[tensor for tensor in self.source.graph.initializer if tensor.name in read],
                input=[_input(name, dtypes[name]) for name in self.reads],
                output=[onnx.ValueInfoProto(name=name) for name in self.writes],
            ),
        )


def segments(model: Model, ends: Sequence[NodeName]) -> Iterator[Segment]:
    """Cut a model behind each of some nodes; what comes after the last one is left out.

    A DequantizeLinear is in each part that needs it, so that integers go from part to part. Only tensors do: there is
    no cut where a sequence is needed later.

    Args:
        model: With its nodes in topological order.
        ends: Names of nodes, in any order; each writes one tensor.
    """
    dequantize = {out: node for node in model.graph.node if node.op_type == _DEQUANTIZE for out in node.output}
    nodes = [node for node in model.graph.node if node.op_type != _DEQUANTIZE]
    outputs = {name for node in model.graph.node for name in node.output if name}
    tensors = {value.name for value in model.graph.input} | outputs
    last = _last_reads(nodes, dequantize)
    stops = _stops(nodes, frozenset(ends), last)
    for start, stop in zip([0, *stops], stops, strict=False):
        part = _with_dequantize(nodes[start:stop], dequantize)
        written = {name for node in part for name in node.output if name}
        read = dict.fromkeys(name for node in part for name in _reads(node))
        target = TensorName(part[-1].output[0])
        kept = frozenset(TensorName(name) for name, position in last.items() if position >= stop)
        yield Segment(
            source=model,
            nodes=tuple(part),
            end=NodeName(part[-1].name),
            target=target,
            reads=tuple(TensorName(name) for name in read if name in tensors and name not in written),
            writes=(*(TensorName(name) for name in sorted((written & kept) - {target})), target),
            kept=kept,
        )


def _stops(nodes: Sequence[onnx.NodeProto], ends: AbstractSet[str], last: Mapping[str, int]) -> list[int]:
    """Positions behind some nodes, but where a sequence is between what is before and what is later."""
    found, sequences = list[int](), set[str]()
    for position, node in enumerate(nodes, 1):
        if _writes_sequences(node, sequences):
            sequences.update(node.output)
        if node.name in ends and all(last.get(name, -1) < position for name in sequences):
            found.append(position)
    return found


def _writes_sequences(node: onnx.NodeProto, sequences: AbstractSet[str]) -> bool:
    if node.op_type in _SEQUENCES or (node.op_type == "Identity" and node.input[0] in sequences):
        return True
    outputs = [value.type for body in bodies_of(node) for value in body.output]
    return any(kind.HasField("sequence_type") or kind.HasField("optional_type") for kind in outputs)


def _with_dequantize(nodes: Sequence[onnx.NodeProto], dequantize: Mapping[str, onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The nodes and, before each, those that dequantize what it reads."""
    found: dict[str, onnx.NodeProto] = {}
    for node in nodes:
        found.update({dequantize[name].name: dequantize[name] for name in _reads(node) if name in dequantize})
        found[node.name] = node
    return list(found.values())


def _last_reads(nodes: Sequence[onnx.NodeProto], dequantize: Mapping[str, onnx.NodeProto]) -> dict[str, int]:
    """The position of the last node that reads each tensor; what is dequantized is read as integers."""
    found: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in _reads(node):
            read = _reads(dequantize[name]) if name in dequantize else [name]
            found.update(dict.fromkeys(read, position))
    return found


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from (name for name in node.input if name)
    yield from subgraph_reads(node)


def _input(name: TensorName, dtype: np.dtype[np.generic]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), None)
