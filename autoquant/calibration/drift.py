"""How far the means of channels drift from those of the float model, operator by operator."""

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Feed
from autoquant.domain.region import NodeName, TensorName
from autoquant.domain.target import Target
from autoquant.model.copies import Model, in_parts
from autoquant.model.graph import Graph
from autoquant.model.rewrite import with_outputs
from autoquant.model.segments import Segment, segments
from autoquant.runtime.session import open_parts

__all__ = ["channel_means", "residual_shifts", "shrunk"]

Floats = npt.NDArray[np.float64]
_Live = dict[TensorName, npt.NDArray[np.generic]]

_HELD_BYTES = 1 << 29
_LEAST_SAMPLES = 2
"""A mean of one sample alone has no error that could be told."""


def channel_means(
    model: Model, axes: Mapping[TensorName, int], feeds: Iterable[Feed]
) -> Mapping[TensorName, npt.NDArray[np.float64]]:
    """Means of the channels of some tensors, sample by sample.

    Args:
        model: Writes the tensors somewhere.
        axes: Of the channels, by tensor.
        feeds: At least one sample.

    Returns:
        By tensor, shape (n, C); NaN for samples in which it holds no value.
    """
    # onnxruntime fuses Transposes around a Gemm whose output is fetched, unless its input is too, and then misses it
    beside = [n.inputs[0] for n in Graph(model).nodes if n.op_type == "Gemm" and n.outputs[0] in axes]
    fetched: dict[str, tuple[int, ...] | None] = dict.fromkeys([*axes, *beside])
    session = open_parts(*in_parts(model, lambda skeleton: with_outputs(skeleton, fetched)), Target())
    found: dict[TensorName, list[Floats]] = {name: [] for name in axes}
    for feed in feeds:
        for name, values in zip(axes, session.run(list(axes), feed), strict=True):
            found[name].append(_means(values, axes[name]))
    return {name: np.stack(means) for name, means in found.items()}


def residual_shifts(
    model: Model,
    reference: Mapping[NodeName, Floats],
    axes: Mapping[NodeName, int],
    feeds: Sequence[Feed],
    *,
    seconds: float,
    held_bytes: int = _HELD_BYTES,
) -> Mapping[NodeName, Floats]:
    """What is to be taken off the outputs of a quantized model's operators so that their means are those of float.

    Each operator is observed with all before it corrected: the samples go through the model together, from one of these
    operators to the next, and what was found is taken off before they go on. So every node runs once a sample.

    Args:
        model: The quantized one.
        reference: Means of the float model's channels by operator and sample, shape (n, C), as of ``channel_means``.
        axes: Of the channels of what each operator writes.
        feeds: The n samples of ``reference``.
        seconds: Operators that there is no time for are left out.
        held_bytes: Of tensors between two operators; there the last samples are given up for the operators that follow,
            apart from two.

    Returns:
        Shape (C,), by operator, ``shrunk``; none for operators behind which a sequence of tensors goes on.
    """
    end = time.perf_counter() + seconds
    live: list[_Live] = [{TensorName(name): array for name, array in feed.items()} for feed in feeds]
    found: dict[NodeName, Floats] = {}
    for segment in segments(model, list(reference)):
        if time.perf_counter() > end:
            break
        _advance(segment, live, held_bytes)
        axis = axes[segment.end]
        means = np.stack([_means(tensors[segment.target], axis) for tensors in live])
        found[segment.end] = shrunk(means - reference[segment.end][: len(live)])
        for tensors in live:
            tensors[segment.target] = _moved(tensors[segment.target], found[segment.end], axis)
    return found


def shrunk(differences: Floats) -> Floats:
    """Mean differences, the less of them the less they are known: taking off chance would add noise to all samples.

    Args:
        differences: Shape (n, C), of n samples; those that are NaN throughout do not count.

    Returns:
        Shape (C,): zeros for less than two samples.

    References:
        Efron and Morris, "Stein's estimation rule and its competitors - an empirical Bayes approach", JASA 68, 1973.
    """
    differences = differences[~np.isnan(differences).all(axis=1)]
    n = len(differences)
    if n < _LEAST_SAMPLES:
        return np.zeros(differences.shape[1])
    means: Floats = differences.mean(axis=0)
    errors = differences.var(axis=0, ddof=1) / n
    spread = max(float(np.mean(means**2 - errors)), 0.0)
    total = spread + errors
    found: Floats = np.divide(means * spread, total, out=np.zeros_like(means), where=total > 0)
    return found


def _advance(segment: Segment, live: list[_Live], held_bytes: int) -> None:
    """Replace what the samples hold by what the segment and those after it need; give up those beyond the bytes."""
    dtypes = {name: live[0][name].dtype for name in segment.reads}
    session, held = open_parts(*in_parts(segment.model(dtypes)), Target()), 0
    for number, tensors in enumerate(live):
        if number >= _LEAST_SAMPLES and held > held_bytes:
            del live[number:]
            break
        written = session.run(list(segment.writes), {name: tensors[name] for name in segment.reads})
        for name in tensors.keys() - segment.kept:
            del tensors[name]
        tensors.update(zip(segment.writes, written, strict=True))
        held += sum(array.nbytes for array in tensors.values())


def _means(values: npt.NDArray[np.generic], axis: int) -> Floats:
    if not values.size:
        return np.full(values.shape[axis], np.nan)
    others = tuple(i for i in range(values.ndim) if i != axis % values.ndim)
    means: Floats = values.astype(np.float32, copy=False).mean(axis=others, dtype=np.float64)
    return means


def _moved(values: npt.NDArray[np.generic], shift: Floats, axis: int) -> npt.NDArray[np.generic]:
    shape = [-1 if i == axis % values.ndim else 1 for i in range(values.ndim)]
    return values.astype(np.float32, copy=False) - shift.astype(np.float32).reshape(shape)
