"""From a plan to the bytes of a QDQ model."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import NodeName, TensorName
from autoquant.domain.rewrite import Rewrite, Rewrites
from autoquant.domain.scheme import BiasCorrection, DType, Rounding
from autoquant.model import fragments
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import (
    Kind,
    activations,
    bias_of,
    channel_axis,
    hard_sigmoid_factors,
    is_linear,
    kind_of,
    weight_of,
)
from autoquant.qdq.breakers import needs_breaker, would_pool_integers
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.dynamic import DynamicWriter
from autoquant.qdq.flattened import flattened_products
from autoquant.qdq.groups import JoinedGroups
from autoquant.qdq.params import QuantParams
from autoquant.qdq.parts import Parts, Pieces
from autoquant.qdq.plan import Plan, QuantKey
from autoquant.qdq.planner import Planner
from autoquant.qdq.ports import Means, Rounder
from autoquant.qdq.shifts import Shifts, takes_bias
from autoquant.qdq.weights import QuantizedWeight, Weights, bias_vector, quantize_bias

__all__ = ["Assembler"]

Floats = npt.NDArray[np.float64]

_LINEAR = (Kind.LINEAR, Kind.RECURRENT)
_KERNELS = (*_LINEAR, Kind.ARITHMETIC)


class Assembler:
    """Writes plans of one graph; every serialized piece is made once."""

    def __init__(self, graph: Graph, planner: Planner, means: Means, rounder: Rounder | None = None) -> None:
        self.graph = graph
        self.planner = planner
        self.weights = Weights(graph, rounder)
        self.shifts = Shifts(graph, means)
        self.dynamic = DynamicWriter(graph, self.weights)
        self.flattened = flattened_products(graph)
        self.pieces = Pieces(graph)
        self.residual_adds = _residual_adds(graph)
        self.groups = JoinedGroups(graph)
        self.rewrites: Rewrites = frozenset()

    def operands(self, node: Node, plan: Plan) -> "_Operands":
        """What a linear operator that runs on integers multiplies and adds."""
        weight_name, key = weight_of(node, self.graph), plan.key_for(node, node.inputs[0])
        assert weight_name is not None
        assert key is not None
        input_scale = np.float32(self.planner.params(key).scale)
        bias = bias_vector(node, self.graph)
        scheme = plan.schemes[node.index]
        weight = self.weights.weight(
            weight_name,
            scheme.weight,
            channel_axis(node, self.graph),
            bias=bias,
            input_scale=input_scale,
            rounding=scheme.rounding,
        )
        return _Operands(weight_name, weight, bias, input_scale)

    def expected_shifts(self, plan: Plan) -> Mapping[NodeName, Floats]:
        """What bias correction would take off the outputs of the operators that it can correct."""
        found: dict[NodeName, Floats] = {}
        for node in (self.graph.nodes[index] for index in sorted(plan.integer)):
            if is_linear(node, self.graph) and takes_bias(node, plan.schemes[node.index].activation.dtype):
                operands = self.operands(node, plan)
                shift = self.shifts.expected(node, operands.weight_name, operands.weight)
                if shift is not None:
                    found[node.name] = shift
        return found

    def assemble(self, plan: Plan, shifts: Mapping[NodeName, Floats] | None = None) -> Candidate:
        """The candidate of a plan.

        Args:
            plan: What is quantized.
            shifts: Taken off the outputs of linear operators by their biases, shape (C,), instead of the expected ones.
        """
        draft = _Draft(self, plan, shifts or {})
        needless = {each.index for i in self.flattened.keys() & plan.dynamic for each in self.flattened[i]}
        for node in self.graph.nodes:
            if node.index not in plan.absorbed and node.index not in needless:
                draft.add(node)
        draft.add_pinned_constants()
        return draft.candidate()


@dataclass(frozen=True, slots=True)
class _Operands:
    """Of a linear operator; the bias is still float, Gemm's ``beta`` multiplied in."""

    weight_name: TensorName
    weight: QuantizedWeight
    bias: npt.NDArray[np.float32] | None
    input_scale: np.float32


