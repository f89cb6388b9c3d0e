"""Generated float models, what is needed to quantize them, and what became of each node."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from hypothesis import strategies as st
from onnx import numpy_helper

from autoquant.domain.feed import Feed
from autoquant.domain.region import NodeName, Region, RegionId, TensorName
from autoquant.domain.rewrite import Rewrites
from autoquant.domain.scheme import DType, Operators, RangeMethod, Scheme, TensorFormat
from autoquant.domain.statistics import CalibrationRange
from autoquant.model.fragments import inline_external
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import Kind, kind_of
from autoquant.model.optimized import OptimizedGraph, read_optimized
from autoquant.model.rewrite import with_outputs
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.plan import Plan
from autoquant.space.schema import read_space
from tests.models import Array, floats, model_of

__all__ = [
    "OP_TYPES",
    "U8S8_CHANNEL",
    "U8S8_TENSOR",
    "U16S8",
    "Case",
    "Quantized",
    "case_of",
    "exact",
    "models",
    "nodes_as_text",
    "op_types_of",
    "opened",
    "optimized",
    "run",
    "scheme",
    "uses",
]

OP_TYPES = read_space("default", ep="cpu").op_types | {"Softmax"}
"""What can run on integers on the CPU provider."""

Floats = npt.NDArray[np.float32]
Constants = dict[str, Array | float]
Mix = Mapping[NodeName, Scheme | None] | Mapping[str, Scheme | None]
Extremes = Mapping[TensorName, tuple[np.float32, np.float32]]


def scheme(activation: str, weight: str, operators: Operators = Operators.ALL, ranges: str = "min-max") -> Scheme:
    return Scheme(
        name=f"{activation}/{weight}/{ranges}/{operators}",
        activation=TensorFormat.parse(activation),
        weight=TensorFormat.parse(weight),
        ranges=RangeMethod.parse(ranges),
        operators=operators,
    )


def exact(given: Scheme | None) -> Scheme | None:
    """With weights for which kernels are exact on every processor."""
    if given is None or given.weight.dtype is not DType.S8:
        return given
    return replace(given, weight=replace(given.weight, unsaturated=True))


U8S8_TENSOR = scheme("u8:tensor:asym", "s8:tensor:sym")
U8S8_CHANNEL = scheme("u8:tensor:asym", "s8:channel:sym")
U16S8 = scheme("u16:tensor:asym", "s8:tensor:sym")


# Sessions


def opened(
    model: onnx.ModelProto, optimized_path: str | None = None, *, is_optimized: bool = True
) -> ort.InferenceSession:
    """With default options apart from threads, logging and what is asked for."""
    options = ort.SessionOptions()
    if not is_optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if optimized_path:
        options.optimized_model_filepath = optimized_path
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def rewritten(case: "Case", quantized: Collection[str], rewrites: Rewrites) -> onnx.ModelProto:
    """A candidate in which some regions are quantized, 8 bits a channel, and which is written in some way."""
    taken = exact(U8S8_CHANNEL)
    assert taken is not None
    builder = case.builder({taken.name: taken})
    builder.write(rewrites)
    candidate = builder.build({RegionId(name): taken.name for name in quantized})
    return inline_external(candidate.skeleton, candidate.constants, {})


def optimized(model: onnx.ModelProto, folder: Path) -> OptimizedGraph:
    """The graph that runs under default session options."""
    opened(model, str(folder / "optimized.onnx"))
    return read_optimized(folder / "optimized.onnx")


def op_types_of(model: onnx.ModelProto) -> list[str]:
    """Of its nodes, in their order."""
    return [node.op_type for node in model.graph.node]


def run(model: onnx.ModelProto, feed: Feed) -> list[Floats]:
    found: list[Floats] = opened(model).run(None, dict(feed))
    return found


# Building


@dataclass(frozen=True)
class Quantized:
    """What our builder made."""

    plan: Plan
    candidate: Candidate
    model: onnx.ModelProto
    builder: Builder


@dataclass(frozen=True)
class Case:
    """A float model with one sample and the extremes of each of its activations on it."""

    graph: Graph
    feed: Feed
    extremes: Extremes
    op_types: frozenset[str] = OP_TYPES

    def ranges(
        self,
        tensor: TensorName,
        tensor_format: TensorFormat,  # noqa: ARG002
        method: RangeMethod,
    ) -> CalibrationRange:
        low, high = self.extremes[tensor]
        share = 1.0 if method.percent is None else method.percent / 100
        return CalibrationRange(float(low) * share, float(high) * share)

    def builder(self, schemes: Mapping[str, Scheme]) -> Builder:
        """With one region a node, of the node's name."""
        regions = [_region(RegionId(node.name), [node.name]) for node in self.graph.nodes]
        return Builder(self.graph, regions, schemes, self.op_types, self.ranges)

    def quantized(self, default: Scheme | None, nodes: Mix | None = None) -> Quantized:
        """All nodes take the default scheme, those that are named another one; None is float."""
        chosen = {node.name: default for node in self.graph.nodes}
        chosen.update({NodeName(name): taken for name, taken in (nodes or {}).items()})
        schemes = {taken.name: taken for taken in chosen.values() if taken}
        builder = self.builder(schemes)
        assignment = {RegionId(name): taken.name for name, taken in chosen.items() if taken}
        candidate = builder.build(assignment)
        model = inline_external(candidate.skeleton, candidate.constants, {})
        return Quantized(builder.plan(assignment), candidate, model, builder)

    @property
    def hard_sigmoids_in_float(self) -> "Case":
        """For comparisons: onnxruntime's quantizer leaves the operator as it is, ours does not (decision 0040)."""
        return replace(self, op_types=self.op_types - {"HardSigmoid"})

    def without_outside_clips(self, plan: Plan) -> bool:
        """Whether the plan absorbs every Relu and Clip."""
        clips = {node.index for node in self.graph.nodes if kind_of(node) is Kind.CLIPPING}
        return clips <= set(plan.absorbed)

    @property
    def is_well_conditioned(self) -> bool:
        """Whether no product, sum or clip is so small beside what it reads that steps of that are most of it."""
        nodes = (n for n in self.graph.nodes if n.op_type == "Add" or kind_of(n) in (Kind.LINEAR, Kind.CLIPPING))
        return all(self._largest(node.outputs[0]) > 0.1 * self._largest_read(node) for node in nodes)

    def _largest_read(self, node: Node) -> float:
        largest = [self._largest(tensor) for tensor in node.inputs[:2]]
        return math.prod(largest) if kind_of(node) is Kind.LINEAR else max(largest)

    def _largest(self, tensor: TensorName) -> float:
        values = self.graph.constant(tensor) if self.graph.is_constant(tensor) else self.extremes[tensor]
        return float(np.abs(values).max())


