"""From a plan to the bytes of a QDQ model."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import NodeName, TensorName
from autoquant.domain.rewrite import Rewrite, Rewrites
from autoquant.domain.scheme import BiasCorrection, Rounding
from autoquant.model import fragments
from autoquant.model.attentions import Attention, attentions_of
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import (
    Kind,
    activations,
    bias_of,
    channel_axis,
    is_linear,
    kind_of,
    weight_of,
)
from autoquant.qdq.attentions import write_attention
from autoquant.qdq.blocks import Blocks, Kept
from autoquant.qdq.breakers import comes_from_dq, needs_breaker
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.clipped import write_hard_sigmoid
from autoquant.qdq.dynamic import DynamicWriter
from autoquant.qdq.flattened import flattened_products
from autoquant.qdq.gelus import APPROXIMATE, exact_gelus
from autoquant.qdq.groups import JoinedGroups
from autoquant.qdq.pairs import Pairs
from autoquant.qdq.parts import Parts, Pieces
from autoquant.qdq.plan import Plan
from autoquant.qdq.planner import Planner
from autoquant.qdq.ports import Means, Rounder
from autoquant.qdq.residuals import residual_adds
from autoquant.qdq.shifts import Shifts, takes_bias
from autoquant.qdq.swishes import Swish, fused_swishes, swishes_of, write_swish
from autoquant.qdq.tiled import TiledConvs
from autoquant.qdq.weights import QuantizedWeight, Weights, bias_vector, quantize_bias

__all__ = ["Assembler"]

Floats = npt.NDArray[np.float64]

_LINEAR = (Kind.LINEAR, Kind.RECURRENT)
_KERNELS = (*_LINEAR, Kind.ARITHMETIC)


class Assembler:
    """Writes plans of one graph; every serialized piece is made once."""

    def __init__(
        self,
        graph: Graph,
        planner: Planner,
        means: Means,
        rounder: Rounder | None = None,
        unbounded: Collection[TensorName] = frozenset(),
    ) -> None:
        self.graph = graph
        self.planner = planner
        self.weights = Weights(graph, rounder)
        self.shifts = Shifts(graph, means)
        self.dynamic = DynamicWriter(graph, self.weights)
        self.flattened = flattened_products(graph)
        self.pieces = Pieces(graph)
        self.residual_adds = residual_adds(graph)
        self.gelus = exact_gelus(graph)
        self.attentions = attentions_of(graph)
        self.swishes = swishes_of(graph, planner)
        self.norm_sources = frozenset(norm.source for norm in graph.norms)
        self.groups = JoinedGroups(graph)
        self.tiled = TiledConvs(graph, unbounded)
        self.blocks = Blocks(graph)
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
        needless = draft.dropped | plan.absorbed.keys() | {swish.gate.index for swish in draft.swishes.values()}
        needless |= {index for last, each in draft.attentions.items() for index in each.indices - {last}}
        for node in self.graph.nodes:
            if node.index not in needless:
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
    pairs: Pairs = field(init=False)
    kept: Kept = field(init=False)
    dropped: frozenset[int] = field(init=False)
    """Reshapes that products which quantize what they read do without."""
    swishes: Mapping[int, Swish] = field(init=False)
    attentions: Mapping[int, Attention] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = Parts(self.home.pieces)
        self.pairs = Pairs(self.home.graph, self.home.planner, self.plan, self.parts)
        tiled = self.home.tiled.indices if Rewrite.TILED_CONVS in self.home.rewrites else ()
        is_wanted = Rewrite.KEPT_BLOCKS in self.home.rewrites
        self.kept = self.home.blocks.find(self.plan, tiled) if is_wanted else Kept()
        self.swishes = fused_swishes(self.home.swishes, self.home.rewrites, self.home.graph, self.plan)
        flattened = self.home.flattened
        self.dropped = frozenset(each.index for i in flattened.keys() & self.plan.dynamic for each in flattened[i])
        taken = self.plan.integer | self.plan.dynamic | self.dropped
        known = self.home.attentions if Rewrite.FUSED_ATTENTIONS in self.home.rewrites else {}
        self.attentions = {last: each for last, each in known.items() if each.indices.isdisjoint(taken)}

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

    def add(self, node: Node) -> None:
        """The node with what it needs before it and the QDQ pairs behind it."""
        is_integer = node.index in self.plan.integer
        if node.index in self.plan.dynamic:
            self._add_dynamic(node)
        elif is_integer and node.op_type == "HardSigmoid":
            write_hard_sigmoid(self.pairs, node)
        elif is_integer:
            self._add_rewired(node, self._integer_inputs(node), attributes=self._integer_attributes(node))
        else:
            self._add_float(node)

    def add_pinned_constants(self) -> None:
        """Constants that only subgraphs or graph outputs read."""
        for name in self.home.graph.pinned:
            if self.home.graph.is_constant(name):
                self.parts.constant(name, self.home.graph.constant(name), "")

    def _add_dynamic(self, node: Node) -> None:
        first, target, weights = node.inputs[0], node.outputs[0], node.inputs[1:3]
        if node.index in self.home.flattened:
            before, behind = self.home.flattened[node.index]
            first, target = before.inputs[0], behind.outputs[0]
        inputs = ["" if name in weights else self.pairs.read(name, node) for name in (first, *node.inputs[1:])]
        self.home.dynamic.write(self.parts, node, inputs, target, self.plan.schemes[node.index])

    def _add_float(self, node: Node) -> None:
        """A node that runs on floats, kept from what onnxruntime would make of it."""
        is_tiled = Rewrite.TILED_CONVS in self.home.rewrites and node.index in self.home.tiled.indices
        if is_tiled or node.index in self.kept.constants:
            self._add_otherwise(node, self.home.tiled if is_tiled else self.home.blocks)
            return
        if node.index in self.swishes:
            swish = self.swishes[node.index]
            source, target = self.pairs.read(swish.gate.inputs[0], node), self.pairs.written(node.outputs[0])
            write_swish(self.parts, node, swish.rewrite, source, target)
            self.pairs.quantize_written(node.outputs[0])
            return
        if node.index in self.attentions:
            target = self.pairs.written(node.outputs[0])
            write_attention(self.parts, self.home.graph, self.attentions[node.index], self.pairs.read, target)
            self.pairs.quantize_written(node.outputs[0])
            return
        inputs = [self._read_floats(name, node) for name in node.inputs]
        if needs_breaker(node, self.home.graph, self.plan):
            inputs[0] = self.pairs.through_sum(inputs[0], f"{node.name}_float_input", f"{node.name}_keep_float")
        attributes = APPROXIMATE if self._is_approximate(node) else {}
        self._add_rewired(node, inputs, op_type="Sum" if self._is_plain_sum(node) else None, attributes=attributes)

    def _add_otherwise(self, node: Node, writer: TiledConvs | Blocks) -> None:
        """A float operator as others that compute the same of the one activation that it reads."""
        (read,) = (name for name in node.inputs if name and not self.home.graph.is_constant(name))
        writer.write(self.parts, node, self.pairs.read(read, node), self.pairs.written(node.outputs[0]))
        self.pairs.quantize_written(node.outputs[0])

    def _read_floats(self, tensor: TensorName, node: Node) -> str:
        """The name under which a float operator reads a tensor, behind a Conv that keeps blocks where it needs one."""
        read, home = self.pairs.read(tensor, node), self.home
        is_activation = node.index in self.kept.activations and tensor == node.inputs[0]
        if is_activation or (node.index, tensor) in self.kept.joined:
            return home.blocks.through(self.parts, node, tensor, read)
        is_source = node.index in home.graph.norm_nodes and tensor in home.norm_sources
        return self._for_norm(tensor, read) if is_source and comes_from_dq(tensor, home.graph, self.plan) else read

    def _for_norm(self, tensor: TensorName, read: str) -> str:
        """One name for all of a norm, as onnxruntime gives each reader of integers a tensor alone."""
        name, is_new = f"{tensor}_for_norm", self.parts.is_new(("norm", tensor))
        return self.pairs.through_sum(read, name) if is_new else self.parts.pieces.free(name)

    def _is_plain_sum(self, node: Node) -> bool:
        """Whether a float Add before a LayerNormalization is written as Sum, which onnxruntime does not fuse."""
        return Rewrite.PLAIN_SUMS in self.home.rewrites and node.index in self.home.residual_adds

    def _is_approximate(self, node: Node) -> bool:
        """Whether a GELU is beside what is quantized, which is farther from float than the approximation is."""
        beside = self.home.gelus.get(node.index, frozenset())
        is_wanted = Rewrite.TANH_GELUS in self.home.rewrites
        return is_wanted and not beside.isdisjoint(self.plan.integer | self.plan.dynamic)

    def _add_rewired(
        self,
        node: Node,
        inputs: Sequence[str],
        *,
        op_type: str | None = None,
        attributes: Mapping[str, float | str] = MappingProxyType({}),
    ) -> None:
        """The node of the float model with other inputs, and the pairs behind it."""
        outputs = [self.pairs.written(name) for name in node.outputs]
        proto = self.home.graph.model.graph.node[node.index]
        key = ("node", node.index, op_type, tuple(inputs), tuple(outputs), tuple(attributes))
        self.parts.add(key, lambda: fragments.rewired(proto, inputs, outputs, op_type=op_type, **attributes))
        for name in node.outputs:
            self.pairs.quantize_written(name)

    def _integer_attributes(self, node: Node) -> dict[str, float]:
        """Other values of attributes for the integer kernel."""
        n_groups = self._n_groups(node)
        return _integer_attributes(node) if n_groups is None else {"group": n_groups}

    def _n_groups(self, node: Node) -> int | None:
        """Of an integer Conv, where groups are joined."""
        is_wanted = Rewrite.JOINED_GROUPS in self.home.rewrites
        return self.home.groups.n_groups(node, self.plan.schemes[node.index]) if is_wanted else None

    def _integer_inputs(self, node: Node) -> list[str]:
        own = activations(node, self.home.graph)
        inputs = [
            self._constant_activation(node, name)
            if name in own and self.home.graph.is_constant(name)
            else self.pairs.read(name, node)
            for name in (node.inputs if not is_linear(node, self.home.graph) else node.inputs[:1])
        ]
        return inputs + (self._linear_operands(node) if is_linear(node, self.home.graph) else [])

    def _constant_activation(self, node: Node, name: TensorName) -> str:
        tensor_format = self.plan.schemes[node.index].activation
        return self.pairs.weight(name, self.home.weights.weight(name, tensor_format, None))

    def _linear_operands(self, node: Node) -> list[str]:
        found, n_groups = self.home.operands(node, self.plan), self._n_groups(node)
        weight = found.weight
        if n_groups is not None:
            weight = self.home.groups.weight(found.weight_name, weight, node.attributes["group"], n_groups)
        names = [self.pairs.weight(found.weight_name, weight)]
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
            names.append(self.pairs.new_constant(name, integers.values, integers.scale))
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


def _integer_attributes(node: Node) -> dict[str, float]:
    """Other values of attributes for the integer kernel: biases have Gemm's ``beta`` multiplied in.

    Of windows that reach beyond an edge without padding QLinearAveragePool would count places that are none.
    """
    if node.op_type == "Gemm" and "beta" in node.attributes:
        return {"beta": 1.0}
    is_partial = node.attributes.get("count_include_pad", 0) and node.attributes.get("ceil_mode", 0)
    has_pads = any(node.attributes.get("pads", ())) or node.attributes.get("auto_pad", b"NOTSET").startswith(b"SAME")
    return {"count_include_pad": 0} if is_partial and not has_pads else {}
