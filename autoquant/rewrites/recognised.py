"""Activations that exporters spell by arithmetic, recognised by their values: kernels of their own are faster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper
from scipy.special import erf, expit

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model, opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.rewrites.edits import Edit
from autoquant.rewrites.unread import drop_unread

__all__ = ["recognise_activations"]

_HAS_GELU = 20
"""The opset from which on it is an operator."""
_FEWEST, _MOST = 3, 12
"""Nodes on the longest way through a spelling, at least and at most."""
_TOLERANCE = 1e-5
"""Beside values and 1: constants in files have 6 digits and more."""
Values = npt.NDArray[np.float64]
_FAR = (12.0, 20.0, 50.0, 100.0, 1000.0)
_GRID: Values = np.concatenate([np.linspace(-9.0, 9.0, 73), _FAR, np.negative(_FAR)])
_ONE = int(np.flatnonzero(_GRID == 1.0)[0])
_UNARY: Mapping[str, Callable[[Values], Values]] = {
    "Erf": erf,
    "Exp": np.exp,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Sigmoid": expit,
    "Tanh": np.tanh,
}
_BINARY: Mapping[str, Callable[[Values, Values], Values]] = {
    "Add": np.add,
    "Div": np.divide,
    "Mul": np.multiply,
    "Pow": np.power,
    "Sub": np.subtract,
}
_ACTIVATIONS: Mapping[str, Values] = {
    "Sigmoid": expit(_GRID),
    "Silu": _GRID * expit(_GRID),
    "Gelu": 0.5 * _GRID * (1 + erf(_GRID / np.sqrt(2))),
    "Tanh Gelu": 0.5 * _GRID * (1 + np.tanh(np.sqrt(2 / np.pi) * (_GRID + 0.044715 * _GRID**3))),
}


@dataclass(frozen=True, slots=True)
class _Function:
    """Of each element of a tensor: its values on the grid, and how many nodes lie on the longest way to them."""

    values: Values
    n_nodes: int


def recognise_activations(model: Model) -> Model:
    """GELU, its approximation by tanh, SiLU and the sigmoid, however they are spelled, become operators: decision 0050.

    Args:
        model: Stays as it is, and is given back where there is nothing to do.
    """
    if opset_of(model) < _HAS_GELU:
        return model
    graph = graph_of(model)
    edit = Edit(graph)
    known: dict[TensorName, dict[TensorName, _Function]] = {}
    for node in graph.nodes:
        functions = _functions(graph, node, known)
        for source, function in functions.items():
            name = _recognised(function)
            if name is not None:
                edit.replaced[node.index] = _written(edit, name, source, node)
                break
        if functions:
            known[node.outputs[0]] = functions
    return drop_unread(edit.model()) if edit.replaced else model


def _functions(
    graph: Graph, node: Node, known: Mapping[TensorName, Mapping[TensorName, _Function]]
) -> dict[TensorName, _Function]:
    """What a node's output is of each tensor that it is computed of alone, element by element."""
    compute = _UNARY.get(node.op_type) or _BINARY.get(node.op_type)
    if compute is None or node.outputs[0] not in graph.float_tensors:
        return {}
    free = [name for name in node.inputs if not graph.is_constant(name)]
    if not all(_is_number(graph, name) for name in node.inputs if name not in free):
        return {}
    of_each = [{name: _Function(_GRID, 0), **known.get(name, {})} for name in free]
    sizes, found = graph.sizes(node.outputs[0]), dict[TensorName, _Function]()
    for source in of_each[0] if of_each else ():
        parts = [functions[source] for functions in of_each if source in functions]
        n_nodes = 1 + max(part.n_nodes for part in parts)
        if len(parts) == len(free) and n_nodes <= _MOST and sizes is not None and graph.sizes(source) == sizes:
            by_name = dict(zip(free, parts, strict=True))
            read = [
                by_name[name].values if name in by_name else graph.constant(name).astype(np.float64).reshape(())
                for name in node.inputs
            ]
            with np.errstate(all="ignore"):
                found[source] = _Function(compute(*read), n_nodes)
    return found


def _is_number(graph: Graph, name: TensorName) -> bool:
    return graph.constant(name).size == 1 and graph.constant(name).dtype.kind in "fi"


def _recognised(function: _Function) -> str | None:
    if function.n_nodes < _FEWEST:
        return None
    for name, values in _ACTIVATIONS.items():
        is_near = abs(function.values[_ONE] - values[_ONE]) <= 2 * _TOLERANCE  # which is soon seen
        if is_near and np.allclose(function.values, values, rtol=_TOLERANCE, atol=_TOLERANCE):
            return name
    return None


def _written(edit: Edit, name: str, source: TensorName, node: Node) -> list[onnx.NodeProto]:
    output = [node.outputs[0]]
    if name == "Silu":  # which onnxruntime fuses
        gate = edit.names.new(f"{node.name}_gate")
        return [
            helper.make_node("Sigmoid", [source], [gate], name=f"{node.name}_Sigmoid"),
            helper.make_node("Mul", [source, gate], output, name=f"{node.name}_Silu"),
        ]
    if name == "Sigmoid":
        return [helper.make_node("Sigmoid", [source], output, name=f"{node.name}_Sigmoid")]
    approximate = "tanh" if name == "Tanh Gelu" else "none"
    return [helper.make_node("Gelu", [source], output, name=f"{node.name}_Gelu", approximate=approximate)]
