"""An inspection: everything that one look at a model finds."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autoquant.domain.counted import counted
from autoquant.inspection.casts import n_added_casts, nodes_in_float32
from autoquant.inspection.conversions import is_converted_for_nothing
from autoquant.inspection.kernels import DequantizedConstant, Runs, base_op, dequantized_constants, runs_as
from autoquant.inspection.nodes import InspectedNode, inspect_nodes
from autoquant.inspection.pairs import merged_pairs
from autoquant.inspection.products import failing_zero_points, wrong_numbers
from autoquant.inspection.saturation import LARGEST_PAIR, saturating_pairs
from autoquant.inspection.scopes import Scope, scopes
from autoquant.inspection.signed import signed_products
from autoquant.inspection.types import X86
from autoquant.inspection.written import Written
from autoquant.model.bodies import n_body_nodes
from autoquant.model.graph import Graph, Node

__all__ = ["Inspection", "Remark", "inspect_graphs"]

_ROUNDING = 4
"""The accuracy_level of MatMulNBits that rounds activations; all others are float."""

_SIGNED = (
    "reads s8 activations, for which onnxruntime's kernels on x86 are slower than for u8 ones, many times where the"
    " processor lacks AVX-VNNI-INT8: quantize activations to u8"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What the user should know of a node although it runs as written.

    Attributes:
        name: The node.
        text: A sentence without a full stop.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What really runs of a model.

    Attributes:
        nodes: Of the given file, without Q, DQ and constants, in its order; those inside If, Loop and Scan behind them.
        kernels: How often each operator is in the optimised graph and in its bodies, by what it computes on.
        dequantized: Constants that become float again at every inference, or every time that their body runs.
        remarks: What may be slow or wrong although it runs as written.
    """

    nodes: tuple[InspectedNode, ...]
    kernels: Mapping[Runs, Mapping[str, int]]
    dequantized: tuple[DequantizedConstant, ...]
    remarks: tuple[Remark, ...]

    @property
    def unlike_written(self) -> tuple[InspectedNode, ...]:
        """Nodes that do not run as the file wants."""
        return tuple(node for node in self.nodes if not node.is_as_written)


def inspect_graphs(given: Graph, optimized: Graph, *, ep: str, machine: str, is_saturating: bool) -> Inspection:
    """Compare a file with what onnxruntime makes of it.

    Args:
        given: The file, its nodes named uniquely, constants as initializers, types inferred.
        optimized: What onnxruntime runs, with the values of its constants where kernels saturate.
        ep: Execution provider.
        machine: ``platform.machine()``.
        is_saturating: Whether its kernels add products of u8 and s8 in 16 bits.
    """
    found = {scope.path: scope for scope in scopes(given, optimized)}
    nodes = {path: tuple(inspect_nodes(scope, ep=ep, machine=machine)) for path, scope in found.items()}
    remarks = [remark for path, inside in nodes.items() for remark in _remarks(found[path], inside)]
    if ep == "cpu":
        remarks += _cast(found.values())
    if ep == "cpu" and machine in X86:
        remarks += [Remark(name=name, text=_SIGNED) for scope in found.values() for name in signed_products(scope)]
    return Inspection(
        nodes=tuple(node for inside in nodes.values() for node in inside),
        kernels=_kernels((found[path], inside) for path, inside in nodes.items()),
        dequantized=tuple(constant for scope in found.values() for constant in _dequantized(scope)),
        remarks=(*remarks, *(_saturating(found.values()) if is_saturating else ())),
    )


def _kernels(found: Iterable[tuple[Scope, Sequence[InspectedNode]]]) -> dict[Runs, dict[str, int]]:
    """What a kernel computes on is sometimes known from the given node only."""
    counters: dict[Runs, Counter[str]] = {runs: Counter() for runs in Runs}
    for scope, nodes in found:
        runs_of = {node.name: node.runs for node in nodes}
        for kernel in scope.optimized.nodes:
            is_reorder = kernel.index in scope.matching.reorders
            runs = Runs.REORDER if is_reorder else runs_as(kernel, scope.optimized)
            leader = scope.matching.leader.get(kernel.index)
            if runs is Runs.FLOAT and leader is not None:
                runs = runs_of.get(scope.place(leader.name), runs)
            counters[runs][kernel.op_type] += 1
    return {runs: dict(counter.most_common()) for runs, counter in counters.items() if counter}


def _dequantized(scope: Scope) -> Iterator[DequantizedConstant]:
    for constant in dequantized_constants(scope.optimized):
        yield replace(
            constant,
            tensor=scope.place_of_constant(constant.tensor),
            readers=tuple(map(scope.place, constant.readers)),
        )


