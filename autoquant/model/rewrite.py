"""Rewrites of a whole model.

Each leaves its argument untouched. Most give it back where there is nothing to do: weights take long to be copied.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, inliner, numpy_helper, shape_inference, version_converter

from autoquant.domain.reason import one_line
from autoquant.errors import ModelError
from autoquant.model.copies import Model, copy_of, opset_of, without_weights
from autoquant.model.io import INITIALIZERS_ARE_NO_INPUTS
from autoquant.model.slices import with_slice_sizes
from autoquant.model.subgraphs import bodies_of, graphs_of, rename_tensors

__all__ = [
    "constants_as_initializers",
    "convert_opset",
    "densify",
    "drop_inferable_types",
    "drop_initializer_inputs",
    "drop_unused_domains",
    "free_dimensions",
    "freeze",
    "infer_shapes",
    "inline_functions",
    "open_dimensions",
    "open_outputs",
    "spell_onesided",
    "with_constants",
    "with_outputs",
    "with_own_dimensions",
    "with_types",
]

_CONVERTED_WRONGLY = {
    "GroupNormalization": (21, "leave scales of GroupNormalization to groups, where they have to be of channels"),
    "Hardmax": (13, "make Hardmax one along the last axis alone"),
}
"""Operators that mean something else from an opset on, and what ONNX's converter does."""
_UNKNOWN = "autoquant.unknown"
"""Domain of what the converter must not look up."""
_RESIZE_HAS_MODES = 11
"""Opset from which on Resize says how it finds positions and rounds them."""


def convert_opset(model: Model, version: int) -> Model:
    """The model at another opset.

    Raises:
        ModelError: ONNX has no converter for one of its operators, or would lose its functions.
    """
    if model.functions:
        name = model.functions[0].name
        raise ModelError(f"conversion to opset {version} fails: function '{name}' cannot be put in place of its calls")
    for op_type, (since, reason) in _CONVERTED_WRONGLY.items():
        if opset_of(model) < since <= version and any(
            _is(node, op_type) for graph in graphs_of(model.graph) for node in graph.node
        ):
            raise ModelError(f"conversion to opset {version} fails: ONNX would {reason}")
    try:
        converted = without_weights(model, lambda skeleton: _converted(skeleton, version))
    except Exception as error:  # the converter raises RuntimeError, its C++ base classes and others
        reason = one_line(error).rpartition("` failed: ")[2]  # behind the place in ONNX's own source
        raise ModelError(f"conversion to opset {version} fails: {reason}") from error
    if opset_of(model) < _RESIZE_HAS_MODES <= version:
        _resize_as_before(converted)
    return converted


def _converted(model: Model, version: int) -> Model:
    """Operators that ONNX does not know yet are left as they are: onnxruntime has some of its own in ONNX's domain."""
    copy = copy_of(model)
    for node in (node for graph in graphs_of(copy.graph) for node in graph.node):
        if node.domain in ("", "ai.onnx") and not onnx.defs.has(node.op_type, opset_of(model), ""):
            node.domain = _UNKNOWN
    copy.opset_import.append(helper.make_opsetid(_UNKNOWN, 1))
    converted = version_converter.convert_version(copy, version)
    for node in (node for graph in graphs_of(converted.graph) for node in graph.node):
        if node.domain == _UNKNOWN:
            node.domain = ""
    imports = [each for each in converted.opset_import if each.domain != _UNKNOWN]
    del converted.opset_import[:]
    converted.opset_import.extend(imports)
    _say_types_of(model, converted)
    _name_apart(model, converted)
    return converted


def _say_types_of(model: Model, converted: Model) -> None:
    """What the converter inferred is taken away: sizes behind a ceiled pool may be wrong, and stay once it is not."""
    for types in ("value_info", "output"):
        values = getattr(converted.graph, types)
        del values[:]
        values.extend(getattr(model.graph, types))


