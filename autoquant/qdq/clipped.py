"""Writes HardSigmoids as what there are integer kernels for: decision 0040."""

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType
from autoquant.model.graph import Node
from autoquant.model.ops import hard_sigmoid_factors
from autoquant.qdq.pairs import Pairs
from autoquant.qdq.plan import QuantKey

__all__ = ["write_hard_sigmoid"]


def write_hard_sigmoid(pairs: Pairs, node: Node) -> None:
    """Add a HardSigmoid that runs on integers, and what dequantizes them.

    Args:
        pairs: Of the model.
        node: The HardSigmoid.
    """
    target = pairs.renamed.get(node.outputs[0], node.outputs[0])
    key = pairs.plan.produced[target]
    quantized = _add_sum(pairs, node, target, key) if key.clipped is None else _add_clip(pairs, node, target)
    pairs.dequantize_written(target, quantized)


def _add_clip(pairs: Pairs, node: Node, target: TensorName) -> str:
    """Of the integers that it reads, as far as they stand for less than 1; returns what it writes."""
    key = pairs.plan.key_for(node, node.inputs[0])
    assert key is not None
    integers = pairs.read_integers(node.inputs[0], node)
    highest = pairs.parts.new_constant(f"{target}_highest", pairs.planner.highest_clipped(key))
    clipped = pairs.parts.pieces.free(f"{target}_QuantizeLinear_Input")
    pairs.parts.node("Clip", [integers, "", highest], [clipped], node.name)
    return clipped


def _add_sum(pairs: Pairs, node: Node, target: TensorName, key: QuantKey) -> str:
    """An Add whose integers clip at 0, on the scale of the output divided by ``alpha``; returns what Q writes."""
    factors = hard_sigmoid_factors(node)
    assert factors is not None
    alpha, summand = factors
    params = pairs.planner.params(key)
    shifted = pairs.parts.pieces.free(f"{target}_QuantizeLinear_Input")
    summands = [pairs.read(node.inputs[0], node), _number(pairs, f"{node.name}_summand", summand, params.dtype)]
    pairs.parts.node("Add", summands, [shifted], node.name)
    _, zero_point = pairs.parameters(key)
    wide = pairs.parts.new_constant(f"{key.root}_scale_before", np.asarray(params.scale / np.float32(alpha)))
    return pairs.add("QuantizeLinear", [shifted, wide, zero_point], target)


def _number(pairs: Pairs, name: str, value: float, dtype: DType) -> str:
    """What stands for a positive number, as the largest integer of a type."""
    return pairs.new_constant(name, np.array(dtype.highest, dtype.numpy), np.array(value / dtype.highest, np.float32))