@dataclass(slots=True)
class _Draft:
    """One model in the making."""

    home: Assembler
    plan: Plan
    shifts: Mapping[NodeName, Floats]
    parts: Parts = field(init=False)
    owners: dict[str, QuantKey] = field(default_factory=dict)
    integers: dict[str, str] = field(default_factory=dict)
    """What a DequantizeLinear of an activation reads, by what it writes."""
    renamed: dict[TensorName, TensorName] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts = Parts(self.home.pieces)
        nodes = self.home.graph.nodes
        self.renamed = {nodes[p].outputs[0]: nodes[clip].outputs[0] for clip, p in self.plan.absorbed.items()}

    def candidate(self) -> Candidate:
        kernels = [n for n in self.home.graph.nodes if kind_of(n) in _KERNELS]
        integer = self.plan.integer | self.plan.dynamic
        return Candidate(
            skeleton=self.parts.skeleton,
            constants=self.parts.constants,
            variants=self.parts.variants,
            integer_nodes=frozenset(n.name for n in kernels if n.index in integer),
            float_nodes=frozenset(n.name for n in kernels if kind_of(n) in _LINEAR and n.index not in integer),
        )

    # -- nodes

    def add(self, node: Node) -> None:
        """The node with what it needs before it and the QDQ pairs behind it."""
        if node.index in self.plan.dynamic:
            self._add_dynamic(node)
            return
        if node.op_type == "HardSigmoid" and node.index in self.plan.integer:
            self._add_hard_sigmoid(node)
            return
        attributes: dict[str, float] = {}
        if node.index in self.plan.integer:
            inputs = self._integer_inputs(node)
            attributes = self._integer_attributes(node)
        else:
            inputs = [self._read(name, node) for name in node.inputs]
            if needs_breaker(node, self.home.graph, self.plan):
                inputs[0] = self._breaker(node, inputs[0])
        outputs = [self._written(self.renamed.get(name, name)) for name in node.outputs]
        proto = self.home.graph.model.graph.node[node.index]
        op_type = "Sum" if self._is_plain_sum(node) else None
        key = ("node", node.index, op_type, tuple(inputs), tuple(outputs), tuple(attributes))
        self.parts.add(key, lambda: fragments.rewired(proto, inputs, outputs, op_type=op_type, **attributes))
        for name in node.outputs:
            target = self.renamed.get(name, name)
            if target in self.plan.produced:
                self._pair(target, self._written(target), self.plan.produced[target], "")

    def _add_dynamic(self, node: Node) -> None:
        first, target, weights = node.inputs[0], node.outputs[0], node.inputs[1:3]
        if node.index in self.home.flattened:
            before, behind = self.home.flattened[node.index]
            first, target = before.inputs[0], behind.outputs[0]
        inputs = ["" if name in weights else self._read(name, node) for name in (first, *node.inputs[1:])]
        self.home.dynamic.write(self.parts, node, inputs, target, self.plan.schemes[node.index].weight)

    def _add_hard_sigmoid(self, node: Node) -> None:
        """As what there is an integer kernel for: decision 0040."""
        target = self.renamed.get(node.outputs[0], node.outputs[0])
        key = self.plan.produced[target]
        quantized = self._add_sum(node, target, key) if key.clipped is None else self._add_clip(node, target)
        scale, zero_point = self._parameters(key, "")
        dequantized = _dequantized(target, self.home.graph)
        self._add_dequantize(target, key, [quantized, scale, zero_point], target, dequantized)

    def _add_clip(self, node: Node, target: TensorName) -> str:
        """Of the integers that it reads, as far as they stand for less than 1; returns what it writes."""
        key = self.plan.key_for(node, node.inputs[0])
        assert key is not None
        integers = self.integers[self._read(node.inputs[0], node)]
        highest = self.parts.new_constant(f"{target}_highest", self.home.planner.highest_clipped(key))
        clipped = self.home.pieces.free(f"{target}_QuantizeLinear_Input")
        self.parts.node("Clip", [integers, "", highest], [clipped], node.name)
        return clipped

    def _add_sum(self, node: Node, target: TensorName, key: QuantKey) -> str:
        """An Add whose integers clip at 0, on the scale of the output divided by ``alpha``; returns what Q writes."""
        factors = hard_sigmoid_factors(node)
        assert factors is not None
        alpha, summand = factors
        params = self.home.planner.params(key)
        shifted = self.home.pieces.free(f"{target}_QuantizeLinear_Input")
        summands = [self._read(node.inputs[0], node), self._number(f"{node.name}_summand", summand, params.dtype)]
        self.parts.node("Add", summands, [shifted], node.name)
        _, zero_point = self._parameters(key, "")
        wide = self.parts.new_constant(f"{key.root}_scale_before", np.asarray(params.scale / np.float32(alpha)))
        return self._add_node("QuantizeLinear", [shifted, wide, zero_point], target)

    def _number(self, name: str, value: float, dtype: DType) -> str:
        """What stands for a positive number, as the largest integer of a type."""
        inputs = [
            self.parts.new_constant(f"{name}_quantized", np.array(dtype.highest, dtype.numpy)),
            self.parts.new_constant(f"{name}_scale", np.array(value / dtype.highest, np.float32)),
            self.parts.new_constant(f"{name}_zero_point", np.zeros((), dtype.numpy)),
        ]
        return self._add_node("DequantizeLinear", inputs, self.home.pieces.free(name))

    def _is_plain_sum(self, node: Node) -> bool:
        """Whether a float Add before a LayerNormalization is written as Sum, which onnxruntime does not fuse."""
        is_wanted = Rewrite.PLAIN_SUMS in self.home.rewrites
        return is_wanted and node.index not in self.plan.integer and node.index in self.home.residual_adds

    def _n_groups(self, node: Node) -> int | None:
        """Of an integer Conv, where groups are joined."""
        is_wanted = Rewrite.JOINED_GROUPS in self.home.rewrites
        return self.home.groups.n_groups(node, self.plan.schemes[node.index]) if is_wanted else None

    def _integer_attributes(self, node: Node) -> dict[str, float]:
        """Other values of attributes for the integer kernel."""
        n_groups = self._n_groups(node)
        return _integer_attributes(node) if n_groups is None else {"group": n_groups}

    def _integer_inputs(self, node: Node) -> list[str]:
        own = activations(node, self.home.graph)
        inputs = [
            self._constant_activation(node, name)
            if name in own and self.home.graph.is_constant(name)
            else self._read(name, node)
            for name in (node.inputs if not is_linear(node, self.home.graph) else node.inputs[:1])
        ]
        return inputs + (self._linear_operands(node) if is_linear(node, self.home.graph) else [])

    def _linear_operands(self, node: Node) -> list[str]:
        found, n_groups = self.home.operands(node, self.plan), self._n_groups(node)
        weight = found.weight
        if n_groups is not None:
            weight = self.home.groups.weight(found.weight_name, weight, node.attributes["group"], n_groups)
        names = [self._dequantized_weight(found.weight_name, weight)]
        shift = self._shift(node, found)
        bias = (
            found.bias
            if shift is None
            else np.asarray((0.0 if found.bias is None else found.bias) - shift, dtype=np.float32)
        )
        if bias is not None:
            integers = quantize_bias(bias, found.input_scale, found.weight.params.scale)
            name = f"{bias_of(node) or f'{node.name}_bias'}/{node.index}"
            if shift is not None:
                self.parts.variants[f"{name}_quantized"] = hashlib.sha256(integers.values.tobytes()).hexdigest()[:12]
            names.append(self._dequantized_bias(name, integers.values, integers.scale))
        return names

    def _shift(self, node: Node, found: "_Operands") -> Floats | None:
        """What the bias shall take off each output channel; None where it stays."""
        scheme = self.plan.schemes[node.index]
        if not takes_bias(node, scheme.activation.dtype):
            return None
        if node.name in self.shifts:
            return self.shifts[node.name]
        if scheme.bias is BiasCorrection.NONE and scheme.rounding is not Rounding.ADAQUANT:
            return None
        return self.home.shifts.expected(node, found.weight_name, found.weight)

    # -- activations

    def _read(self, tensor: TensorName, node: Node) -> str:
        """The name under which a node reads a tensor, after its QDQ pairs were added.

        What is no activation of the operator, as the value that Pad writes, is read as floats.
        """
        if not tensor:
            return ""
        if self.home.graph.is_constant(tensor):
            return self.parts.constant(tensor, self.home.graph.constant(tensor), "")
        own = self.plan.produced.get(tensor)
        key = self.plan.key_for(node, tensor) if tensor in activations(node, self.home.graph) else own
        if key is None or key is own:
            return _dequantized(tensor, self.home.graph) if own else tensor
        dtype = key.format.dtype
        source = _dequantized(tensor, self.home.graph) if own else self._float_source(tensor)
        first = next(other for name, other in self.plan.entries if name == tensor)
        suffix = ("_convert" if own else "") + ("" if first is dtype else f"_{dtype}")
        return self._pair(tensor, source, key, suffix)

    def _float_source(self, tensor: TensorName) -> str:
        """A tensor that is quantized for some readers, behind something that keeps a MaxPool before it in float."""
        if not would_pool_integers(tensor, self.home.graph, self.plan):
            return tensor
        name = f"{tensor}_float_output"
        return self._sum(tensor, name) if self.parts.is_new(("pooled", tensor)) else self.home.pieces.free(name)

    def _written(self, tensor: TensorName) -> str:
        pinned = tensor in self.plan.produced and tensor in self.home.graph.pinned
        return self.home.pieces.free(f"{tensor}_QuantizeLinear_Input") if pinned else tensor

    def _pair(self, tensor: TensorName, source: str, key: QuantKey, suffix: str) -> str:
        """Q and DQ on a tensor; returns what DQ writes."""
        base = self.home.pieces.free(f"{tensor}{suffix}") if suffix else tensor
        takes_name = not suffix and source == self._written(tensor) != tensor
        target = tensor if takes_name else self._output("DequantizeLinear", base)
        if not self.parts.is_new(("pair", tensor, suffix)):
            return target
        scale, zero_point = self._parameters(key, suffix)
        quantized = self._add_node("QuantizeLinear", [source, scale, zero_point], base)
        self._add_dequantize(tensor, key, [quantized, scale, zero_point], base, target)
        return target

    def _add_dequantize(self, tensor: TensorName, key: QuantKey, inputs: Sequence[str], base: str, target: str) -> None:
        """Of an activation, where somebody reads floats."""
        self.integers[target] = inputs[0]
        if not self._is_only_clipped(tensor, key):
            self._add_node("DequantizeLinear", inputs, base, target)

    def _is_only_clipped(self, tensor: TensorName, key: QuantKey) -> bool:
        """Whether all that is read of these integers of a tensor is clipped, none of it dequantized."""
        readers = self.home.graph.consumers.get(tensor, ())
        written = [(reader, self.plan.produced.get(reader.outputs[0])) for reader in readers]
        clipping = [reader for reader, own in written if own is not None and own.clipped == tensor]
        if not clipping or (key is self.plan.produced.get(tensor) and len(readers) > len(clipping)):
            return False
        return [reader for reader in readers if self.plan.key_for(reader, tensor) == key] == clipping

    def _parameters(self, key: QuantKey, suffix: str) -> tuple[str, str]:
        """Names of the scale and zero point of a key; tensors of one root may be converted to unlike formats."""
        params = self.home.planner.params(key)
        is_owner = self.owners.setdefault(f"{key.root}{suffix}", key) == key
        end = suffix if is_owner else f"{suffix}:{key.format}:{key.ranges}"
        scale = self.parts.new_constant(f"{key.root}_scale{end}", params.scale)
        return scale, self.parts.new_constant(f"{key.root}_zero_point{end}", params.zero_point)

    def _constant_activation(self, node: Node, name: TensorName) -> str:
        tensor_format = self.plan.schemes[node.index].activation
        return self._dequantized_weight(name, self.home.weights.weight(name, tensor_format, None))

    # -- constants

    def _dequantized_weight(self, name: TensorName, weight: QuantizedWeight) -> str:
        base = self.parts.base(name, weight.label)
        source = self.parts.constant(self.home.pieces.free(f"{base}_quantized"), weight.values, weight.label)
        self._dequantize_constant(source, base, weight.params, weight.axis)
        return self._output("DequantizeLinear", base)

    def _dequantized_bias(self, name: str, values: npt.NDArray[np.int32], scale: npt.NDArray[np.float32]) -> str:
        inputs = [
            self.parts.new_constant(f"{name}_quantized", values),
            self.parts.new_constant(f"{name}_scale", scale),
            self.parts.new_constant(f"{name}_zero_point", np.zeros(scale.shape, np.int32)),
        ]
        return self._add_node("DequantizeLinear", inputs, name, axis=0 if scale.ndim else None)

    def _dequantize_constant(self, source: str, base: str, params: QuantParams, axis: int | None) -> None:
        if not self.parts.is_new(("constant", base)):
            return
        scale = self.parts.new_constant(f"{base}_scale", params.scale)
        zero_point = self.parts.new_constant(f"{base}_zero_point", params.zero_point)
        self._add_node("DequantizeLinear", [source, scale, zero_point], base, axis=axis)

    def add_pinned_constants(self) -> None:
        """Constants that only subgraphs or graph outputs read."""
        for name in self.home.graph.pinned:
            if self.home.graph.is_constant(name):
                self.parts.constant(name, self.home.graph.constant(name), "")

    # -- pieces

    def _add_node(
        self, op_type: str, inputs: Sequence[str], base: str, output: str | None = None, axis: int | None = None
    ) -> str:
        """Append QuantizeLinear or DequantizeLinear; returns what it writes."""
        attributes = {} if axis is None else {"axis": axis}
        output = output or self._output(op_type, base)
        self.parts.node(op_type, inputs, [output], f"{base}_{op_type}", **attributes)
        return output

    def _output(self, op_type: str, base: str) -> str:
        return self.home.pieces.free(f"{base}_{op_type}_Output")

    def _breaker(self, node: Node, source: str) -> str:
        """Keeps a float operator between DQ and Q in float under default session options."""
        return self._sum(source, f"{node.name}_float_input", f"{node.name}_keep_float")

    def _sum(self, source: str, name: str, node_name: str | None = None) -> str:
        """Of one input, through which onnxruntime moves nothing; returns what it writes."""
        output = self.home.pieces.free(name)
        self.parts.node("Sum", [source], [output], node_name or f"{name}_keep")
        return output


