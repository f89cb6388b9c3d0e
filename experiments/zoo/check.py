"""Whether a made model computes something sensible from its data: facts for a person, and a verdict."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx

from experiments.zoo.inputs import open_session
from experiments.zoo.make import SPLITS

__all__ = ["Check", "check_model"]

WEIGHTED = ("Conv", "Gemm", "MatMul", "ConvTranspose", "LSTM", "GRU")
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What running a model over all of its samples showed.

    Attributes:
        facts: The model and its latency, in one line.
        problems: One sentence for each thing that shouldn't be so.
    """

    facts: str
    problems: tuple[str, ...]


def check_model(folder: Path) -> Check:
    """Run a model over its samples and look for repeated samples, non-finite outputs and outputs that never change."""
    session = open_session(folder / "model.onnx")
    seconds, outputs, feeds = [], [], []
    for split in SPLITS:
        for feed in _feeds(folder / f"{split}.npz", session):
            start = perf_counter()
            outputs.append(session.run(None, feed))
            seconds.append(perf_counter() - start)
            feeds.append(b"".join(array.tobytes() for array in feed.values()))
    problems = []
    if (n_distinct := len(set(feeds))) < len(feeds):
        problems.append(f"Only {n_distinct} of {len(feeds)} samples are distinct.")
    if any(not np.isfinite(array).all() for arrays in outputs for array in arrays if array.dtype.kind == "f"):
        problems.append("Some outputs aren't finite.")
    if all(_is_constant(values) for values in zip(*outputs, strict=True)):
        problems.append("No output depends on the sample.")
    median_ms = 1e3 * float(np.median(seconds))
    return Check(
        facts=f"{_describe(folder / 'model.onnx')}, {median_ms:.2f} ms on one thread", problems=tuple(problems)
    )


def _feeds(path: Path, session: Any) -> Iterator[dict[str, np.ndarray]]:
    ranks = {value.name: len(value.shape) for value in session.get_inputs()}
    with np.load(path) as file:
        arrays = {name: file[name] for name in ranks}
    for i in range(len(next(iter(arrays.values())))):
        yield {n: a[i : i + 1] if a.ndim == ranks[n] else np.asarray(a[i]) for n, a in arrays.items()}


def _is_constant(values: tuple[np.ndarray, ...]) -> bool:
    return all(value.shape == values[0].shape and np.array_equal(value, values[0]) for value in values)


def _describe(path: Path) -> str:
    model = onnx.load(path)
    graphs = list(_graphs(model.graph))
    operators = Counter(node.op_type for graph in graphs for node in graph.node)
    tensors = [tensor for graph in graphs for tensor in _constants(graph) if tensor.data_type in FLOATS]
    n_parameters = sum(int(np.prod(tensor.dims)) for tensor in tensors)
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    weighted = ", ".join(f"{operators[op]} {op}" for op in WEIGHTED if operators[op])
    n_nodes = operators.total() - operators["Constant"]
    megabytes = path.stat().st_size / 1e6
    return f"{megabytes:.2f} MB, {n_parameters / 1e6:.2f} M parameters, opset {opset}, {n_nodes} nodes: {weighted}"


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        if node.op_type == "Constant":
            yield from (attribute.t for attribute in node.attribute if attribute.name == "value")
