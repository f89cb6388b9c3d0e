"""Groups of channels that are normalised, written as instances."""

import numpy as np
import onnx

from autoquant.model.graph import Node
from autoquant.model.rewrite import infer_shapes
from autoquant.rewrites.edits import Edit, Parts, of_each_node

__all__ = ["spell_group_norms"]

_OF_CHANNELS = 21
"""Opset from which on a GroupNormalization has a scale for each channel; onnxruntime's CPU provider has no kernel."""
_EPSILON = 1e-5


def spell_group_norms(model: onnx.ModelProto) -> onnx.ModelProto:
    """A GroupNormalization becomes an InstanceNormalization of groups, as PyTorch writes it for older opsets.

    It comes before onnxruntime puts ten operators, two means among them, in its place.

    References:
        ONNX operators, GroupNormalization: in each group ``(x - mean) / sqrt(variance + epsilon)``, then scale and bias
        of each channel.
    """
    if not any(node.op_type == "GroupNormalization" for node in model.graph.node):
        return model
    typed = infer_shapes(model)
    found = _spelled(typed)
    return model if found is typed else found


@of_each_node(_OF_CHANNELS)
def _spelled(edit: Edit, node: Node) -> None:
    rank, dtype = edit.graph.rank(node.inputs[0]), edit.graph.dtype(node.inputs[0])
    if node.op_type != "GroupNormalization" or not rank or dtype != "float32":
        return
    parts, (read, scale, bias) = Parts(edit, node), node.inputs
    n_groups = int(node.attributes["num_groups"])
    groups = parts.add("Reshape", [read, parts.constant("groups", np.array([0, n_groups, -1]))], part="grouped")
    ones, zeros = (parts.constant(name, np.full(n_groups, v, np.float32)) for name, v in (("ones", 1), ("zeros", 0)))
    epsilon = float(node.attributes.get("epsilon", _EPSILON))
    normed = parts.add("InstanceNormalization", [groups, ones, zeros], part="normed", epsilon=epsilon)
    whole = parts.add("Reshape", [normed, parts.add("Shape", [read], part="shape")], part="whole")
    along = parts.constant("along", np.array([-1, *[1] * (rank - 2)]))
    by_channel = [
        parts.add("Reshape", [each, along], part=f"{name}s") for name, each in (("scale", scale), ("bias", bias))
    ]
    scaled = parts.add("Mul", [whole, by_channel[0]], part="scaled")
    parts.add("Add", [scaled, by_channel[1]], output=node.outputs[0])
    edit.replaced[node.index] = parts.nodes
