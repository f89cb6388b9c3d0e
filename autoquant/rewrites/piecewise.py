"""Rewrites of what is linear piece by piece, as Relu, Clip and PRelu are, into forms with faster kernels.

Each leaves its argument untouched, and gives it back where there is nothing to do. Finite outputs stay equal apart from
the sign of zeros and, of a PRelu behind a Conv, from rounding; without these and without a MaxPool so do infinities.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import Kind, clip_bounds, kind_of
from autoquant.model.opsets import CLIP_HAS_INPUTS
from autoquant.rewrites.edits import Edit, of_each_node
from autoquant.rewrites.largest import is_pool_of_values
from autoquant.rewrites.moves import only_moves

__all__ = ["MANY_ELEMENTS", "clip_first", "merge_clips", "split_prelu"]

MANY_ELEMENTS = 1 << 14
"""In smaller tensors four operators take as long as PRelu, to start alone."""
_RANK_OF_IMAGES = 4
_BLOCK = 16
"""Of channels; on some processors blocks are half as large."""
Slope = npt.NDArray[np.float32]


@of_each_node(CLIP_HAS_INPUTS)
def merge_clips(edit: Edit, node: Node) -> None:
    """The larger or smaller of a tensor and a number becomes a Clip, and clips in a row become one.

    Exporters of TensorFlow write a Relu6 as Relu, Min and Max. Integer kernels absorb a Clip, and none of these.
    """
    graph = edit.graph
    chain = _chain(graph, node)
    if not chain or (len(chain) == 1 and kind_of(node) is Kind.CLIPPING):
        return
    edit.replaced.update(dict.fromkeys((each.index for each in chain), ()))
    ends = [
        edit.constant(f"{node.name}_{end}", np.array(bound, np.float32))
        for end, bound in zip(("least", "most"), _composed(graph, chain), strict=True)
    ]  # one that is left out would be the largest float, which infinities would become
    inputs = [_clipped(graph, chain[0]), *ends]
    edit.replaced[node.index] = (helper.make_node("Clip", inputs, list(node.outputs), name=node.name),)


@of_each_node()
def clip_first(edit: Edit, node: Node) -> None:
    """A Relu or Clip behind a MaxPool, as Keras has it, goes before it where the kernel of a Conv absorbs it there.

    The largest of clipped values is the largest value clipped. The same holds of nodes that only move elements, as the
    Squeeze that exporters put behind a Conv1D.
    """
    graph = edit.graph
    between = _behind_conv(graph, node)
    if between:
        clip, *behind = (graph.copy_of(each) for each in (node, *between))
        clip.input[0], clip.output[0] = behind[0].input[0], edit.names.new(f"{behind[0].input[0]}_clipped")
        behind[0].input[0], behind[-1].output[0] = clip.output[0], node.outputs[0]
        edit.replaced.update({each.index: (proto,) for each, proto in zip(between, behind, strict=True)})
        edit.replaced[between[0].index] = (clip, behind[0])
        edit.replaced[node.index] = ()


@of_each_node(CLIP_HAS_INPUTS)
def split_prelu(edit: Edit, node: Node) -> None:
    """PRelu with a constant slope ``a`` becomes LeakyRelu where it is one number, else ``Max(x, a x)`` if a <= 1.

    Behind a Conv, whose channels onnxruntime keeps in blocks, it is ``a x + (1 - a) max(x, 0)``, both products as Convs
    of each channel. Where all slopes are 1 or larger it is Min, and ``Max(x, 0) + a Min(x, 0)`` of others, such as 0,
    which an infinity must not be multiplied with, in tensors of known size that are not small. onnxruntime's kernel of
    PRelu takes longer than those of all of them together: decision 0038.
    """
    graph = edit.graph
    if node.op_type != "PRelu" or not _is_float_with_constant(graph, *node.inputs):
        return
    slope = graph.constant(node.inputs[1])
    if (slope == slope.flat[0]).all():
        alpha = float(slope.flat[0])
        made = [helper.make_node("LeakyRelu", node.inputs[:1], list(node.outputs), name=node.name, alpha=alpha)]
    elif _is_in_blocks(graph, node, slope):
        made = _convolved(edit, node, slope)
    elif (slope >= 1).all() or ((slope <= 1) & (slope != 0)).all():
        made = _larger(edit, node, "Min" if (slope >= 1).all() else "Max")
    elif prod(graph.shape(node.inputs[0]) or ()) >= MANY_ELEMENTS:
        made = _parts(edit, node)
    else:
        return
    edit.replaced[node.index] = made


def _chain(graph: Graph, last: Node) -> list[Node]:
    """Clips in a row that end in this node, in order; empty where it is none, or the next one is one of them."""
    following = graph.only_reader(last.outputs[0]) if last.outputs else None
    if _bounds(graph, last) is None or (following is not None and _bounds(graph, following) is not None):
        return []
    chain = [last]
    while True:
        source = _clipped(graph, chain[0])
        before = graph.producer.get(source)
        if before is None or graph.only_reader(source) is None or _bounds(graph, before) is None:
            return chain
        chain.insert(0, before)


def _bounds(graph: Graph, node: Node) -> tuple[float, float] | None:
    """What a node lets pass that does nothing but to clip floats; None for others."""
    if kind_of(node) is Kind.CLIPPING and node.inputs[0] in graph.float_tensors:
        return clip_bounds(node, graph)
    if node.op_type not in ("Max", "Min") or len(node.inputs) != 2 or not any(map(graph.is_constant, node.inputs)):
        return None
    source = _clipped(graph, node)
    other = node.inputs[1 - node.inputs.index(source)]
    if not _is_float_with_constant(graph, source, other) or graph.constant(other).size != 1:
        return None
    bound = float(graph.constant(other).reshape(()))
    return (bound, np.inf) if node.op_type == "Max" else (-np.inf, bound)


def _clipped(graph: Graph, node: Node) -> TensorName:
    """What a node clips; of two inputs the one that is no constant."""
    return next((name for name in node.inputs[:2] if not graph.is_constant(name)), node.inputs[0])


def _is_float_with_constant(graph: Graph, source: TensorName, other: TensorName) -> bool:
    """Whether an activation of floats keeps its shape beside a constant of finite ones."""
    if source not in graph.float_tensors or not graph.is_constant(other):
        return False
    values, rank = graph.constant(other), graph.rank(source)
    is_kept = values.ndim == 0 or values.ndim <= rank
    return is_kept and values.dtype == np.float32 and values.size > 0 and bool(np.isfinite(values).all())


def _composed(graph: Graph, chain: Sequence[Node]) -> tuple[float, float]:
    low, high = -np.inf, np.inf
    for node in chain:
        found = _bounds(graph, node)
        assert found is not None
        low, high = (min(max(bound, found[0]), found[1]) for bound in (low, high))
    return low, high


def _is_in_blocks(graph: Graph, node: Node, slope: Slope) -> bool:
    """Whether there is a slope for each channel of images that onnxruntime has in blocks of channels, as of a Conv."""
    shape, producer = graph.shape(node.inputs[0]) or (), graph.producer.get(node.inputs[0])
    if len(shape) != _RANK_OF_IMAGES or producer is None:
        return False
    summands = producer.inputs if producer.op_type == "Add" else node.inputs[:1]
    if not any(name in graph.producer and graph.producer[name].op_type == "Conv" for name in summands):
        return False
    return slope.size == shape[1] and slope.shape[-3:] == (shape[1], 1, 1) and shape[1] % _BLOCK == 0


def _convolved(edit: Edit, node: Node, slope: Slope) -> list[onnx.NodeProto]:
    """``a x + (1 - a) max(x, 0)``; of slopes up to 1 the second Conv comes before the Relu, which it absorbs."""
    source = node.inputs[0]
    below, above = (
        edit.constant(f"{node.name}_{called}", values.reshape(-1, 1, 1, 1))
        for called, values in (("slope", slope), ("rest", 1 - slope))
    )
    falling, middle, rising = (edit.names.new(f"{node.name}_{part}_out") for part in ("below", "middle", "above"))

    def scaled(read: str, kernel: str, written: str, part: str) -> onnx.NodeProto:
        name, ones = f"{node.name}_{part}", (1, 1)
        return helper.make_node("Conv", [read, kernel], [written], name=name, group=slope.size, kernel_shape=ones)

    def clipped(read: str, written: str) -> onnx.NodeProto:
        return helper.make_node("Relu", [read], [written], name=f"{node.name}_relu")

    if (slope <= 1).all():
        positive = [scaled(source, above, middle, "above"), clipped(middle, rising)]
    else:
        positive = [clipped(source, middle), scaled(middle, above, rising, "above")]
    added = helper.make_node("Add", [falling, rising], list(node.outputs), name=node.name)
    return [scaled(source, below, falling, "below"), *positive, added]


def _larger(edit: Edit, node: Node, op_type: str) -> list[onnx.NodeProto]:
    product = edit.names.new(f"{node.name}_scaled")
    return [
        helper.make_node("Mul", list(node.inputs), [product], name=f"{node.name}_slope"),
        helper.make_node(op_type, [node.inputs[0], product], list(node.outputs), name=node.name),
    ]


def _parts(edit: Edit, node: Node) -> list[onnx.NodeProto]:
    source, slope = node.inputs
    zero = edit.constant(f"{node.name}_zero", np.zeros((), np.float32))
    above, below, scaled = (edit.names.new(f"{node.name}_{part}") for part in ("above", "below", "scaled"))
    return [
        helper.make_node("Max", [source, zero], [above], name=f"{node.name}_above"),
        helper.make_node("Min", [source, zero], [below], name=f"{node.name}_below"),
        helper.make_node("Mul", [below, slope], [scaled], name=f"{node.name}_slope"),
        helper.make_node("Add", [above, scaled], list(node.outputs), name=node.name),
    ]


def _behind_conv(graph: Graph, clip: Node) -> list[Node]:
    """What is between a Conv and a Relu or Clip that could change places with it, in order; empty where nothing is."""
    bounds = clip_bounds(clip, graph) if kind_of(clip) is Kind.CLIPPING else None
    between: list[Node] = []
    if bounds is None or not bounds[0] <= 0 <= bounds[1]:
        return between
    source = clip.inputs[0]
    while graph.only_reader(source) is not None and source in graph.producer:
        producer = graph.producer[source]
        if producer.op_type == "Conv":
            return between
        if not only_moves(producer) and not is_pool_of_values(producer):
            break
        between.insert(0, producer)
        source = producer.inputs[0]
    return []
