"""QuantizeLinear and DequantizeLinear around activations and constants of a model in the making."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import activations
from autoquant.qdq.breakers import would_pool_integers
from autoquant.qdq.parts import Parts
from autoquant.qdq.plan import Plan, QuantKey
from autoquant.qdq.planner import Planner
from autoquant.qdq.weights import QuantizedWeight

__all__ = ["Pairs"]


@dataclass(slots=True)
class Pairs:
    """Of one model.

    Attributes:
        graph: The float model.
        planner: Knows scales and zero points.
        plan: What is quantized.
        parts: Of the model.
        renamed: What operators write that a Relu or Clip behind them was absorbed by, by what they write themselves.
    """

    graph: Graph
    planner: Planner
    plan: Plan
    parts: Parts
    renamed: dict[TensorName, TensorName] = field(init=False)
    _owners: dict[str, QuantKey] = field(default_factory=dict)
    _integers: dict[str, str] = field(default_factory=dict)
    """What a DequantizeLinear of an activation reads, by what it writes."""

    def __post_init__(self) -> None:
        nodes = self.graph.nodes
        self.renamed = {nodes[p].outputs[0]: nodes[clip].outputs[0] for clip, p in self.plan.absorbed.items()}

    # -- activations

    def read(self, tensor: TensorName, node: Node) -> str:
        """The name under which a node reads a tensor, after its QDQ pairs were added.

        What is no activation of the operator, as the value that Pad writes, is read as floats.
        """
        if not tensor:
            return ""
        if self.graph.is_constant(tensor):
            return self.parts.constant(tensor, self.graph.constant(tensor), "")
        own = self.plan.produced.get(tensor)
        key = self.plan.key_for(node, tensor) if tensor in activations(node, self.graph) else own
        if key is None or key is own:
            return self._dequantized(tensor) if own else tensor
        dtype = key.format.dtype
        source = self._dequantized(tensor) if own else self._float_source(tensor)
        first = next(other for name, other in self.plan.entries if name == tensor)
        suffix = ("_convert" if own else "") + ("" if first is dtype else f"_{dtype}")
        return self._pair(tensor, source, key, suffix)

    def read_integers(self, tensor: TensorName, node: Node) -> str:
        """The name of the integers that stand for what a node reads."""
        return self._integers[self.read(tensor, node)]

    def written(self, tensor: TensorName) -> str:
        """The name under which an operator writes floats that are quantized right behind it, if they are."""
        return self._floats_of(self.renamed.get(tensor, tensor))

    def quantize_written(self, tensor: TensorName) -> None:
        """A pair right behind the operator that writes a tensor, if it is quantized there."""
        target = self.renamed.get(tensor, tensor)
        if target in self.plan.produced:
            self._pair(target, self._floats_of(target), self.plan.produced[target], "")

    def dequantize_written(self, tensor: TensorName, quantized: str) -> None:
        """What was written as integers, as ``plan.produced`` says."""
        target = self.renamed.get(tensor, tensor)
        key = self.plan.produced[target]
        inputs = [quantized, *self.parameters(key)]
        self._add_dequantize(target, key, inputs, target, self._dequantized(target))

    def parameters(self, key: QuantKey, suffix: str = "") -> tuple[str, str]:
        """Names of the scale and zero point of a key; tensors of one root may be converted to unlike formats."""
        params = self.planner.params(key)
        is_owner = self._owners.setdefault(f"{key.root}{suffix}", key) == key
        end = suffix if is_owner else f"{suffix}:{key.format}:{key.ranges}"
        scale = self.parts.new_constant(f"{key.root}_scale{end}", params.scale)
        return scale, self.parts.new_constant(f"{key.root}_zero_point{end}", params.zero_point)

    def _floats_of(self, tensor: TensorName) -> str:
        """Under its own name, unless that is for what is dequantized again."""
        is_pinned = tensor in self.plan.produced and tensor in self.graph.pinned
        return self.parts.pieces.free(f"{tensor}_QuantizeLinear_Input") if is_pinned else tensor

    def _dequantized(self, tensor: TensorName) -> str:
        is_pinned = tensor in self.graph.pinned
        return tensor if is_pinned else self.graph.free_name(f"{tensor}_DequantizeLinear_Output")

    def _float_source(self, tensor: TensorName) -> str:
        """A tensor that is quantized for some readers, behind something that keeps a MaxPool before it in float."""
        if not would_pool_integers(tensor, self.graph, self.plan):
            return tensor
        name = f"{tensor}_float_output"
        return self.through_sum(tensor, name) if self.parts.is_new(("pooled", tensor)) else self.parts.pieces.free(name)

    def _pair(self, tensor: TensorName, source: str, key: QuantKey, suffix: str) -> str:
        """Q and DQ on a tensor; returns what DQ writes."""
        base = self.parts.pieces.free(f"{tensor}{suffix}") if suffix else tensor
        takes_name = not suffix and source == self._floats_of(tensor) != tensor
        target = tensor if takes_name else self._output("DequantizeLinear", base)
        if not self.parts.is_new(("pair", tensor, suffix)):
            return target
        scale, zero_point = self.parameters(key, suffix)
        quantized = self.add("QuantizeLinear", [source, scale, zero_point], base)
        self._add_dequantize(tensor, key, [quantized, scale, zero_point], base, target)
        return target

    def _add_dequantize(self, tensor: TensorName, key: QuantKey, inputs: Sequence[str], base: str, target: str) -> None:
        """Of an activation, where somebody reads floats."""
        self._integers[target] = inputs[0]
        if not self._is_only_clipped(tensor, key):
            self.add("DequantizeLinear", inputs, base, target)

    def _is_only_clipped(self, tensor: TensorName, key: QuantKey) -> bool:
        """Whether all that is read of these integers of a tensor is clipped, none of it dequantized."""
        readers = self.graph.consumers.get(tensor, ())
        written = [(reader, self.plan.produced.get(reader.outputs[0])) for reader in readers]
        clipping = [reader for reader, own in written if own is not None and own.clipped == tensor]
        if not clipping or (key is self.plan.produced.get(tensor) and len(readers) > len(clipping)):
            return False
        return [reader for reader in readers if self.plan.key_for(reader, tensor) == key] == clipping

    # -- constants

    def weight(self, name: TensorName, weight: QuantizedWeight) -> str:
        """A constant of the model, quantized; returns what DQ writes."""
        base = self.parts.base(name, weight.label)
        source = self.parts.constant(self.parts.pieces.free(f"{base}_quantized"), weight.values, weight.label)
        if self.parts.is_new(("constant", base)):
            scale = self.parts.new_constant(f"{base}_scale", weight.params.scale)
            zero_point = self.parts.new_constant(f"{base}_zero_point", weight.params.zero_point)
            self.add("DequantizeLinear", [source, scale, zero_point], base, axis=weight.axis)
        return self._output("DequantizeLinear", base)

    def new_constant(self, name: str, values: npt.NDArray[np.generic], scale: npt.NDArray[np.float32]) -> str:
        """Integers around 0 that the model does not have itself; returns what DQ writes.

        Args:
            name: Of what they stand for.
            values: Shape (C,), or a scalar.
            scale: One, or one for each.
        """
        inputs = [
            self.parts.new_constant(f"{name}_quantized", values),
            self.parts.new_constant(f"{name}_scale", scale),
            self.parts.new_constant(f"{name}_zero_point", np.zeros(scale.shape, values.dtype)),
        ]
        return self.add("DequantizeLinear", inputs, name, axis=0 if scale.ndim else None)

    # -- nodes

    def add(
        self, op_type: str, inputs: Sequence[str], base: str, output: str | None = None, axis: int | None = None
    ) -> str:
        """Append QuantizeLinear or DequantizeLinear; returns what it writes."""
        attributes = {} if axis is None else {"axis": axis}
        output = output or self._output(op_type, base)
        self.parts.node(op_type, inputs, [output], self.parts.pieces.free_node(f"{base}_{op_type}"), **attributes)
        return output

    def through_sum(self, source: str, name: str, node_name: str | None = None) -> str:
        """A Sum of one input, through which onnxruntime moves nothing; returns what it writes."""
        output = self.parts.pieces.free(name)
        self.parts.node("Sum", [source], [output], node_name or self.parts.pieces.free_node(f"{name}_keep"))
        return output

    def _output(self, op_type: str, base: str) -> str:
        return self.parts.pieces.free(f"{base}_{op_type}_Output")
