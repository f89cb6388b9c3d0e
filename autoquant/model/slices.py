"""Sizes that a Slice leaves as they are, of which ONNX's inference says nothing where it does not know the ends."""

from collections.abc import Mapping

import onnx
from onnx import TensorProto, ValueInfoProto, numpy_helper

from autoquant.model.copies import Model

__all__ = ["with_slice_sizes"]

_DATA, _AXES = 0, 3
"""Inputs of a Slice."""


def with_slice_sizes(model: Model) -> Model:
    """The model with further sizes of what Slices write; the same one where there are none.

    Args:
        model: With types and shapes as ONNX infers them. It stays as it is.
    """
    types = {value.name: value for value in (*model.graph.input, *model.graph.value_info)}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    found = dict[str, ValueInfoProto]()
    for node in model.graph.node:
        known = _known(node, types, constants) if node.op_type == "Slice" and node.output[0] in types else None
        if known is not None and known != types[node.output[0]]:
            found[node.output[0]] = types[node.output[0]] = known
    if not found:
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value in made.graph.value_info:
        if value.name in found:
            value.CopyFrom(found[value.name])
    return made


def _known(
    node: onnx.NodeProto, types: Mapping[str, ValueInfoProto], constants: Mapping[str, TensorProto]
) -> ValueInfoProto | None:
    """What a Slice writes with the sizes of the axes that it does not cut; None where these are not known."""
    axes = _axes(node, constants)
    if axes is None:
        return None
    found = ValueInfoProto()
    found.CopyFrom(types[node.output[0]])
    sizes, given = found.type.tensor_type.shape.dim, _sizes(node.input[_DATA], types, constants)
    if not given or len(given) != len(sizes):
        return None
    cut = {axis % len(given) for axis in axes}
    for axis, (size, before) in enumerate(zip(sizes, given, strict=True)):
        if axis not in cut and before is not None and not size.HasField("dim_value"):
            size.dim_value = before
    return found


def _axes(node: onnx.NodeProto, constants: Mapping[str, TensorProto]) -> list[int] | None:
    """Those that a Slice cuts, where they are listed as a constant."""
    listed = constants.get(node.input[_AXES]) if len(node.input) > _AXES else None
    return None if listed is None else [int(axis) for axis in numpy_helper.to_array(listed).reshape(-1)]


def _sizes(
    name: str, types: Mapping[str, ValueInfoProto], constants: Mapping[str, TensorProto]
) -> list[int | None] | None:
    """Of a tensor, None for each that is not known."""
    if name in constants:
        return list(constants[name].dims)
    if name not in types or not types[name].type.tensor_type.HasField("shape"):
        return None
    dims = types[name].type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
