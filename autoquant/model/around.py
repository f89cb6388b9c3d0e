"""Models that run a candidate for some inputs and the user's own graph for all others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from autoquant.model.copies import Model
from autoquant.model.fragments import nested, taken_apart
from autoquant.model.subgraphs import named_bodies_of

__all__ = ["BRANCH", "OTHERWISE", "Around", "candidate_alone", "candidate_in"]

BRANCH = "autoquant_branch"
"""Name of the If that a candidate is a branch of."""
OTHERWISE = "else_branch"
"""Its branch for all other inputs; a candidate is the one that the condition asks for."""
_THEN = "then_branch"
Arrays = Mapping[str, npt.NDArray[np.generic]]
_FIELDS = (
    onnx.ModelProto.GRAPH_FIELD_NUMBER,
    onnx.GraphProto.NODE_FIELD_NUMBER,
    onnx.NodeProto.ATTRIBUTE_FIELD_NUMBER,
    onnx.AttributeProto.G_FIELD_NUMBER,
)


@dataclass(frozen=True, slots=True)
class Around:
    """What delivered models have around a candidate.

    Attributes:
        model: Serialized ModelProto with the nodes that decide, behind which an If called ``BRANCH`` has the branch for
            all other inputs alone.
        frame: The same, of which that branch gives empty tensors: opens faster where no other inputs come.
    """

    model: bytes = field(repr=False)
    frame: bytes = field(repr=False)

    def whole(self, skeleton: bytes, arrays: Arrays, metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
        """The model with a candidate, serialized, in pieces.

        Args:
            skeleton: The candidate; large initializers are EXTERNAL.
            arrays: Their values, by name.
            metadata: Beside what the candidate has.
        """
        return self._joined(self.model, skeleton, arrays, metadata)

    def framed(self, skeleton: bytes, arrays: Arrays) -> bytes:
        """What runs the same for inputs that the candidate is made for."""
        return b"".join(self._joined(self.frame, skeleton, arrays, {}))

    def _joined(
        self, around: bytes, skeleton: bytes, arrays: Arrays, metadata: Mapping[str, str]
    ) -> Iterator[bytes | memoryview]:
        """A candidate as a branch, its constants too.

        onnxruntime finds constants around the branch as well, but lays out kernels of Conv in blocks only where they
        are in the graph of the node.
        """
        model, graph, initializers = taken_apart(skeleton, arrays, metadata)
        graph.ClearField("input")
        outer = onnx.load_from_string(around)
        *deciding, choice = outer.graph.node
        del outer.graph.node[:]
        outer.graph.node.extend(deciding)
        model.graph.CopyFrom(outer.graph)
        known = {each.domain for each in model.opset_import}  # in the versions that the candidate needs
        model.opset_import.extend(each for each in outer.opset_import if each.domain not in known)
        branch = onnx.AttributeProto(name=_THEN, type=onnx.AttributeProto.GRAPH)
        held = (b"", *(each.SerializeToString(deterministic=True) for each in (choice, branch, graph)))
        yield model.SerializeToString(deterministic=True)
        yield from nested(list(zip(_FIELDS, held, strict=True)), initializers)


def candidate_in(graph: onnx.GraphProto) -> onnx.GraphProto:
    """The branch that a candidate is in a graph that may be around one; the graph itself where it is not."""
    last = graph.node[-1] if graph.node else onnx.NodeProto()
    writes_all = list(last.output) == [value.name for value in graph.output]
    is_around = last.op_type == "If" and last.name == BRANCH and writes_all
    return dict(named_bodies_of(last))[_THEN] if is_around else graph


def candidate_alone(model: Model) -> Model:
    """The model as a candidate that nothing is around; the model itself where nothing is."""
    graph = candidate_in(model.graph)
    if graph is model.graph:
        return model
    alone = helper.make_model(graph, opset_imports=model.opset_import, functions=model.functions)
    alone.ir_version = model.ir_version
    alone.graph.input.extend(model.graph.input)
    alone.metadata_props.extend(model.metadata_props)
    return alone