def _name_apart(model: Model, converted: Model) -> None:
    """What the converter adds to bodies gets names of its own: it counts from the beginning in each of them."""
    known = {name for graph in graphs_of(model.graph) for node in graph.node for name in node.output}
    bodies = [body for node in converted.graph.node for inner in bodies_of(node) for body in graphs_of(inner)]
    for i, body in enumerate(reversed(bodies)):  # those inside others first, of which these may read
        added = {name for node in body.node for name in node.output} - known
        new = {name: f"{name}_{i}" for name in added if name}
        rename_tensors(body, new)
        known.update(new.values())


def _resize_as_before(model: Model) -> None:
    """Give every Resize the modes that it had before they could be said: those of the converter are other ones.

    https://github.com/onnx/onnx/issues/8480. Where it shrinks, onnxruntime rounded positions up.
    """
    graphs = list(graphs_of(model.graph))
    constants = {tensor.name: tensor for graph in graphs for tensor in graph.initializer}
    for node in (node for graph in graphs for node in graph.node):
        tensor = _constant_of(node) if _is(node, "Constant") else None
        if tensor is not None:
            constants[node.output[0]] = tensor
    for node in (node for graph in graphs for node in graph.node if _is(node, "Resize")):
        scales = constants.get(node.input[2])
        shrinks = scales is not None and bool((numpy_helper.to_array(scales) <= 1).all())
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil" if shrinks else "floor"}
        for name in modes.keys() - {attribute.name for attribute in node.attribute}:
            node.attribute.append(helper.make_attribute(name, modes[name]))


def inline_functions(model: Model) -> Model:
    """Functions of the model in place of their calls; those that ONNX cannot convert to the model's opset stay."""
    if not model.functions:
        return model
    typed = infer_shapes(_with_imports_of_functions(model))
    with suppress(Exception):  # raised from C++, also where a type is unknown that only the conversion needs
        return without_weights(typed, lambda skeleton: inliner.inline_local_functions(skeleton, convert_version=True))
    with suppress(Exception):
        return without_weights(typed, inliner.inline_local_functions)
    return model


def _with_imports_of_functions(model: Model) -> Model:
    """With the domains that only functions import, whose nodes become the model's."""
    copy = copy_of(model)
    known = {imported.domain for imported in model.opset_import}
    for imported in (imported for function in model.functions for imported in function.opset_import):
        if imported.domain not in known:
            copy.opset_import.append(imported)
            known.add(imported.domain)
    return copy


def drop_initializer_inputs(model: Model) -> Model:
    """Initializers that are also listed as inputs become plain constants, for which the IR must have version 4."""
    constants = {t.name for t in model.graph.initializer}
    if model.ir_version >= INITIALIZERS_ARE_NO_INPUTS and not any(v.name in constants for v in model.graph.input):
        return model
    copy = copy_of(model)
    copy.ir_version = max(copy.ir_version, INITIALIZERS_ARE_NO_INPUTS)
    kept = [value for value in copy.graph.input if value.name not in constants]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    return copy


def densify(model: Model) -> Model:
    """Sparse initializers written out, those of bodies too."""
    if not any(graph.sparse_initializer for graph in graphs_of(model.graph)):
        return model
    copy = copy_of(model)
    for graph in graphs_of(copy.graph):
        graph.initializer.extend(map(_dense, graph.sparse_initializer))
        del graph.sparse_initializer[:]
    return copy


def _dense(tensor: onnx.SparseTensorProto) -> onnx.TensorProto:
    values, indices = numpy_helper.to_array(tensor.values), numpy_helper.to_array(tensor.indices)
    dense = np.zeros(tuple(tensor.dims), values.dtype)
    dense.flat[indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)] = values
    return numpy_helper.from_array(dense, tensor.values.name)


