"""What keeps Conv, Gemm and MatMul from running on integers, or makes their integers wrong."""

from collections.abc import Iterator

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.inspection.kernels import MOVING, base_op
from autoquant.inspection.sources import dequantizer
from autoquant.inspection.written import Quantization, input_quantizations, weight_shape
from autoquant.model.graph import Graph, Node

__all__ = ["failing_zero_points", "fused_bias_causes", "product_causes", "weight_only_causes", "wrong_numbers"]

_AXES = {"Conv": 0, "Gemm": 1, "MatMul": 1}
"""Where output channels are in a weight that is not transposed."""
_MATRIX = 2
_BIAS_TOLERANCE = 0.01
"""The relative difference up to which onnxruntime takes a bias scale for the product of the others."""


def product_causes(node: Node, graph: Graph, inputs: dict[int, Quantization]) -> Iterator[str]:
    """What is wrong with bias, attributes or channel axis of a linear operator."""
    bias = inputs.get(2)
    if bias is not None and bias.dtype != "int32":
        yield f"the bias is quantized to {bias.dtype}, the integer kernel takes int32"
    elif base_op(node) == "Conv" and _bias_difference(inputs) > _BIAS_TOLERANCE:
        yield "bias scale differs from input scale x weight scale by more than 1 %"
    elif bias is None and len(node.inputs) > 2 and node.inputs[2]:
        yield from _float_bias_causes(node.inputs[2], graph)
    if base_op(node) == "Gemm":
        yield from _gemm_causes(node, graph)
    if base_op(node) != "Conv" and 1 in inputs:
        yield from _misplaced_channels(node, inputs[1], graph)


def _float_bias_causes(bias: TensorName, graph: Graph) -> Iterator[str]:
    """A constant of one dimension is quantized by onnxruntime itself."""
    if not graph.is_known(bias):
        yield f"input 2 ('{bias}') does not come from a DequantizeLinear"
    elif len(graph.shape(bias) or ()) > 1:
        yield f"the bias '{bias}' is a float constant of more than one dimension"


def _gemm_causes(node: Node, graph: Graph) -> Iterator[str]:
    for name in ("alpha", "beta"):
        value = node.attributes.get(name, 1.0)
        if value != 1.0 and len(node.inputs) > 2:
            yield f"{name} of Gemm with a bias is {value:g}, the integer kernel takes 1"
    dq = dequantizer(node.inputs[1], graph)
    if dq is not None and len(dq.inputs) > 2 and graph.shape(dq.inputs[1]) != graph.shape(dq.inputs[2]):
        yield "scale and zero point of the weight of Gemm have different shapes"


def fused_bias_causes(node: Node, kernel: Node, optimized: Graph) -> Iterator[str]:
    """Whether a MatMul is a float Gemm with the Add behind it as a bias that is not quantized (MatMulAddFusion)."""
    is_gemm = base_op(node) == "MatMul" and base_op(kernel) in ("Gemm", "FusedGemm") and len(kernel.inputs) > 2
    if is_gemm and dequantizer(kernel.inputs[2], optimized) is None:
        yield (
            "onnxruntime makes a Gemm of it and the Add behind it, whose bias is float: quantize the bias to s32 or the"
            " output of the Add"
        )


def weight_only_causes(node: Node, graph: Graph) -> Iterator[str]:
    """Why a float product with a quantized weight dequantizes that weight at every inference."""
    op = base_op(node)
    weight = input_quantizations(node, graph).get(1)
    if op in ("Conv", "ConvTranspose") or weight is None:
        yield f"only the weight is quantized, and {op} has no weight-only kernel: the weight is dequantized every time"
        return
    if weight.dtype.endswith("16"):
        yield "the weight-only kernel takes weights of 8 bits and fewer"
    if op == "Gemm" and node.attributes.get("transB", 0):
        yield "the weight-only kernel takes Gemm with transB = 0 only"
    rank = len(weight_shape(node, graph) or ())
    if rank and weight.is_per_channel and weight.axis % rank != rank - 1:
        yield f"per-channel axis of {op} must be the last, it is {weight.axis}"


def wrong_numbers(node: Node, graph: Graph) -> Iterator[str]:
    """What is wrong with a node that does run on integers, which onnxruntime does not check."""
    inputs = input_quantizations(node, graph)
    if base_op(node) == "Gemm" and _bias_difference(inputs) > _BIAS_TOLERANCE:
        yield "Gemm's bias scale is wrong: it runs as an integer kernel and gives wrong numbers"
    if base_op(node) in _AXES and 1 in inputs:
        outcome = "gives wrong numbers" if _channels_fit(node, inputs[1], graph) else "fails when it runs"
        yield from (f"{text}: this integer kernel {outcome}" for text in _misplaced_channels(node, inputs[1], graph))
    for i, q in inputs.items():
        if q.is_per_channel and not q.is_constant and base_op(node) not in MOVING:
            yield f"input {i} is quantized per channel, activations must be per tensor: this integer kernel fails"


def failing_zero_points(node: Node, graph: Graph) -> Iterator[str]:
    """What keeps MatMulInteger from running at all, which onnxruntime sees no earlier.

    References:
        microsoft/onnxruntime, ``matmul_integer.cc``, ``IsBQuantParamSupported``: a stack of matrices has one zero
        point, or one for each column of each matrix.
    """
    if base_op(node) != "MatMulInteger" or len(node.inputs) <= 3:
        return
    stack, zero_points = graph.shape(node.inputs[1]) or (), graph.shape(node.inputs[3]) or ()
    if len(stack) > _MATRIX and len(zero_points) == 1 and zero_points != (1,):
        yield (
            f"the weight of MatMulInteger is a stack of matrices with zero points of the shape ({zero_points[0]},), as"
            " quantize_dynamic with per_channel=True writes them: it fails when it runs, quantize it per tensor"
        )


def _misplaced_channels(node: Node, weight: Quantization, graph: Graph) -> Iterator[str]:
    """Of a constant weight; until 1.31 onnxruntime does not look at those of MatMul and runs them on integers."""
    shape = weight_shape(node, graph)
    if shape is None or not weight.is_constant or not weight.is_per_channel:
        return
    axis = _channel_axis(node)
    if base_op(node) == "MatMul" and len(shape) != _MATRIX:
        yield "the weight of MatMul is per channel and has not two dimensions"
    elif weight.axis % len(shape) != axis:
        yield f"the weight of {base_op(node)} is per channel on axis {weight.axis}, output channels are on axis {axis}"


def _channels_fit(node: Node, weight: Quantization, graph: Graph) -> bool:
    """Whether there are as many scales as output channels, so that a kernel that takes them for these goes on."""
    shape, axis = weight_shape(node, graph) or (), _channel_axis(node)
    is_stack = base_op(node) == "MatMul" and len(shape) != _MATRIX
    return not is_stack and weight.scale is not None and shape[axis : axis + 1] == (weight.scale.size,)


def _channel_axis(node: Node) -> int:
    return 0 if node.attributes.get("transB", 0) else _AXES[base_op(node)]


def _bias_difference(inputs: dict[int, Quantization]) -> float:
    """How far the bias scale is from input scale x weight scale, relative to that; 0 where one is not known."""
    scales = [inputs[i].scale if i in inputs else None for i in range(3)]
    if any(scale is None for scale in scales):
        return 0.0
    entering, weight, bias = (np.asarray(scale, np.float64).ravel() for scale in scales)
    if entering.size != 1:
        return 0.0
    product = entering * weight
    if bias.size not in (1, product.size) or not np.all(product):
        return 0.0
    return float(np.abs(bias / product - 1).max())
