"""Which nodes run on integers under an assignment, and which tensors carry them."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import NodeName, RegionId, TensorName
from autoquant.domain.scheme import Operators, RangeKind, RangeMethod, Scheme
from autoquant.domain.statistics import CalibrationRange
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import (
    MOVING_KINDS,
    Kind,
    activations,
    can_be_dynamic,
    can_emit_float,
    clip_bounds,
    hard_sigmoid_factors,
    is_linear,
    is_quantizable,
    kind_of,
)
from autoquant.qdq.hard_sigmoids import clipping_hard_sigmoids
from autoquant.qdq.params import QuantParams, activation_params
from autoquant.qdq.plan import Plan, QuantKey
from autoquant.qdq.ports import Ranges
from autoquant.qdq.sharing import Sharing

__all__ = ["Planner", "is_clipped"]

_BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
_FINEST_MEAN, _FINEST_OF_ANY_SIZE = 16, 128
"""Steps of a mean for one of the sum of the integers that it is of, which tell nothing more; QLinearGlobalAveragePool
fails at 256, which ranges that other schemes choose for what it reads must not reach. Where the size of the image is
not known, it may be a single pixel."""


class Planner:
    """Plans assignments of one graph.

    Args:
        graph: The prepared float model.
        op_types: Operators that have an integer kernel on the target.
        ranges: Gives calibration ranges.
        unbounded: Activations that no range covers: what reads or writes them stays float.
    """

    def __init__(
        self,
        graph: Graph,
        op_types: frozenset[str],
        ranges: Ranges,
        unbounded: Collection[TensorName] = frozenset(),
    ) -> None:
        self.graph = graph
        self._ranges = ranges
        self._params: dict[QuantKey, QuantParams] = {}
        known = [node for node in graph.nodes if node.op_type in op_types]
        self._candidates = {
            node.index for node in known if is_quantizable(node, graph) and not _touches(node, graph, unbounded)
        }
        candidates = (node for node in known if node.index in self._candidates)
        self._hard_sigmoids = clipping_hard_sigmoids(graph, candidates)
        self._dynamic = {node.index for node in known if can_be_dynamic(node, graph)}
        self._sharing = Sharing(graph, self.params, self._is_redundant)

    def can_be_integer(self, node: Node) -> bool:
        """Whether it has an integer kernel, and a range for all that it reads and writes."""
        return node.index in self._candidates

    def takes(self, node: Node, scheme: Scheme) -> bool:
        """Whether a scheme may change how a node is written, in whatever assignment."""
        if scheme.is_dynamic:
            return node.index in self._dynamic and (node.op_type != "LSTM" or not scheme.is_blockwise)
        if not self.can_be_integer(node):
            return False
        if kind_of(node) in MOVING_KINDS:
            return True
        return (scheme.operators is Operators.ALL or is_linear(node, self.graph)) and _has_kernel(node, scheme)

    def params(self, key: QuantKey) -> QuantParams:
        """Scale and zero point of a key."""
        if key not in self._params:
            self._params[key] = activation_params(self.range_of(key), key.format)
        return self._params[key]

    def range_of(self, key: QuantKey) -> CalibrationRange:
        """What its integers cover; that of a Softmax is known, and that of a mean over an image is not too narrow.

        QLinearSoftmax multiplies by the integer below 1 / scale: of 1 / 255 as a float that is 254. Values of which a
        HardSigmoid is 0 may be left out where nothing else needs them.
        """
        if key.clipped is not None:
            read = self._hard_sigmoids[key.clipped]
            steps = float(self.params(replace(key, root=key.clipped, clipped=None)).scale) * key.format.dtype.highest
            return CalibrationRange(0.0, steps * read.beta / read.summand)
        return self._range_clipped(key) or self.range_of_values(key)

    def range_of_values(self, key: QuantKey) -> CalibrationRange:
        """The same for integers that leave out no value because it makes no difference."""
        producer = self.graph.producer.get(key.root)
        if producer is not None and producer.op_type == "Softmax":
            return CalibrationRange(0.0, _BELOW_ONE)
        found = self._ranges(key.root, key.format, key.ranges)
        low, high = min(found.low, 0.0), max(found.high, 0.0)
        least = self._least_width(key)
        return found if high - low >= least else CalibrationRange(low, low + least)

    def highest_clipped(self, key: QuantKey) -> npt.NDArray[np.generic]:
        """Of the integers that a HardSigmoid reads, the one at which it is 1, or the last one."""
        params = self.params(key)
        highest = self._hard_sigmoids[key.root].highest(int(params.zero_point))
        return np.array(highest, params.dtype.numpy)

    def _range_clipped(self, key: QuantKey) -> CalibrationRange | None:
        """Where a HardSigmoid has the same integers, clipped; None where it has not."""
        reader = self._hard_sigmoids.get(key.root)
        return reader.range_read(self.range_of_values(key), key.format) if reader is not None else None

    def _least_width(self, key: QuantKey) -> float:
        """Of the range of means over an image, whatever moved or clipped them since; 0 for what is none."""
        pool = self.graph.producer.get(key.root)
        while pool is not None and kind_of(pool) in MOVING_KINDS:
            pool = self.graph.producer.get(pool.inputs[0])
        if pool is None or pool.op_type != "GlobalAveragePool" or pool.index not in self._candidates:
            return 0.0
        sizes = (self.graph.sizes(pool.inputs[0]) or (None,) * 3)[2:]
        finest = _FINEST_OF_ANY_SIZE if None in sizes else _FINEST_MEAN
        read = self._ranges(pool.inputs[0], key.format, RangeMethod(RangeKind.MIN_MAX))
        return (max(read.high, 0.0) - min(read.low, 0.0)) / (finest * math.prod(size or 1 for size in sizes))

    def plan(self, scheme_of: Mapping[NodeName, Scheme]) -> Plan:
        """Decide for every node; nodes without a scheme stay float."""
        schemes = {n.index: scheme_of[n.name] for n in self.graph.nodes if n.name in scheme_of}
        plan = Plan(schemes)
        for node in self.graph.nodes:
            if node.index not in schemes or not self.takes(node, schemes[node.index]):
                continue
            if schemes[node.index].is_dynamic:
                plan.dynamic.add(node.index)
            else:
                self._decide(node, plan)
        self._sharing.share(plan)
        self._prefer_float_outputs(plan)
        for node in self.graph.nodes:
            if node.index in plan.integer and kind_of(node) is not Kind.SAME_RANGE:
                self._enter(node, plan)
        return plan

    def _decide(self, node: Node, plan: Plan) -> None:
        scheme, kind = plan.schemes[node.index], kind_of(node)
        if kind is Kind.SAME_RANGE:
            key = plan.produced.get(node.inputs[0])
            if key and key.format.dtype is scheme.activation.dtype:
                plan.integer.add(node.index)
                plan.produced.update({out: key for out in node.outputs if out in self.graph.float_tensors})
        elif kind is Kind.CLIPPING:
            self._absorb(node, plan)
        else:
            plan.integer.add(node.index)
            plan.produced[node.outputs[0]] = self._own_key(node, plan)

    def _own_key(self, node: Node, plan: Plan) -> QuantKey:
        """Of what an operator with a range of its own writes."""
        scheme, source = plan.schemes[node.index], node.inputs[0]
        written = QuantKey(node.outputs[0], scheme.activation, scheme.ranges)
        if node.op_type != "HardSigmoid":
            return written
        own = plan.produced.get(source)
        read = own if own and own.format.dtype is scheme.activation.dtype else replace(written, root=source)
        if self._range_clipped(read) is None:
            return written
        return replace(read, root=node.outputs[0], clipped=source)

    def _absorb(self, node: Node, plan: Plan) -> None:
        source, target = node.inputs[0], node.outputs[0]
        producer = self.graph.producer.get(source)
        own = plan.produced.get(source)
        if producer is None or own is None or own.root != source or source in self.graph.pinned:
            return
        scheme = plan.schemes[node.index]
        if len(self.graph.consumers[source]) > 1 or scheme.activation != plan.schemes[producer.index].activation:
            return
        key = QuantKey(target, scheme.activation, scheme.ranges)
        if self._is_redundant(node, key):
            plan.absorbed[node.index] = plan.absorbed.get(producer.index, producer.index)
            del plan.produced[source]
            plan.produced[target] = key
        elif producer.index not in plan.absorbed:
            plan.produced[source] = key  # nobody else reads what will be clipped

    def _is_redundant(self, node: Node, key: QuantKey) -> bool:
        """Whether clipping to the integer range already clips as the node does."""
        params = self.params(key)
        scale, zero_point = float(params.scale), int(params.zero_point)
        bounds = clip_bounds(node, self.graph)
        assert bounds is not None, node.name
        low, high = bounds
        above = np.rint(high / scale) + zero_point >= params.dtype.highest
        return bool(np.rint(low / scale) + zero_point <= params.dtype.lowest and above)

    def _prefer_float_outputs(self, plan: Plan) -> None:
        """A Gemm or MatMul writes integers where every reader takes them, or where it would run in float otherwise."""
        wanted: dict[TensorName, bool] = {}
        for node in reversed(self.graph.nodes):
            for out in node.outputs:
                wanted[out] = out not in self.graph.pinned and all(
                    self._takes_integers(reader, plan, wanted) for reader in self.graph.consumers.get(out, ())
                )
        for node in self.graph.nodes:
            if node.index not in plan.integer:
                continue
            passes = kind_of(node) is Kind.SAME_RANGE
            if passes and node.inputs[0] not in plan.produced:
                plan.integer.discard(node.index)
            if (passes and node.index not in plan.integer) or (
                can_emit_float(node, self.graph)
                and not wanted[node.outputs[0]]
                and not self._must_be_integers(node.outputs[0], plan)
            ):
                for out in node.outputs:
                    plan.produced.pop(out, None)

    def _must_be_integers(self, tensor: TensorName, plan: Plan) -> bool:
        """Whether onnxruntime runs the producer of these floats in float.

        It does so where a QuantizeLinear is among other readers, and where the only reader is a Relu or Clip: it looks
        for the QuantizeLinear behind that. A product of 16 bits and a constant behind it become a Gemm whose int32 bias
        has steps so small that it overflows.
        """
        readers = self.graph.consumers.get(tensor, ())
        is_alone = len(readers) == 1 and tensor not in self.graph.pinned
        if is_alone and (kind_of(readers[0]) is Kind.CLIPPING or self._is_bias_of_16_bits(readers[0], tensor, plan)):
            return True
        return any(reader.index in plan.integer and kind_of(reader) is not Kind.SAME_RANGE for reader in readers)

    def _is_bias_of_16_bits(self, reader: Node, product: TensorName, plan: Plan) -> bool:
        """Whether a node adds a constant to a MatMul of two activations of 16 bits."""
        producer = self.graph.producer[product]
        if producer.op_type != "MatMul" or reader.op_type != "Add":
            return False
        is_wide = plan.schemes[producer.index].activation.dtype.bits == 16
        return is_wide and any(map(self.graph.is_constant, reader.inputs))

    def _takes_integers(self, reader: Node, plan: Plan, wanted: dict[TensorName, bool]) -> bool:
        if reader.index in plan.absorbed:
            return True
        if reader.index not in plan.integer:
            return False
        return kind_of(reader) is not Kind.SAME_RANGE or all(wanted.get(out, True) for out in reader.outputs)

    def _enter(self, node: Node, plan: Plan) -> None:
        scheme = plan.schemes[node.index]
        dtype = scheme.activation.dtype
        for tensor in activations(node, self.graph):
            own = plan.produced.get(tensor)
            if not self.graph.is_constant(tensor) and not (own and own.format.dtype is dtype):
                root = own.root if own else tensor
                plan.entries.setdefault((tensor, dtype), QuantKey(root, scheme.activation, scheme.ranges))


def _has_kernel(node: Node, scheme: Scheme) -> bool:
    """Whether the operator can be written for integers of this format.

    A HardSigmoid is written as an Add whose integers have to clip at 0, on a scale of their own.
    """
    used = scheme.activation
    if node.op_type != "HardSigmoid":
        return True
    is_free = used.dtype.bits == 8 and not used.symmetric and not used.power_of_two
    return is_free and hard_sigmoid_factors(node) is not None


def _touches(node: Node, graph: Graph, tensors: Collection[TensorName]) -> bool:
    return any(name in tensors for name in (*activations(node, graph), *node.outputs))


def is_clipped(tensor: TensorName, graph: Graph, region_of: Mapping[NodeName, RegionId]) -> bool:
    """Whether only a Relu or Clip of its producer's region reads a tensor: what is quantized is always behind that.

    The producer is no Relu or Clip itself: of two in a row the first one is looked at by itself.
    """
    producer, readers = graph.producer.get(tensor), graph.consumers.get(tensor, ())
    if producer is None or tensor in graph.pinned or len(readers) != 1 or kind_of(readers[0]) is not Kind.CLIPPING:
        return False
    if kind_of(producer) is Kind.CLIPPING:
        return False
    region = region_of.get(producer.name)
    return region is not None and region == region_of.get(readers[0].name)