def constants_as_initializers(model: Model) -> Model:
    """Tensors and numbers of Constant nodes moved to the initializers."""
    if not any(_is(node, "Constant") for node in model.graph.node):
        return model
    copy = copy_of(model)
    kept = []
    for node in copy.graph.node:
        tensor = _constant_of(node) if _is(node, "Constant") else None
        if tensor is None:
            kept.append(node)
        else:
            tensor.name = node.output[0]
            copy.graph.initializer.append(tensor)
    del copy.graph.node[:]
    copy.graph.node.extend(kept)
    return copy


def _is(node: onnx.NodeProto, op_type: str) -> bool:
    """Whether it is this operator of ONNX's own."""
    return node.op_type == op_type and node.domain in ("", "ai.onnx")


def _constant_of(node: onnx.NodeProto) -> onnx.TensorProto | None:
    attribute = node.attribute[0]
    if attribute.HasField("t"):
        return attribute.t
    if attribute.HasField("sparse_tensor"):
        return _dense(attribute.sparse_tensor)
    if attribute.name in ("value_float", "value_floats"):
        return numpy_helper.from_array(np.array(helper.get_attribute_value(attribute), np.float32))
    if attribute.name in ("value_int", "value_ints"):
        return numpy_helper.from_array(np.array(helper.get_attribute_value(attribute), np.int64))
    return None


def drop_inferable_types(model: Model) -> Model:
    """Without what is said of tensors inside of which ONNX infers the rank: shapes may be those of another batch."""
    if not model.graph.value_info:
        return model
    copy = copy_of(model)
    del copy.graph.value_info[:]
    inferred = infer_shapes(copy).graph
    known = {v.name for v in (*inferred.value_info, *inferred.output) if v.type.tensor_type.HasField("shape")}
    copy.graph.value_info.extend(v for v in model.graph.value_info if v.name not in known)
    return copy


def free_dimensions(model: Model) -> frozenset[str]:
    """Names of dynamic dimensions of the inputs."""
    return frozenset(d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim if d.dim_param)


def with_own_dimensions(model: Model, original: Model) -> Model:
    """The model, changed in place: dimensions that shape inference gave names to have none.

    Args:
        model: From the other one.
        original: As the user knows it.
    """
    own = {dimension.dim_param for dimension in _dimensions(original)}
    for dimension in _dimensions(model):
        if dimension.dim_param and dimension.dim_param not in own:
            dimension.Clear()
    return model


def _dimensions(model: Model) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        yield from value.type.tensor_type.shape.dim


def freeze(model: Model, shapes: Mapping[str, tuple[int | None, ...]], dims: Mapping[str, int]) -> Model:
    """Input shapes made static: first dimensions by name, then those of an input that are not None.

    An input of undeclared rank takes that of its shape.
    """
    copy = copy_of(model)
    for value in copy.graph.input:
        tensor = value.type.tensor_type
        if value.name in shapes and not tensor.HasField("shape"):
            tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in shapes[value.name])
        for i, dim in enumerate(tensor.shape.dim):
            size = dims.get(dim.dim_param) if dim.dim_param else None
            if size is None and value.name in shapes and not dim.dim_value > 0:
                size = shapes[value.name][i]
            if size is not None:
                dim.Clear()
                dim.dim_value = size
    return copy


def open_dimensions(model: Model) -> Model:
    """Negative sizes, as which some exporters write dynamic ones, taken away."""
    values = (v for graph in graphs_of(model.graph) for v in (*graph.input, *graph.value_info, *graph.output))
    if all(dim.dim_value >= 0 for value in values for dim in value.type.tensor_type.shape.dim):
        return model
    copy = copy_of(model)
    for graph in graphs_of(copy.graph):
        for value in (*graph.input, *graph.value_info, *graph.output):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_value < 0:
                    dim.Clear()
    return copy


