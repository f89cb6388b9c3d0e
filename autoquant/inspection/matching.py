"""Which kernel of the optimised graph computes each node of the given file."""

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass

from autoquant.domain.region import NodeName, TensorName
from autoquant.inspection.kernels import INTEGER_DTYPES, MOVING, Runs, base_op, runs_as
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import LINEAR
from autoquant.model.optimized import ADDED_CAST, is_integer_op, original_name
from autoquant.model.twins import twins_of

__all__ = ["Matching", "match"]

_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")
_ABSORBED = ("QuantizeLinear", "Relu", "Clip")
_BLOCKED_CONV = "com.microsoft.nchwc:Conv"
_SUMMED = 3
"""The input of that kernel which it adds to its result."""
_SUMS = ("Add", "Sum")
_UNFUSING = MOVING | {"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LogSoftmax", "Softmax", "Upsample"}
"""Kernels that onnxruntime fuses with nothing but what moves values."""
_MOVED = MOVING | {"Identity", "Pad"}
_CAST_FROM = ("float16", "float32", None)
"""What the Casts read that onnxruntime adds around float16."""
_PRODUCTS = ("Conv", "Gemm", "MatMul")
_VALUES = INTEGER_DTYPES | {"float16", "bfloat16", "float32", "float64", "int32"}
"""Types of activations and of the sums of integer products, not those of shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """The two graphs side by side.

    Attributes:
        kernel: For each given node, by index, the kernel that computes it; folded and removed nodes are left out.
        leader: For each kernel, by index, the given node that it is the kernel of; others are fused into that one.
        reorders: Kernels, by index, that onnxruntime added to change the layout.
    """

    kernel: Mapping[int, Node]
    leader: Mapping[int, Node]
    reorders: frozenset[int]


def match(given: Graph, optimized: Graph) -> Matching:
    """Match by name, by output tensor, and by what lies between: onnxruntime names kernels in all these ways."""
    transposes = {name for n in given.nodes if n.op_type == "Transpose" for name in (n.name, *n.outputs)}
    reorders = frozenset(node.index for node in optimized.nodes if _is_reorder(node, optimized, transposes))
    kernel, named = _anchors(given, optimized, reorders)
    _own_what_follows(given, kernel)
    _own_twins(given, kernel)
    _own_what_is_between(given, optimized, kernel)
    _absorb(given, kernel)
    return Matching(kernel=kernel, leader=_leaders(given, kernel, named), reorders=reorders)


def _is_reorder(node: Node, optimized: Graph, transposes: Collection[str]) -> bool:
    """Whether onnxruntime added it; what the file transposes keeps its name or its output."""
    if node.op_type == "Transpose":
        return original_name(node.name) not in transposes and node.outputs[0] not in transposes
    return runs_as(node, optimized) is Runs.REORDER


def _anchors(given: Graph, optimized: Graph, reorders: frozenset[int]) -> tuple[dict[int, Node], dict[int, Node]]:
    """Given nodes that a kernel has the name of, or that write a tensor which a kernel writes."""
    by_name = {node.name: node for node in given.nodes}
    passing = reorders | {node.index for node in optimized.nodes if _is_added_cast(node, optimized, by_name)}
    kernel: dict[int, Node] = {}
    named: dict[int, Node] = {}
    for node in optimized.nodes:
        found = by_name.get(node.name) or by_name.get(NodeName(original_name(node.name)))
        if found is not None and node.index not in passing and found.index not in kernel:
            named[node.index] = found
            kernel[found.index] = node
    for node in optimized.nodes:
        computing = _before(node, optimized, passing)
        for tensor in (*node.outputs, original_name(node.name)):
            found = given.producer.get(TensorName(tensor)) or given.producer.get(TensorName(original_name(tensor)))
            if found is not None and computing is not None:
                kernel.setdefault(found.index, computing)
    _own_what_is_read(given, optimized, kernel, passing)
    return kernel, named


def _is_added_cast(node: Node, optimized: Graph, given: Container[NodeName]) -> bool:
    """Whether onnxruntime added it; one that reads integers does what a Cast of the file did too."""
    is_named_so = node.name.startswith(ADDED_CAST) and node.name not in given
    return node.op_type == "Cast" and is_named_so and optimized.dtype(node.inputs[0]) in _CAST_FROM


def _before(node: Node, optimized: Graph, passing: Container[int]) -> Node | None:
    """The kernel whose values a reorder or an added Cast passes on."""
    while node.index in passing:
        source = optimized.producer.get(node.inputs[0])
        if source is None:
            return None
        node = source
    return node


def _own_what_is_read(given: Graph, optimized: Graph, kernel: dict[int, Node], passing: Container[int]) -> None:
    """Kernels with names of no node, as of a function's body, compute what their readers read in the file."""
    owned = {node.index for node in kernel.values()}
    for index in sorted(kernel, reverse=True):
        reader, reading = given.nodes[index], kernel[index]
        if base_op(reader) != base_op(reading):
            continue
        for tensor, computed in zip(reader.inputs, reading.inputs, strict=False):
            before, source = given.producer.get(tensor), optimized.producer.get(computed)
            computing = _before(source, optimized, passing) if source is not None else None
            if before is not None and computing is not None and computing.index not in owned:
                kernel.setdefault(before.index, computing)