def _integer_attributes(node: Node) -> dict[str, float]:
    """Other values of attributes for the integer kernel: biases have Gemm's ``beta`` multiplied in.

    Of windows that reach beyond an edge without padding QLinearAveragePool would count places that are none.
    """
    if node.op_type == "Gemm" and "beta" in node.attributes:
        return {"beta": 1.0}
    is_partial = node.attributes.get("count_include_pad", 0) and node.attributes.get("ceil_mode", 0)
    has_pads = any(node.attributes.get("pads", ())) or node.attributes.get("auto_pad", b"NOTSET").startswith(b"SAME")
    return {"count_include_pad": 0} if is_partial and not has_pads else {}


def _residual_adds(graph: Graph) -> frozenset[int]:
    """Indices of Adds of two activations of one shape that a LayerNormalization reads."""
    found = {
        node.index
        for node in graph.nodes
        if node.op_type == "Add"
        and graph.shape(node.inputs[0]) == graph.shape(node.inputs[1]) == graph.shape(node.outputs[0])
        and not any(graph.is_constant(name) for name in node.inputs)
        and any(reader.op_type == "LayerNormalization" for reader in graph.consumers.get(node.outputs[0], ()))
    }
    return frozenset(found)


def _dequantized(tensor: TensorName, graph: Graph) -> str:
    return tensor if tensor in graph.pinned else graph.free_name(f"{tensor}_DequantizeLinear_Output")