def _region(name: RegionId, nodes: Collection[NodeName]) -> Region:
    return Region(id=name, nodes=tuple(nodes), inputs=(), outputs=(), pattern="", op_types=("",) * len(nodes), work=1.0)


def case_of(model: onnx.ModelProto, feed: Feed | None = None, seed: int = 0) -> Case:
    graph = Graph(model)
    if feed is None:
        feed = {name: floats(*(graph.shape(name) or ()), seed=seed) for name in graph.inputs}
    names = [name for node in graph.nodes for name in node.outputs if name in graph.float_tensors]
    session = opened(with_outputs(model, {name: graph.shape(name) for name in names}))
    values = dict(zip(names, session.run(names, dict(feed)), strict=True))
    values.update({TensorName(name): array for name, array in feed.items()})
    return Case(graph, feed, {name: (np.min(array), np.max(array)) for name, array in values.items()})


# Reading models


def nodes_as_text(model: onnx.ModelProto) -> str:
    """One line a node: operator, inputs, outputs."""
    lines = [f"{n.op_type}({', '.join(n.input)}) -> {', '.join(n.output)}" for n in model.graph.node]
    return "\n".join(lines) + "\n"


def uses(model: onnx.ModelProto) -> dict[str, tuple[object, ...]]:
    """For each node but Q and DQ its operator and where each input comes from, for each graph output the latter.

    That is the QDQ pairs on the way with their numbers, back to the output of a node, a graph input, or the values of a
    constant. Names of other tensors do not count.
    """
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    producer = {out: node for node in model.graph.node for out in node.output}

    def origin(tensor: str) -> tuple[object, ...]:
        steps: list[object] = []
        while tensor in producer and producer[tensor].op_type in ("QuantizeLinear", "DequantizeLinear"):
            node = producer[tensor]
            scale, zero_point = (constants[name] for name in node.input[1:3])
            axis = [a.i for a in node.attribute if a.name == "axis"] if scale.size > 1 else []
            numbers = (scale.ravel().tolist(), set(zero_point.ravel().tolist()), str(zero_point.dtype))
            steps.append((node.op_type, *numbers, axis))
            tensor = node.input[0]
        if tensor in constants:
            value = constants[tensor]
            return (*steps, str(value.dtype), value.shape, value.tobytes())
        if tensor in producer:
            return (*steps, producer[tensor].name, list(producer[tensor].output).index(tensor))
        return (*steps, tensor)

    found: dict[str, tuple[object, ...]] = {
        node.name: (node.op_type, *map(origin, node.input))
        for node in model.graph.node
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear")
    }
    return found | {f"output {value.name}": origin(value.name) for value in model.graph.output}