def open_outputs(model: Model, shapes: Iterable[Sequence[tuple[int, ...]]]) -> Model:
    """Sizes of outputs that others contradict, taken away: onnxruntime warns of them, shape inference fails.

    Args:
        model: Stays as it is.
        shapes: Of all outputs, one sample each.
    """
    wrong = {
        (i, axis)
        for each in shapes
        for i, (value, shape) in enumerate(zip(model.graph.output, each, strict=True))
        for axis, (dim, size) in enumerate(zip(value.type.tensor_type.shape.dim, shape, strict=False))
        if dim.dim_value > 0 and dim.dim_value != size
    }
    if not wrong:
        return model
    copy = copy_of(model)
    for i, axis in wrong:
        copy.graph.output[i].type.tensor_type.shape.dim[axis].Clear()
    return copy


def drop_unused_domains(model: Model) -> Model:
    """Imports only of domains that a node here, in a body or in a function belongs to, and of ONNX's own."""
    nodes = [node for graph in graphs_of(model.graph) for node in graph.node]
    used = {"", "ai.onnx", *(node.domain for node in nodes)}
    for function in model.functions:
        used |= {imported.domain for imported in function.opset_import}
    if all(imported.domain in used for imported in model.opset_import):
        return model
    copy = copy_of(model)
    del copy.opset_import[:]
    copy.opset_import.extend(imported for imported in model.opset_import if imported.domain in used)
    return copy


def spell_onesided(model: Model) -> Model:
    """STFT with the attribute where it is left out: ONNX infers shapes as if the default were 0, and it is 1."""
    if not any(_is(node, "STFT") for graph in graphs_of(model.graph) for node in graph.node):
        return model
    copy = copy_of(model)
    for node in (node for graph in graphs_of(copy.graph) for node in graph.node):
        if _is(node, "STFT") and all(attribute.name != "onesided" for attribute in node.attribute):
            node.attribute.append(helper.make_attribute("onesided", 1))
    return copy


def infer_shapes(model: Model) -> Model:
    """With types and shapes of all tensors that ONNX can infer; as it is where inference fails."""
    try:
        return without_weights(model, _inferred)
    except (shape_inference.InferenceError, ValueError, RuntimeError):
        return model


def _inferred(skeleton: Model) -> Model:
    found = shape_inference.infer_shapes(skeleton, data_prop=True)
    while (known := with_slice_sizes(found)) is not found:
        found = shape_inference.infer_shapes(known, data_prop=True)
    return found


def with_constants(
    model: Model, arrays: Mapping[str, npt.NDArray[np.generic]], inputs: Mapping[tuple[int, int], str]
) -> Model:
    """The model with other constants.

    Args:
        model: Stays as it is.
        arrays: Values by name, of initializers that are there and of new ones.
        inputs: Which tensors nodes read instead, by index of the node and of the input.
    """
    copy = copy_of(model)
    present = {tensor.name: tensor for tensor in copy.graph.initializer}
    for name, array in arrays.items():
        tensor = present[name] if name in present else copy.graph.initializer.add()
        tensor.CopyFrom(numpy_helper.from_array(array, name))
    for (node, slot), name in inputs.items():
        copy.graph.node[node].input[slot] = name
    return copy


def with_outputs(model: Model, tensors: Mapping[str, tuple[int, ...] | None], *, is_typed: bool = True) -> Model:
    """The model with further tensors as outputs, float ones unless their type is to be inferred."""
    copy = copy_of(model)
    present = {value.name for value in copy.graph.output}
    copy.graph.output.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        if is_typed
        else onnx.ValueInfoProto(name=name)
        for name, shape in tensors.items()
        if name not in present
    )
    return copy


def with_types(model: Model, tensors: Mapping[str, Sequence[int | str | None] | None]) -> Model:
    """The model with float tensors said to be such, and their shapes where they are known."""
    copy = copy_of(model)
    kept = [value for value in copy.graph.value_info if value.name not in tensors]
    del copy.graph.value_info[:]
    copy.graph.value_info.extend(kept)
    copy.graph.value_info.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in tensors.items()
    )
    return copy
