"""The nodes of the given file and what they became."""

from collections.abc import Iterator
from dataclasses import dataclass

from autoquant.domain.region import NodeName
from autoquant.inspection.causes import UNKNOWN, causes_of, has_kernel
from autoquant.inspection.kernels import MOVING, Runs, base_op, runs_as, telling_tensors
from autoquant.inspection.products import fused_bias_causes
from autoquant.inspection.scopes import Scope
from autoquant.inspection.sources import dequantizer
from autoquant.inspection.types import types_that_differ
from autoquant.inspection.written import Written, is_conversion, written_as
from autoquant.model.graph import Graph, Node
from autoquant.model.optimized import is_integer_op

__all__ = ["InspectedNode", "inspect_nodes"]

_REQUANTIZED = (
    "onnxruntime quantizes its float weight itself, per tensor to s8 (WeightBiasQuantization), because a"
    " DequantizeLinear is before it and a QuantizeLinear behind; a Sum of one input between them, or the session option"
    " optimization.disable_specified_optimizers=WeightBiasQuantization, keeps it in float"
)
_REQUANTIZED_FLOAT = (
    "onnxruntime quantizes its float weight itself (WeightBiasQuantization) and dequantizes it at every inference:"
    " there is no integer kernel here, so accuracy is lost for nothing"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedNode:
    """One node of the given file; Q, DQ and constants are no such.

    Attributes:
        name: Its name, one given where the file has none; inside If, Loop and Scan behind where that is, as in
            ``outer/then_branch/conv``.
        op_type: Operator, with the domain before it unless that is ONNX's own.
        written: How the file wants it to run.
        runs: How it runs.
        kernel: Operator that computes it, None where nothing is left of it.
        fused_into: The node whose kernel computes it too.
        is_as_written: Whether it runs as the file wants, which is not clear of one that is partly quantized.
        causes: Why it does not, or why it stays in float although it is partly quantized.
    """

    name: NodeName
    op_type: str
    written: Written
    runs: Runs
    kernel: str | None
    fused_into: NodeName | None
    is_as_written: bool
    causes: tuple[str, ...]


def inspect_nodes(scope: Scope, *, ep: str, machine: str) -> Iterator[InspectedNode]:
    """Every node of one graph of the given file in its order.

    Args:
        scope: The graph, its nodes named uniquely, and what onnxruntime runs of it.
        ep: Execution provider; causes are known for the CPU's.
        machine: ``platform.machine()``.
    """
    given, optimized, matching = scope.given, scope.optimized, scope.matching
    for node in given.nodes:
        if is_conversion(node):
            continue
        kernel = matching.kernel.get(node.index)
        if kernel is not None and runs_as(kernel, optimized) is Runs.CONVERSION:
            kernel = None  # its output kept its name, as that of a Q or DQ
        leader = matching.leader[kernel.index] if kernel is not None else node
        written = written_as(node, given)
        runs = _runs(node, kernel, given, optimized, node.index in given.constant_nodes)
        causes = _causes(node, kernel, leader is node, written, runs, given, optimized)
        if causes == (UNKNOWN,) and ep == "cpu" and runs in (Runs.FLOAT, Runs.WEIGHT_ONLY):
            causes = causes_of(node, given, written, machine)
            if causes == (UNKNOWN,) and kernel is not None:
                seen = (*fused_bias_causes(node, kernel, optimized), *types_that_differ(kernel, optimized))
                causes = seen or causes
        yield InspectedNode(
            name=scope.place(node.name),
            op_type=node.op_type,
            written=written,
            runs=runs,
            kernel=kernel.op_type if kernel is not None else None,
            fused_into=scope.place(leader.name) if leader is not node else None,
            is_as_written=not causes or written is Written.PARTLY,
            causes=causes,
        )


def _runs(node: Node, kernel: Node | None, given: Graph, optimized: Graph, is_constant: bool) -> Runs:
    if kernel is None:
        return Runs.FOLDED if is_constant else Runs.REMOVED
    runs = runs_as(kernel, optimized)
    types = [dtype for name in telling_tensors(node) if name and (dtype := given.dtype(name))]
    return Runs.OTHER if runs is Runs.FLOAT and types and not any("float" in dtype for dtype in types) else runs


def _causes(
    node: Node, kernel: Node | None, is_leader: bool, written: Written, runs: Runs, given: Graph, optimized: Graph
) -> tuple[str, ...]:
    """Why a node does not run as written; UNKNOWN where the surroundings in the file must tell; none where it does."""
    if written is Written.FLOAT and kernel is not None and is_leader:
        return _float_causes(node, kernel, runs, given, optimized)
    expected = {
        Written.FLOAT: frozenset(Runs),
        Written.PARTLY: frozenset(Runs) - ({Runs.FLOAT} if has_kernel(node) else set()),
        Written.QUANTIZED: frozenset({Runs.INTEGER, Runs.CONTROL, Runs.FOLDED, Runs.REMOVED, Runs.OTHER}),
        Written.WEIGHT_ONLY: frozenset(Runs) - {Runs.FLOAT},
        Written.OPERATOR: frozenset({Runs.INTEGER, Runs.DYNAMIC, Runs.FOLDED, Runs.REMOVED}),
        Written.DYNAMIC: frozenset({Runs.DYNAMIC, Runs.INTEGER, Runs.FOLDED}),
    }
    return () if runs in expected[written] else (UNKNOWN,)


def _float_causes(node: Node, kernel: Node, runs: Runs, given: Graph, optimized: Graph) -> tuple[str, ...]:
    has_float_weight = len(node.inputs) > 1 and given.is_known(node.inputs[1])
    if base_op(node) in MOVING:
        return ()
    if runs is Runs.INTEGER and is_integer_op(base_op(kernel)):
        return (_REQUANTIZED if has_float_weight else UNKNOWN,)
    if has_float_weight and runs is Runs.FLOAT and len(kernel.inputs) > 1:
        dq = dequantizer(kernel.inputs[1], optimized)
        if dq is not None and optimized.is_constant(dq.inputs[0]):
            return (_REQUANTIZED_FLOAT,)
    return ()