# Strategies


@dataclass
class _Sketch:
    """A model in the making; ``tensor`` is the end of its chain."""

    seed: int
    input_shape: tuple[int, ...]
    shape: tuple[int, ...]
    tensor: str = "x"
    lines: list[str] = field(default_factory=list)
    constants: Constants = field(default_factory=dict)
    earlier: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def constant(self, *shape: int, scale: float = 1.0) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = floats(*shape, seed=self.seed + len(self.constants), scale=scale)
        return name

    def add(self, call: str, shape: tuple[int, ...] | None = None) -> None:
        """A node whose text names the end of the chain ``@``."""
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {call.replace('@', self.tensor)}")
        self.tensor, self.shape = name, shape or self.shape

    def conv(self, n_channels: int, kernel: int, has_bias: bool, groups: int = 1) -> None:
        n, c, *size = self.shape
        weight = self.constant(n_channels, c // groups, kernel, kernel, scale=1 / math.sqrt(c * kernel**2))
        bias = f", {self.constant(n_channels)}" if has_bias else ""
        pad = kernel // 2
        self.add(f"Conv<pads=[{pad},{pad},{pad},{pad}], group={groups}>(@, {weight}{bias})", (n, n_channels, *size))

    def gemm(self, n_outputs: int, has_bias: bool, transposed: bool) -> None:
        n, c = self.shape
        weight = self.constant(*((n_outputs, c) if transposed else (c, n_outputs)), scale=1 / math.sqrt(c))
        bias = f", {self.constant(n_outputs)}" if has_bias else ""
        self.add(f"Gemm<transB={int(transposed)}>(@, {weight}{bias})", (n, n_outputs))

    def flatten(self, size: int) -> None:
        self.constants["flat"] = np.array([2, -1], np.int64)
        self.add("Reshape(@, flat)", (2, size))

    def remember(self) -> None:
        self.earlier.append((self.tensor, self.shape))

    def model(self) -> onnx.ModelProto:
        given, dims = (",".join(map(str, shape)) for shape in (self.input_shape, self.shape))
        body = "\n".join([*self.lines, f"y = Mul({self.tensor}, {self.constant(1)})"])
        return model_of(f"(float[{given}] x) => (float[{dims}] y)", body, self.constants)


_ANYWHERE = ["add_constant", "mul_constant", "sigmoid", "leaky", "residual_add", "residual_mul", "concat", "add_relu"]
_IMAGE = ["conv", "conv", "conv_relu", "conv_clip", "depthwise", "maxpool", "average", "global", "flatten", "resize"]
_MATRIX = ["gemm", "gemm", "gemm_relu", "matmul", "softmax", "product", "transpose"]


@st.composite
def models(draw: st.DrawFn, max_nodes: int = 7) -> onnx.ModelProto:
    """Chains with residuals of operators that have integer kernels; every reader takes integers, each Relu and Clip is
    the only reader of its input, and an element-wise operator comes last."""
    shape = draw(st.sampled_from([(2, 3, 6, 6), (2, 10)]))
    sketch = _Sketch(draw(st.integers(0, 2**16)), shape, shape)
    first = (
        ["conv", "conv_relu", "add_constant", "depthwise"] if len(shape) == 4 else ["gemm", "matmul", "mul_constant"]
    )
    _extend(draw, sketch, draw(st.sampled_from(first)))
    for _ in range(draw(st.integers(1, max_nodes))):
        _extend(draw, sketch, draw(st.sampled_from(_ANYWHERE + (_IMAGE if len(sketch.shape) == 4 else _MATRIX))))
    return sketch.model()


def _extend(draw: st.DrawFn, sketch: _Sketch, kind: str) -> None:
    if kind in _IMAGE:
        _extend_image(draw, sketch, kind)
    elif kind in _MATRIX:
        _extend_matrix(draw, sketch, kind)
    else:
        _extend_anything(draw, sketch, kind)
    sketch.remember()


def _extend_image(draw: st.DrawFn, sketch: _Sketch, kind: str) -> None:
    n, c, *size = sketch.shape
    if kind.startswith("conv"):
        sketch.conv(draw(st.integers(1, 5)), draw(st.sampled_from([1, 3])), draw(st.booleans()))
        if kind != "conv":
            sketch.constants.update(low=0.0, high=0.5)
            sketch.add("Relu(@)" if kind == "conv_relu" else "Clip(@, low, high)")
    elif kind == "depthwise":
        sketch.conv(c, 3, draw(st.booleans()), groups=c)
    elif kind == "flatten":
        sketch.flatten(c * math.prod(size))
    elif kind == "global":
        sketch.add("GlobalAveragePool(@)", (n, c, 1, 1))
    elif kind == "resize":
        if size[0] * size[1] < 100:
            sketch.constants["scales"] = np.array([1, 1, 2, 2], np.float32)
            call = 'Resize<mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric">'
            sketch.add(f"{call}(@, , scales)", (n, c, 2 * size[0], 2 * size[1]))
    else:
        pool = {"maxpool": "MaxPool", "average": "AveragePool"}[kind]
        sketch.add(f"{pool}<kernel_shape=[3,3], pads=[1,1,1,1]>(@)")


def _extend_matrix(draw: st.DrawFn, sketch: _Sketch, kind: str) -> None:
    n, c = sketch.shape
    if kind.startswith("gemm"):
        sketch.gemm(draw(st.integers(1, 6)), draw(st.booleans()), draw(st.booleans()))
        if kind == "gemm_relu":
            sketch.add("Relu(@)")
    elif kind == "matmul":
        n_outputs = draw(st.integers(1, 6))
        sketch.add(f"MatMul(@, {sketch.constant(c, n_outputs)})", (n, n_outputs))
    elif kind == "softmax":
        if c > 1:  # onnxruntime's integer kernel gives 0 for the softmax of a single value
            sketch.add("Softmax<axis=-1>(@)")
    else:
        before = sketch.tensor
        sketch.add("Transpose<perm=[1,0]>(@)", (c, n))
        if kind == "product" and n * c < 500:
            sketch.add(f"MatMul({before}, @)", (n, n))


def _extend_anything(draw: st.DrawFn, sketch: _Sketch, kind: str) -> None:
    if kind in ("residual_add", "residual_mul", "concat", "add_relu"):
        others = [name for name, shape in sketch.earlier if shape == sketch.shape and name != sketch.tensor]
        other = draw(st.sampled_from(others)) if others else sketch.constant(*sketch.shape[1:])
        if kind == "concat" and others:
            n, c, *size = sketch.shape
            sketch.add(f"Concat<axis=1>(@, {other})", (n, 2 * c, *size))
        else:
            sketch.add(f"{'Mul' if kind == 'residual_mul' else 'Add'}(@, {other})")
            if kind == "add_relu":
                sketch.add("Relu(@)")
    elif kind == "sigmoid":
        sketch.add("Sigmoid(@)")
    elif kind == "leaky":
        sketch.add("LeakyRelu<alpha=0.1>(@)")
    else:
        shape = sketch.shape[1:] if len(sketch.shape) == 2 else (sketch.shape[1], 1, 1)
        sketch.add(f"{'Add' if kind == 'add_constant' else 'Mul'}(@, {sketch.constant(*shape)})")