def _remarks(scope: Scope, nodes: Sequence[InspectedNode]) -> Iterator[Remark]:
    by_name = {scope.place(node.name): node for node in scope.given.nodes}
    for found in nodes:
        yield from (Remark(name=found.name, text=text) for text in _texts(found, by_name[found.name], scope))
    yield from _merged_pairs(scope)
    for node in scope.gone:
        yield Remark(
            name=scope.place(node.name),
            text=f"what is inside it ({counted(n_body_nodes(scope.given, node), 'node')}) is not inspected: onnxruntime"
            f" took the {node.op_type} away, or put one of its bodies in its place",
        )
    yield from _calls(scope)


def _calls(scope: Scope) -> Iterator[Remark]:
    functions = {f"{function.domain}:{function.name}": function for function in scope.given.model.functions}
    for node in (node for node in scope.given.nodes if node.op_type in functions):
        yield Remark(
            name=scope.place(node.name),
            text=f"what is inside it ({counted(len(functions[node.op_type].node), 'node')}) is not inspected: function"
            f" '{base_op(node)}' cannot be put in place of its calls",
        )


def _texts(found: InspectedNode, node: Node, scope: Scope) -> Iterator[str]:
    """Of one node, with what was found of it."""
    if found.written is Written.PARTLY and found.causes:
        yield f"stays in float, partly quantized: {'; '.join(found.causes)}"
    if found.written is Written.FLOAT and found.runs is Runs.FLOAT and is_converted_for_nothing(node, scope):
        yield (
            "its weight is not quantized in the file, so it stays in float, and its input is quantized and dequantized"
            " for nothing: quantize the weight too, or leave the input in float"
        )
    if found.runs is Runs.INTEGER and found.fused_into is None:
        yield from wrong_numbers(node, scope.given)
    yield from failing_zero_points(node, scope.given)
    if found.kernel == "ConvInteger":
        yield (
            "ConvInteger is not fused with what is around it and is usually slower than float: quantize Conv statically"
        )
    if found.kernel == "MaxPool" and found.runs is Runs.INTEGER:
        yield (
            "runs on integers in a kernel that is much slower than the float one, as NhwcMaxPool behind an integer"
            " convolution is not: quantize the convolution before it too, or keep it in float by a Sum of one input"
            " between it and the QuantizeLinear behind it"
        )
    if found.kernel == "com.microsoft:QLinearAveragePool":
        yield (
            "QLinearAveragePool is slow, at times slower than float with its conversions: keep it in float, or write it"
            " as a depthwise Conv with weights of 1 / n before quantizing, as a search does behind convolutions"
        )
    if found.kernel == "com.microsoft:MatMulNBits" and found.fused_into is None:
        yield _weight_only(node)


def _weight_only(node: Node) -> str:
    """The session option counts for what onnxruntime makes of Q/DQ, the attribute for what the file has."""
    if base_op(node) != "MatMulNBits":
        return (
            "the weight-only kernel rounds activations to 8 bits unless the session option"
            " session.qdq_matmulnbits_accuracy_level is 0 or 1"
        )
    level = node.attributes.get("accuracy_level", 0)
    if level == _ROUNDING:
        return f"the weight-only kernel rounds activations to 8 bits (accuracy_level {level}), 0 computes in float"
    faster = f"{_ROUNDING} rounds activations to 8 bits and may be faster"
    return f"the weight-only kernel computes in float (accuracy_level {level}), {faster}"


def _cast(found: Collection[Scope]) -> Iterator[Remark]:
    """One text for all nodes, so that they are one finding."""
    n_casts = sum(map(n_added_casts, found))
    for name in (name for scope in found if n_casts for name in nodes_in_float32(scope)):
        yield Remark(
            name=name,
            text=f"float16 is computed in float32 here, between Casts that onnxruntime adds ({n_casts} in all): use a"
            " float32 model",
        )


def _saturating(found: Iterable[Scope]) -> Iterator[Remark]:
    """One text for all nodes, so that they are one finding."""
    pairs = [pair for scope in found for pair in saturating_pairs(scope)]
    largest = max((n for _, n in pairs), default=0)
    for name, _ in pairs:
        yield Remark(
            name=name,
            text=(
                "kernels here add two products of u8 and s8 in 16 bits, as on x86-64 without VNNI, which these weights"
                f" can saturate (two neighbours sum up to {largest}, {LARGEST_PAIR} fits): outputs may be wrong here,"
                " right elsewhere; search here, quantize with reduce_range=True or u8 weights, or set"
                " session.x64quantprecision=1, which does not help QLinearMatMul in a file of opset 21 or later"
            ),
        )


def _merged_pairs(scope: Scope) -> Iterator[Remark]:
    for node in merged_pairs(scope.given):
        yield Remark(
            name=scope.place(node.name),
            text="two Q/DQ pairs with different parameters in a row: onnxruntime drops one of them and picks new"
            " parameters, so numbers change; use the same ones or session.disable_double_qdq_remover=1",
        )