def _own_what_follows(given: Graph, kernel: dict[int, Node]) -> None:
    """A convolution of a blocked layout may keep its name where a sum and an activation are put into it."""
    firsts: dict[int, Node] = {}
    for index in sorted(kernel):
        firsts.setdefault(kernel[index].index, given.nodes[index])
    for first in firsts.values():
        node, conv = first, kernel[first.index]
        for ops in _fused_behind(conv, base_op(node)) if conv.op_type == _BLOCKED_CONV else ():
            behind = given.only_reader(node.outputs[0])
            if behind is None or base_op(behind) not in ops or kernel.setdefault(behind.index, conv) is not conv:
                break
            node = behind


def _fused_behind(conv: Node, op: str) -> Iterator[tuple[str, ...]]:
    """Operators that a convolution computes, one after the other, behind a node of the file that it computes."""
    activation = conv.attributes.get("activation", b"").decode()
    if op == activation:
        return
    if any(conv.inputs[_SUMMED:]) and op not in _SUMS:
        yield _SUMS
    if activation:
        yield (activation,)


def _own_twins(given: Graph, kernel: dict[int, Node]) -> None:
    """Of nodes that compute the same of the same onnxruntime keeps one, which computes the others too."""
    twins = [pair for pair in twins_of(given).items() if base_op(pair[1]) not in _CONVERSIONS]
    for index, first in twins:
        if index in kernel:
            kernel.setdefault(first.index, kernel[index])
    for index, first in twins:
        if first.index in kernel:
            kernel.setdefault(index, kernel[first.index])


def _own_what_is_between(given: Graph, optimized: Graph, kernel: dict[int, Node]) -> None:
    """A fused kernel computes all that leads to its outputs, up to what another kernel or a QuantizeLinear writes.

    Constants are not computed by it: those of the file, and those that onnxruntime has folded, as it knows more shapes.
    """
    for index in list(kernel):
        if base_op(kernel[index]) in _CONVERSIONS:
            continue
        waiting = [given.nodes[index]]
        while waiting:
            for before in _producers(waiting.pop(), given):
                is_constant = before.index in given.constant_nodes or any(map(optimized.is_constant, before.outputs))
                if is_constant or not _is_fused(before, kernel[index], kernel):
                    continue
                if base_op(before) != "Identity":
                    kernel[before.index] = kernel[index]
                waiting.append(before)


def _is_fused(before: Node, into: Node, kernel: Mapping[int, Node]) -> bool:
    """Whether a node is computed by the kernel of what it leads to."""
    if before.index in kernel or base_op(before) == "QuantizeLinear":
        return False
    return base_op(into) not in _UNFUSING or base_op(before) in _MOVED


def _producers(node: Node, given: Graph) -> Iterator[Node]:
    for tensor in node.inputs:
        if tensor in given.producer and given.dtype(tensor) in (*_VALUES, None):
            yield given.producer[tensor]


def _absorb(given: Graph, kernel: dict[int, Node]) -> None:
    """What is left of Q, Relu and Clip is in the kernel before."""
    for node in given.nodes:
        if node.index in kernel or base_op(node) not in _ABSORBED:
            continue
        before = given.producer.get(node.inputs[0])
        if before is not None and before.index in kernel and base_op(kernel[before.index]) not in _CONVERSIONS:
            kernel[node.index] = kernel[before.index]


def _leaders(given: Graph, kernel: Mapping[int, Node], named: Mapping[int, Node]) -> dict[int, Node]:
    owned: dict[int, list[Node]] = {}
    for index in sorted(kernel):
        owned.setdefault(kernel[index].index, []).append(given.nodes[index])
    return {i: _leader(base_op(kernel[nodes[0].index]), nodes, named.get(i)) for i, nodes in owned.items()}


def _leader(op: str, nodes: list[Node], named: Node | None) -> Node:
    """The product in a product, else the node of that operator: kernels may be named after another one or an output."""
    computing = [node for node in nodes if base_op(node) not in _CONVERSIONS] or nodes
    if any(product in op for product in _PRODUCTS):
        computing = [node for node in computing if _is_product(node)] or computing
    alike = [node for node in computing if base_op(node) in op or op in base_op(node)]
    if named is not None and named in (alike or computing):
        return named
    linear = [node for node in computing if base_op(node) in LINEAR]
    return (alike or linear or computing[-1:])[0]


def _is_product(node: Node) -> bool:
    return base_op(node) in LINEAR or is_integer_op(base_op(node))
