"""From a plan to the bytes of a QDQ model."""

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import NodeName, TensorName
from autoquant.domain.scheme import BiasCorrection, Rounding
from autoquant.model import fragments
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import Kind, activations, bias_of, channel_axis, is_linear, kind_of, weight_of
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.params import QuantParams
from autoquant.qdq.plan import Plan, Planner, QuantKey
from autoquant.qdq.ports import Means, Rounder
from autoquant.qdq.shifts import Shifts, takes_bias
from autoquant.qdq.weights import QuantizedWeight, Weights, quantize_bias

__all__ = ["Assembler"]

Floats = npt.NDArray[np.float64]

_INLINE_BYTES = 1024
_REQUANTIZED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Float operators that onnxruntime turns into int8: between DQ and Q by its WeightBiasQuantization, a MatMul as the
Gemm that it becomes with an Add; and behind two DQ, whatever follows, by its QDQ fusions."""


class Assembler:
    """Writes plans of one graph; every serialized piece is made once."""

    def __init__(self, graph: Graph, planner: Planner, means: Means, rounder: Rounder | None = None) -> None:
        self.graph = graph
        self.planner = planner
        self.weights = Weights(graph, rounder)
        self.shifts = Shifts(graph, means)
        self.head = fragments.head(graph.model)
        self._taken = {*graph.constants, *graph.inputs, *graph.producer}
        self.residual_adds = _residual_adds(graph)
        self.plain_sums = False
        self._pieces: dict[Hashable, bytes] = {}

    def piece(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """A fragment by key, made at its first use."""
        found = self._pieces.get(key)
        if found is None:
            found = self._pieces[key] = make()
        return found

    def free(self, name: str) -> str:
        """A name for a new constant that the model does not use itself."""
        while name in self._taken:
            name += "_"
        return name

    def operands(self, node: Node, plan: Plan) -> "_Operands":
        """What a linear operator that runs on integers multiplies and adds."""
        weight_name, bias_name, key = weight_of(node, self.graph), bias_of(node), plan.key_for(node, node.inputs[0])
        assert weight_name is not None
        assert key is not None
        input_scale = np.float32(self.planner.params(key).scale)
        beta = np.float32(node.attributes.get("beta", 1.0) if node.op_type == "Gemm" else 1.0)
        bias = None if bias_name is None else beta * _bias_vector(node, self.graph, weight_name, bias_name)
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
        for node in self.graph.nodes:
            if node.index not in plan.absorbed:
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
    parts: list[bytes] = field(default_factory=list)
    constants: dict[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    variants: dict[str, str] = field(default_factory=dict)
    done: set[Hashable] = field(default_factory=set)
    owners: dict[str, QuantKey] = field(default_factory=dict)
    renamed: dict[TensorName, TensorName] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts.append(self.home.head)
        nodes = self.home.graph.nodes
        self.renamed = {nodes[p].outputs[0]: nodes[clip].outputs[0] for clip, p in self.plan.absorbed.items()}

    def candidate(self) -> Candidate:
        graph = self.home.graph
        kernels = [n for n in graph.nodes if kind_of(n) in (Kind.LINEAR, Kind.ARITHMETIC)]
        return Candidate(
            skeleton=b"".join(self.parts),
            constants=self.constants,
            variants=self.variants,
            integer_nodes=frozenset(n.name for n in kernels if n.index in self.plan.integer),
            float_nodes=frozenset(
                n.name for n in kernels if kind_of(n) is Kind.LINEAR and n.index not in self.plan.integer
            ),
        )

    # -- nodes

    def add(self, node: Node) -> None:
        """The node with what it needs before it and the QDQ pairs behind it."""
        attributes: dict[str, float] = {}
        if node.index in self.plan.integer:
            inputs = self._integer_inputs(node)
            if node.op_type == "Gemm" and len(inputs) > 2:
                attributes = {"beta": 1.0}
        else:
            inputs = [self._read(name, node) for name in node.inputs]
            if self._needs_breaker(node):
                inputs[0] = self._breaker(node, inputs[0])
        outputs = [self._written(self.renamed.get(name, name)) for name in node.outputs]
        proto = self.home.graph.model.graph.node[node.index]
        op_type = "Sum" if self._is_plain_sum(node) else node.op_type
        key = ("node", node.index, op_type, tuple(inputs), tuple(outputs), tuple(attributes))
        self.parts.append(
            self.home.piece(key, lambda: fragments.rewired(proto, inputs, outputs, op_type=op_type, **attributes))
        )
        for name in node.outputs:
            target = self.renamed.get(name, name)
            if target in self.plan.produced:
                self._pair(target, self._written(target), self.plan.produced[target], "")

    def _is_plain_sum(self, node: Node) -> bool:
        """Whether a float Add before a LayerNormalization is written as Sum, which onnxruntime does not fuse."""
        return self.home.plain_sums and node.index not in self.plan.integer and node.index in self.home.residual_adds

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
        found = self.home.operands(node, self.plan)
        names = [self._dequantized_weight(found.weight_name, found.weight)]
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
                self.variants[f"{name}_quantized"] = hashlib.sha256(integers.values.tobytes()).hexdigest()[:12]
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
        """The name under which a node reads a tensor, after its QDQ pairs were added."""
        if not tensor:
            return ""
        if self.home.graph.is_constant(tensor):
            self._constant(tensor, self.home.graph.constant(tensor), "")
            return tensor
        own = self.plan.produced.get(tensor)
        key = self.plan.key_for(node, tensor) if tensor in self.home.graph.float_tensors else None
        if key is None or key is own:
            return _dequantized(tensor, self.home.graph) if own else tensor
        dtype = key.format.dtype
        source = _dequantized(tensor, self.home.graph) if own else tensor
        first = next(other for name, other in self.plan.entries if name == tensor)
        suffix = ("_convert" if own else "") + ("" if first is dtype else f"_{dtype}")
        return self._pair(tensor, source, key, suffix)

    def _written(self, tensor: TensorName) -> str:
        pinned = tensor in self.plan.produced and tensor in self.home.graph.pinned
        return f"{tensor}_QuantizeLinear_Input" if pinned else tensor

    def _pair(self, tensor: TensorName, source: str, key: QuantKey, suffix: str) -> str:
        """Q and DQ on a tensor; returns what DQ writes."""
        base = f"{tensor}{suffix}"
        target = base + "_DequantizeLinear_Output" if suffix or source == tensor else tensor
        if ("pair", base) in self.done:
            return target
        self.done.add(("pair", base))
        scale, zero_point = self._parameters(key, suffix)
        self._add_node("QuantizeLinear", [source, scale, zero_point], base)
        self._add_node("DequantizeLinear", [f"{base}_QuantizeLinear_Output", scale, zero_point], base, target)
        return target

    def _parameters(self, key: QuantKey, suffix: str) -> tuple[str, str]:
        """Names of the scale and zero point of a key; tensors of one root may be converted to unlike formats."""
        params = self.home.planner.params(key)
        is_owner = self.owners.setdefault(f"{key.root}{suffix}", key) == key
        end = suffix if is_owner else f"{suffix}:{key.format}:{key.ranges}"
        scale = self._new_constant(f"{key.root}_scale{end}", params.scale)
        return scale, self._new_constant(f"{key.root}_zero_point{end}", params.zero_point)

    def _constant_activation(self, node: Node, name: TensorName) -> str:
        tensor_format = self.plan.schemes[node.index].activation
        return self._dequantized_weight(name, self.home.weights.weight(name, tensor_format, None))

    # -- constants

    def _dequantized_weight(self, name: TensorName, weight: QuantizedWeight) -> str:
        base = self._variant(name, weight.label)
        source = self.home.free(f"{base}_quantized")
        self._constant(source, weight.values, weight.label)
        self._dequantize_constant(source, base, weight.params, weight.axis)
        return f"{base}_DequantizeLinear_Output"

    def _dequantized_bias(self, name: str, values: npt.NDArray[np.int32], scale: npt.NDArray[np.float32]) -> str:
        inputs = [
            self._new_constant(f"{name}_quantized", values),
            self._new_constant(f"{name}_scale", scale),
            self._new_constant(f"{name}_zero_point", np.zeros(scale.shape, np.int32)),
        ]
        self._add_node("DequantizeLinear", inputs, name, axis=0 if scale.ndim else None)
        return f"{name}_DequantizeLinear_Output"

    def _dequantize_constant(self, source: str, base: str, params: QuantParams, axis: int | None) -> None:
        if ("constant", base) in self.done:
            return
        self.done.add(("constant", base))
        scale = self._new_constant(f"{base}_scale", params.scale)
        zero_point = self._new_constant(f"{base}_zero_point", params.zero_point)
        self._add_node("DequantizeLinear", [source, scale, zero_point], base, axis=axis)

    def _variant(self, name: TensorName, label: str) -> str:
        """A base name for a variant of a constant: the constant's own for the first one."""
        first = self.variants.get(self.home.free(f"{name}_quantized"), label)
        return name if first == label else f"{name}:{label}"

    def _constant(self, name: str, values: npt.NDArray[np.generic], label: str) -> None:
        if values.nbytes < _INLINE_BYTES or values.dtype.kind not in "iufb":
            self._inline(name, values)
        elif name not in self.constants:
            self.constants[name] = values
            self.parts.append(self.home.piece(("external", name, label), lambda: fragments.external(name, values)))
        self.variants.setdefault(name, label)

    def _new_constant(self, name: str, values: npt.NDArray[np.generic]) -> str:
        free = self.home.free(name)
        self._inline(free, values)
        return free

    def _inline(self, name: str, values: npt.NDArray[np.generic]) -> None:
        if ("inline", name) in self.done:
            return
        self.done.add(("inline", name))
        content = values.tobytes() if values.dtype != object else name
        key = ("inline", name, values.dtype.str, values.shape, content)
        self.parts.append(self.home.piece(key, lambda: fragments.initializer(name, values)))

    def add_pinned_constants(self) -> None:
        """Constants that only subgraphs or graph outputs read."""
        for name in self.home.graph.pinned:
            if self.home.graph.is_constant(name):
                self._constant(name, self.home.graph.constant(name), "")

    # -- pieces

    def _add_node(
        self, op_type: str, inputs: Sequence[str], base: str, output: str | None = None, axis: int | None = None
    ) -> None:
        target = output or f"{base}_{op_type}_Output"
        key = (op_type, tuple(inputs), target, axis)
        name = f"{base}_{op_type}"
        self.parts.append(self.home.piece(key, lambda: fragments.node(op_type, inputs, [target], name, axis)))

    def _breaker(self, node: Node, source: str) -> str:
        """A one-input Sum: keeps a float operator between DQ and Q in float under default session options."""
        output = f"{node.name}_float_input"
        key = ("breaker", node.index, source)
        self.parts.append(
            self.home.piece(key, lambda: fragments.node("Sum", [source], [output], f"{node.name}_keep_float"))
        )
        return output

    def _needs_breaker(self, node: Node) -> bool:
        if node.op_type not in _REQUANTIZED:
            return False
        if is_linear(node, self.home.graph):
            return self._comes_from_dq(node.inputs[0]) and self._leads_to_q(node.outputs[0])
        return all(map(self._comes_from_dq, node.inputs[:2]))

    def _comes_from_dq(self, tensor: TensorName) -> bool:
        if tensor in self.plan.produced:
            return True
        producer = self.home.graph.producer.get(tensor)
        passes = producer is not None and kind_of(producer) is Kind.SAME_RANGE
        return passes and producer is not None and self._comes_from_dq(producer.inputs[0])

    def _leads_to_q(self, tensor: TensorName) -> bool:
        readers = self.home.graph.consumers.get(tensor, ())
        return any(self._quantizes(reader, tensor) for reader in readers)

    def _quantizes(self, reader: Node, tensor: TensorName) -> bool:
        if reader.index in self.plan.integer:
            return True
        if kind_of(reader) in (Kind.SAME_RANGE, Kind.CLIPPING):
            passes = reader.inputs[0] == tensor
        else:  # onnxruntime folds a constant summand or factor into the operator before it
            others = [name for name in reader.inputs if name != tensor]
            passes = reader.op_type in ("Add", "Mul") and bool(others) and all(map(self.home.graph.is_constant, others))
        return passes and self._leads_to_q(reader.outputs[0])


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
    return tensor if tensor in graph.pinned else f"{tensor}_DequantizeLinear_Output"


def _bias_vector(node: Node, graph: Graph, weight: TensorName, bias: TensorName) -> npt.NDArray[np.float32]:
    values = graph.constant(bias).reshape(-1)
    axis = channel_axis(node, graph)
    shape = graph.shape(weight)
    assert shape is not None
    n_outputs = shape[axis] if axis is not None else values.size
    return np.broadcast_to(values, (n_outputs,)) if values.size != n_outputs and values.size == 1 else values
