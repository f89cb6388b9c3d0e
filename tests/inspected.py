"""Inspections of models that tests make."""

from pathlib import Path

import onnx
import onnxruntime

from autoquant import Target, inspect_model
from autoquant.inspection.inspection import Inspection, inspect_graphs
from autoquant.inspection.nodes import InspectedNode
from autoquant.model.graph import Graph
from autoquant.model.optimized import read_optimized_nodes
from autoquant.model.rewrite import constants_as_initializers, infer_shapes
from autoquant.runtime.session import open_session
from tests.models import saved

__all__ = [
    "FLOAT_PRODUCTS",
    "FROM_1_30",
    "FROM_1_31",
    "FROM_1_32",
    "causes_in",
    "graph_of",
    "inspected",
    "inspected_as_on",
    "node_of",
]

_VERSION = tuple(map(int, onnxruntime.__version__.split(".")[:2]))

FROM_1_30 = _VERSION >= (1, 30)
"""Before, a HardSwish in a blocked layout becomes a HardSigmoid and a Mul."""

FROM_1_31 = _VERSION >= (1, 31)
"""Before, scales of onnxruntime's quantizer are wrong in their last bit, as it subtracts in float32."""

FROM_1_32 = _VERSION >= (1, 32)
"""Since then onnxruntime looks where the channels of a MatMul's weight are, and 16-bit products are weight-only."""


FLOAT_PRODUCTS = {
    "MatMulIntegerToFloat": (
        "(uint8[2,8] x) => (float[2,40] y)",
        "y = com.microsoft.MatMulIntegerToFloat(x, w, s, s, z, wz)",
    ),
    "DynamicQuantizeMatMul": (
        "(float[2,8] x) => (float[2,40] y)",
        "y = com.microsoft.DynamicQuantizeMatMul(x, w, s, wz)",
    ),
    "QGemm": ("(uint8[2,8] x) => (float[2,40] y)", "y = com.microsoft.QGemm(x, s, z, w, s, wz)"),
}
"""Signatures and bodies of operators that multiply integers and give floats."""


def inspected(model: onnx.ModelProto, folder: Path) -> Inspection:
    """Of a model that is written to ``model.onnx``."""
    return inspect_model(saved(model, folder / "model.onnx")).inspection


def inspected_as_on(
    machine: str, model: onnx.ModelProto, folder: Path, *, ep: str = "cpu", is_saturating: bool = False
) -> Inspection:
    """As if the model were opened on another machine; what runs of it is what runs here."""
    path = folder / "optimized.onnx"
    open_session(model.SerializeToString(), Target(), optimized_path=path, keeps_constants=True)
    optimized = read_optimized_nodes(path, has_constants=True)
    return inspect_graphs(graph_of(model), optimized, ep=ep, machine=machine, is_saturating=is_saturating)


def node_of(found: Inspection, name: str = "t") -> InspectedNode:
    """The node of that name."""
    return next(node for node in found.nodes if node.name == name)


def causes_in(found: Inspection) -> dict[str, str]:
    """Causes by node, for those that do not run as written."""
    return {str(node.name): "; ".join(node.causes) for node in found.unlike_written}


def graph_of(model: onnx.ModelProto) -> Graph:
    """As the file is read."""
    return Graph(infer_shapes(constants_as_initializers(model)))
