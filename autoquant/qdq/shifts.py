"""How far quantization moves the means of what a linear operator writes."""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import bias_of, channel_axes
from autoquant.qdq.params import dequantize
from autoquant.qdq.ports import Means
from autoquant.qdq.weights import QuantizedWeight

__all__ = ["Shifts", "mean_output", "takes_bias"]

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Shifts:
    """Expected shifts of one graph, each computed once."""

    graph: Graph
    means: Means
    _found: dict[tuple[int, str], Floats] = field(default_factory=dict)

    def expected(self, node: Node, weight_name: TensorName, weight: QuantizedWeight) -> Floats | None:
        """What quantizing its weight adds to each output channel of an operator on average, E[W_q x] - E[W x].

        The inputs are taken to have the same mean everywhere, at the padded border too, where they are partly zero.

        Returns:
            Shape (C,); None where the means of the inputs are not known.

        References:
            Nagel et al., "Data-free quantization through weight equalization and bias correction", ICCV 2019,
            arXiv 1906.04721, section 4.2, with the means of calibration samples.
        """
        means = self.means(node.inputs[0], channel_axes(node)[0])
        if means is None:
            return None
        key = node.index, weight.label
        if key not in self._found:
            error = dequantize(weight.values, weight.params, weight.axis) - self.graph.constant(weight_name)
            self._found[key] = mean_output(node, error, means)
        return self._found[key]


def takes_bias(node: Node, dtype: DType) -> bool:
    """Whether a linear operator has a bias, or its integer kernel would take one at no cost.

    A float kernel would dequantize it at every inference.

    Args:
        node: The operator.
        dtype: Of its activations.
    """
    return bias_of(node) is not None or (node.op_type in ("Conv", "Gemm") and dtype.bits == 8)


def mean_output(node: Node, weight: npt.NDArray[np.float32], means: Floats) -> Floats:
    """Mean of each output channel of a linear operator, its bias left out, from the means of its input channels.

    Args:
        node: Conv, ConvTranspose, Gemm or MatMul.
        weight: In the layout of the operator.
        means: Shape (C,).
    """
    if node.op_type in ("Gemm", "MatMul"):
        by_channel = weight.T if node.attributes.get("transB", 0) else weight
        return np.asarray(means @ by_channel.astype(np.float64))
    groups = int(node.attributes.get("group", 1))
    sums = weight.sum(axis=tuple(range(2, weight.ndim)), dtype=np.float64)
    if node.op_type == "Conv":
        sums = np.swapaxes(sums.reshape(groups, -1, sums.shape[1]), 1, 2)
    else:  # a position of the output meets one in so many of the kernel's
        sums = sums.reshape(groups, -1, sums.shape[1]) / math.prod(node.attributes.get("strides", [1]))
    return np.asarray((means.reshape(groups, 1, -1) @ sums).reshape(-1))
