"""Float images whose channels stay in blocks from Conv to Conv: decision 0057.

onnxruntime's float Convs read and write blocks of channels. A Clip behind an Add, a number for each channel, or a sum
with what comes in another layout part them, with a reordering before and behind. A Conv of single places, each channel
alone, keeps them: it is what adds or multiplies, or leaves all as it is and has the activation fused into it. Numbers
that are computed, as of squeeze and excitation, are given at every place by a Resize.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.blocks import Role, constant_of, gate_of, images_of, role_of, takes_blocks
from autoquant.model.graph import Graph, Node
from autoquant.qdq.breakers import comes_from_dq
from autoquant.qdq.parts import Parts
from autoquant.qdq.plan import Plan

__all__ = ["Blocks", "Kept"]

_N_PASSES = 3
"""What enters a sum may be read by an activation before."""
_AT_EVERY_PLACE = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Kept:
    """What is written with Convs, and Resizes, that keep blocks.

    Attributes:
        activations: Nodes behind such a Conv, by index.
        constants: Nodes that become such a Conv, by index.
        joined: What a sum or product reads through such a Conv, behind its index, and gates, which are read through a
            Resize to every place.
    """

    activations: frozenset[int] = frozenset()
    constants: frozenset[int] = frozenset()
    joined: frozenset[tuple[int, TensorName]] = frozenset()


@dataclass(slots=True)
class Blocks:
    """Finds where blocks can be kept in one graph, and writes that.

    Attributes:
        graph: With shapes.
        has_parted: Whether anything can be kept in float.
    """

    graph: Graph
    has_parted: bool = field(init=False)
    _roles: dict[int, Role] = field(init=False)
    _readers: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        roles = ((node.index, role_of(node, self.graph)) for node in self.graph.nodes)
        self._roles = {index: role for index, role in roles if role is not None}
        self._readers = frozenset(node.index for node in self.graph.nodes if takes_blocks(node, self.graph))
        self.has_parted = self.find(Plan({})) != Kept()

    def find(self, plan: Plan, others: Collection[int] = ()) -> Kept:
        """What to write so under a plan: what is between floats on both sides.

        Args:
            plan: What is quantized.
            others: Convs, by index, that are written as something else.
        """
        nodes = [n for n in self.graph.nodes if n.index not in plan.integer | plan.dynamic | plan.absorbed.keys()]
        writers = [n for n in nodes if n.index in self._roles and n.index not in others]
        entries: set[TensorName] = set()
        kept: set[TensorName] = set()
        for _ in range(_N_PASSES):
            kept = self._kept(writers, plan, entries)
        wanted = kept & self._wanted(nodes, kept)
        found = [(self._roles[node.index], node) for node in writers if node.outputs[0] in wanted]
        joined = {(n.index, t) for role, n in found if role is Role.JOINING for t in n.inputs if t in entries}
        gates = ((n.index, gate_of(n, self.graph)) for role, n in found if role is Role.GATED)
        return Kept(
            frozenset(n.index for role, n in found if role is Role.FUSED and not self._is_fused(n)),
            frozenset(n.index for role, n in found if role is Role.CONSTANT),
            frozenset(joined.union((index, gate) for index, gate in gates if gate is not None)),
        )

    def write(self, parts: Parts, node: Node, source: str, target: str) -> None:
        """Add the Conv that an Add, Sub, Mul or Div with a constant becomes, under its name."""
        _, n_channels, *_ = self.graph.shape(node.outputs[0]) or ()
        values: Floats = self.graph.constant(constant_of(node, self.graph)).reshape(-1)
        if node.op_type in ("Add", "Sub"):
            _write(
                parts, str(node.name), source, target, n_channels, summands=values if node.op_type == "Add" else -values
            )
        else:
            factors = values if node.op_type == "Mul" else np.reciprocal(values)
            _write(parts, str(node.name), source, target, n_channels, factors)

    def through(self, parts: Parts, node: Node, tensor: TensorName, source: str) -> str:
        """Add the Conv that leaves a tensor as it is, or the Resize that gives a gate at every place.

        An activation has its own Conv; all sums and products share one, and all products of a size share a Resize.

        Args:
            parts: Of the model.
            node: What reads it.
            tensor: Which one.
            source: Its name there.

        Returns:
            What is written.
        """
        if self._roles[node.index] is Role.GATED:
            return self._everywhere(parts, node, tensor, source)
        is_own = self._roles[node.index] is Role.FUSED
        target = parts.pieces.free(f"{node.outputs[0]}_before" if is_own else f"{tensor}_in_blocks")
        if parts.is_new(("blocks", target)):
            _, n_channels, *_ = self.graph.shape(tensor) or ()
            _write(parts, parts.pieces.free_node(target), source, target, n_channels)
        return target

    def _everywhere(self, parts: Parts, node: Node, gate: TensorName, source: str) -> str:
        _, _, height, width = self.graph.shape(node.outputs[0]) or ()
        target = parts.pieces.free(f"{gate}_at_{height}_{width}")
        if parts.is_new(("blocks", target)):
            scales = parts.new_constant(f"{target}_scales", np.array([1, 1, height, width], np.float32))
            parts.node("Resize", [source, "", scales], [target], parts.pieces.free_node(target), **_AT_EVERY_PLACE)
        return target

    def _kept(self, nodes: Iterable[Node], plan: Plan, entries: set[TensorName]) -> set[TensorName]:
        """Tensors that are in blocks; what is missing beside one in a sum or product is added to the entries."""
        kept: set[TensorName] = set()
        for node in nodes:
            if node.outputs[0] in plan.produced:
                continue
            role, missing = self._roles[node.index], set(images_of(node, self.graph)) - kept
            if role is Role.JOINING and not kept.isdisjoint(node.inputs) and self._can_be_entered(node, plan):
                entries |= {name for name in missing if not comes_from_dq(name, self.graph, plan)}
            if role not in (Role.PASSING, Role.GATED):
                missing -= entries
            if not missing or (role is Role.SOURCE and self._is_source(node, plan)):
                kept.add(node.outputs[0])
        entries -= kept
        return kept

    def _is_source(self, node: Node, plan: Plan) -> bool:
        """Whether a Conv or pool writes blocks; one behind integers might run on them."""
        return node.op_type == "Conv" or not comes_from_dq(node.inputs[0], self.graph, plan)

    def _can_be_entered(self, node: Node, plan: Plan) -> bool:
        """Whether it is a sum or product that nothing reads but what could read blocks."""
        readers = {reader.index for reader in self.graph.consumers.get(node.outputs[0], ())}
        is_read = readers <= (self._readers | self._roles.keys()) - plan.integer - plan.dynamic
        return node.op_type != "Concat" and is_read and node.outputs[0] not in self.graph.pinned

    def _wanted(self, nodes: list[Node], kept: set[TensorName]) -> set[TensorName]:
        """What something reads in blocks."""
        wanted: set[TensorName] = set()
        for node in reversed(nodes):
            if node.index in self._readers or (node.index in self._roles and node.outputs[0] in wanted & kept):
                wanted.update(node.inputs)
        return wanted

    def _is_fused(self, node: Node) -> bool:
        """Whether a Conv is before an activation already, which onnxruntime fuses with it."""
        producer = self.graph.producer.get(node.inputs[0])
        if producer is None or self.graph.only_reader(node.inputs[0]) is None:
            return False
        return producer.op_type == "Conv" or self._roles.get(producer.index) is Role.CONSTANT


def _write(
    parts: Parts,
    name: str,
    source: str,
    target: str,
    n_channels: int,
    factors: Floats | None = None,
    summands: Floats | None = None,
) -> None:
    """A Conv of each channel alone."""
    ones = np.ones(1, np.float32) if factors is None else factors
    weight = np.broadcast_to(ones, n_channels).reshape(-1, 1, 1, 1)
    inputs = [source, parts.new_constant(f"{target}_factors", weight)]
    if summands is not None:
        inputs.append(parts.new_constant(f"{target}_summands", np.broadcast_to(summands, n_channels)))
    parts.node("Conv", inputs, [target], name, group=n_channels, kernel_shape=(1, 1))
