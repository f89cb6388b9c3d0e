"""An inspection: everything that one look at a model finds."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autoquant.inspection.kernels import DequantizedConstant, Runs, base_op, dequantized_constants, runs_as
from autoquant.inspection.matching import Matching, match
from autoquant.inspection.nodes import InspectedNode, inspect_nodes
from autoquant.inspection.products import wrong_numbers
from autoquant.inspection.written import Written, dequantizer, quantization_of
from autoquant.model.graph import Graph

__all__ = ["Inspection", "Remark", "inspect_graphs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What the user should know of a node although it runs as written.

    Attributes:
        name: The node; empty where the whole model is meant.
        text: A sentence without a full stop.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What really runs of a model.

    Attributes:
        nodes: Of the given file, without Q, DQ and constants, in its order.
        kernels: How often each operator is in the optimised graph, by what it computes on.
        dequantized: Constants that become float again at every inference.
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


def inspect_graphs(given: Graph, optimized: Graph, *, ep: str, machine: str) -> Inspection:
    """Compare a file with what onnxruntime makes of it.

    Args:
        given: The file, its nodes named uniquely, constants as initializers, types inferred.
        optimized: What onnxruntime runs.
        ep: Execution provider.
        machine: ``platform.machine()``.
    """
    matching = match(given, optimized)
    nodes = tuple(inspect_nodes(given, optimized, matching, ep=ep, machine=machine))
    return Inspection(
        nodes=nodes,
        kernels=_kernels(optimized, matching, nodes),
        dequantized=tuple(dequantized_constants(optimized)),
        remarks=tuple(_remarks(given, nodes)),
    )


def _kernels(optimized: Graph, matching: Matching, nodes: tuple[InspectedNode, ...]) -> dict[Runs, dict[str, int]]:
    """What a kernel computes on is sometimes known from the given node only."""
    runs_of = {node.name: node.runs for node in nodes}
    found: dict[Runs, Counter[str]] = {runs: Counter() for runs in Runs}
    for kernel in optimized.nodes:
        runs = Runs.REORDER if kernel.index in matching.reorders else runs_as(kernel, optimized)
        leader = matching.leader.get(kernel.index)
        if runs is Runs.FLOAT and leader is not None:
            runs = runs_of.get(leader.name, runs)
        found[runs][kernel.op_type] += 1
    return {runs: dict(counter.most_common()) for runs, counter in found.items() if counter}


def _remarks(given: Graph, nodes: tuple[InspectedNode, ...]) -> Iterator[Remark]:
    by_name = {node.name: node for node in given.nodes}
    for found in nodes:
        if found.written is Written.PARTLY and found.causes:
            yield Remark(name=found.name, text=f"stays in float, partly quantized: {'; '.join(found.causes)}")
        if found.runs is Runs.INTEGER and found.fused_into is None:
            yield from (Remark(name=found.name, text=text) for text in wrong_numbers(by_name[found.name], given))
        if found.kernel == "ConvInteger":
            yield Remark(
                name=found.name,
                text="ConvInteger is not fused with what is around it and is usually slower than float: quantize Conv"
                " statically",
            )
        if found.kernel == "com.microsoft:MatMulNBits" and found.op_type != found.kernel:
            yield Remark(
                name=found.name,
                text="the weight-only kernel rounds activations to 8 bits unless the session option"
                " session.qdq_matmulnbits_accuracy_level is 0 or 1",
            )
    yield from _double_pairs(given)
    if given.n_subgraph_nodes:
        yield Remark(name="", text=f"{given.n_subgraph_nodes} nodes inside If, Loop or Scan are not inspected")


def _double_pairs(given: Graph) -> Iterator[Remark]:
    for node in given.nodes:
        if base_op(node) != "QuantizeLinear":
            continue
        before = dequantizer(node.inputs[0], given)
        if before is None or given.is_known(before.inputs[0]):
            continue
        first, second = quantization_of(before, given), quantization_of(node, given)
        if first.dtype == second.dtype and first.dtype.endswith("int8") and not first.is_equal(second):
            yield Remark(
                name=node.name,
                text="two Q/DQ pairs with different parameters in a row: onnxruntime drops one of them and picks new"
                " parameters, so numbers change; use the same ones or session.disable_double_qdq_remover=1",
            )
