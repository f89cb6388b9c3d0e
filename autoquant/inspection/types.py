"""Element types as an integer kernel meets them: onnxruntime changes signed ones on x86."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoquant.inspection.kernels import base_op
from autoquant.inspection.sources import dequantizer
from autoquant.inspection.written import output_quantizations, quantization_of, quantizers_behind
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import LINEAR

__all__ = ["X86", "type_causes", "types_that_differ"]

X86 = ("x86_64", "AMD64", "amd64", "i386", "i686")
"""What ``platform.machine()`` says where onnxruntime makes signed activations unsigned (QDQS8ToU8Transformer)."""


@dataclass(frozen=True, slots=True)
class _Meeting:
    """One quantized tensor at a node: its type in the file and at run time, and why it stays signed."""

    written: str
    at_run_time: str
    stays: str = ""


def type_causes(node: Node, positions: Sequence[int], graph: Graph, machine: str) -> Iterator[str]:
    """Whether types of activations and outputs differ when onnxruntime chooses the kernel.

    Args:
        node: Runs in float.
        positions: Of the inputs whose types must equal that of the output.
        graph: The given file.
        machine: ``platform.machine()``.
    """
    entering = [_input(node, i, graph, machine in X86) for i in positions if dequantizer(node.inputs[i], graph)]
    leaving = [_output(q, graph, machine in X86) for tensor in node.outputs for q in quantizers_behind(tensor, graph)]
    meetings = (*entering, *leaving)
    stays = next((meeting.stays for meeting in meetings if meeting.stays), "")
    are_unlike = len({meeting.at_run_time for meeting in meetings}) > 1
    if not are_unlike and not (stays and base_op(node) in LINEAR):
        return
    if stays and {meeting.written for meeting in meetings} == {"int8"}:
        outcome = "so types differ" if are_unlike else "and the integer kernel takes unsigned ones only"
        yield (
            f"s8 {base_op(node)}: on x86 onnxruntime makes signed activations unsigned, but {stays}, {outcome};"
            " use u8 activations"
        )
    else:
        types = [", ".join(sorted({meeting.written for meeting in side})) for side in (entering, leaving)]
        yield f"input and output types differ ({types[0]} in, {types[1]} out)"


def types_that_differ(kernel: Node, optimized: Graph) -> Iterator[str]:
    """Whether types at a float kernel of the optimised graph differ, which the file alone does not always tell.

    Seen in s8s8 models: onnxruntime moves Transposes first, and makes those activations unsigned that are left with one
    reader then.
    """
    before = [dequantizer(name, optimized) for name in kernel.inputs]
    entering = {quantization_of(dq, optimized).dtype for dq in before if dq and not optimized.is_known(dq.inputs[0])}
    leaving = {quantization.dtype for quantization in output_quantizations(kernel, optimized)}
    if len(entering | leaving) > 1:
        yield (
            "onnxruntime makes some signed activations unsigned and others not, so types differ at its"
            f" {kernel.op_type} ({', '.join(sorted(entering))} in, {', '.join(sorted(leaving))} out);"
            " use u8 activations"
        )


def _input(node: Node, position: int, graph: Graph, is_x86: bool) -> _Meeting:
    dq = dequantizer(node.inputs[position], graph)
    assert dq is not None
    q = graph.producer.get(dq.inputs[0])
    if graph.is_known(dq.inputs[0]):
        return _meeting(dq, graph, is_x86, f"the constant at input {position} is not changed")
    if q is None:
        return _meeting(dq, graph, is_x86, f"the graph input '{dq.inputs[0]}' is not changed")
    return _meeting(dq, graph, is_x86, _shared(q, graph))


def _output(q: Node, graph: Graph, is_x86: bool) -> _Meeting:
    return _meeting(q, graph, is_x86, _shared(q, graph))


def _meeting(node: Node, graph: Graph, is_x86: bool, stays: str) -> _Meeting:
    dtype = quantization_of(node, graph).dtype
    if not is_x86 or dtype != "int8":
        return _Meeting(dtype, dtype)
    return _Meeting(dtype, dtype if stays else "uint8", stays)


def _shared(q: Node, graph: Graph) -> str:
    """Only a pair of one Q and one DQ is changed, and each reader gets a DQ of its own before that."""
    n_readers = 0
    for dq in graph.consumers.get(q.outputs[0], ()):
        n_reads = sum(reader.inputs.count(dq.outputs[0]) for reader in graph.consumers.get(dq.outputs[0], ()))
        n_readers += max(1, n_reads + (dq.outputs[0] in graph.outputs))
    return f"not '{q.inputs[0]}', which has {n_readers} readers" if n_readers > 1 else ""
