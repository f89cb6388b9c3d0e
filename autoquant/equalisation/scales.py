"""Scales that balance the channels of activations against the weights that read them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.statistics import ChannelStatistics
from autoquant.equalisation.channels import Channels, ScaledConstant
from autoquant.equalisation.places import differs_only_along
from autoquant.equalisation.ties import FIXED, Labels, Ties
from autoquant.model.graph import Graph
from autoquant.model.ops import channel_axis, is_linear

__all__ = ["MAX_EXPONENT", "choose_exponents"]

MAX_EXPONENT = 8
"""Scales lie within 2^-8 and 2^8."""
_ACTIVATION_STEPS = 255
_WEIGHT_STEPS = 127
_MOST_WEIGHTS = 1 << 24
"""Of one reader: balancing takes some 50 bytes for each of them."""
_SPREAD = 8.0
"""Width of a channel's range in standard deviations, for the power of what it carries."""
Floats = npt.NDArray[np.float64]
Number = TypeVar("Number", np.float64, np.intp)


def choose_exponents(graph: Graph, channels: Channels, statistics: Mapping[TensorName, ChannelStatistics]) -> Labels:
    """Choose a power of two for every channel.

    The scale of channel c is the geometric mean of its range, relative to that of the widest channel, and of one over
    the largest weight that reads it: ``sqrt(range_c / weight_c)``. Tensors that share channels are balanced together,
    and only where 8-bit integers are then expected to cause less error in the outputs of their readers: activations
    with one scale a tensor, weights with one an output channel. Channels that carry nothing, or that nothing reads,
    keep scale 1, and so do all without statistics and all that a weight of more than 16 million elements reads.

    Args:
        graph: The prepared model.
        channels: Of that model.
        statistics: Of the channels of activations.

    Returns:
        Exponents, shape (n,), between ``-MAX_EXPONENT`` and ``MAX_EXPONENT``; that of channel 0 is 0.

    References:
        Xiao et al., "SmoothQuant", arXiv 2211.10438, equation 4 with alpha 0.5.
        Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", arXiv 1906.04721.
    """
    number = _sets(channels)
    sets: dict[int, dict[TensorName, _Activation]] = {}
    for tensor, activation in _activations(channels, statistics):
        sets.setdefault(int(number[activation.labels].max()), {})[tensor] = activation
    exponents = np.zeros(channels.n, np.intp)
    for home, members in sets.items():
        read = [
            (found, members[source]) for found in channels.constants if (source := _read_with(graph, found)) in members
        ]
        if any(math.prod(_shape(graph, found)) > _MOST_WEIGHTS for found, _ in read):
            continue
        readers = [_Reader.of(graph, found, source) for found, source in read]
        balance = _Balance(tuple(members.values()), readers, channels.n)
        exponents[number == home] = balance.choose()[number == home]
    return exponents


def _sets(channels: Channels) -> Labels:
    """For every channel the number of the set that it is balanced in: all that meet in some tensor."""
    ties = Ties()
    ties.fresh(channels.n - 1)
    for labels in channels.labels.values():
        free = np.unique(labels[labels != FIXED])
        ties.tie(free[:1], free)
    return ties.numbers()


@dataclass(frozen=True, slots=True)
class _Activation:
    """One tensor whose channels were observed; arrays of shape (C,).

    Attributes:
        labels: Its channels.
        low: Smallest values, at most 0.
        high: Largest values, at least 0.
        power: Estimates of the mean squares.
    """

    labels: Labels
    low: Floats
    high: Floats
    power: Floats

    @classmethod
    def of(cls, labels: Labels, statistics: ChannelStatistics) -> Self:
        low, high = (side.astype(np.float64) for side in (statistics.minimum, statistics.maximum))
        power = statistics.mean**2 + ((high - low) / _SPREAD) ** 2
        return cls(np.broadcast_to(labels, low.shape), np.minimum(low, 0), np.maximum(high, 0), power)

    def step(self, scales: Floats) -> float:
        """Of the integers, once the channels are divided by their scales."""
        own = scales[self.labels]
        return float(((self.high / own).max() - (self.low / own).min()) / _ACTIVATION_STEPS)


def _activations(
    channels: Channels, statistics: Mapping[TensorName, ChannelStatistics]
) -> Iterator[tuple[TensorName, _Activation]]:
    for tensor, labels in channels.labels.items():
        found = statistics.get(tensor)
        if found is None or not differs_only_along(labels, found.axis) or labels.size not in (1, found.minimum.size):
            continue
        if found.minimum.size and _is_finite(found):
            yield tensor, _Activation.of(labels.ravel(), found)


def _is_finite(found: ChannelStatistics) -> bool:
    extremes = np.isfinite(found.minimum) & np.isfinite(found.maximum)
    return bool((extremes & np.isfinite(found.mean)).all())


@dataclass(frozen=True, slots=True)
class _Reader:
    """The weight of a linear operator, taps of a kernel taken together; arrays of shape (outputs, inputs).

    Attributes:
        labels: Channels that each weight reads.
        peak: Largest magnitudes.
        energy: Sums of squares.
        power: Mean squares of what they multiply, times the number of taps.
    """

    labels: Labels
    peak: Floats
    energy: Floats
    power: Floats

    @classmethod
    def of(cls, graph: Graph, constant: ScaledConstant, source: _Activation) -> Self:
        node = graph.nodes[constant.node]
        weight = np.abs(graph.constant(node.inputs[constant.slot]).astype(np.float64))
        labels, axis = np.broadcast_to(constant.times, weight.shape), channel_axis(node, graph)
        taps = tuple(range(2, weight.ndim))
        rows = _rows(labels[(...,) + (0,) * len(taps)], axis)
        peak, energy = (_rows(matrix, axis) for matrix in (weight.max(axis=taps), (weight**2).sum(axis=taps)))
        return cls(rows, peak, energy, _mean_by_label(source)[rows] * math.prod(weight.shape[2:]))

    def error(self, scales: Floats) -> float:
        """Squared error of the outputs that the rounding of the weights is expected to cause."""
        own = scales[self.labels]
        steps = (self.peak * own).max(axis=1) / _WEIGHT_STEPS
        return float((steps**2 * (self.power / own**2).sum(axis=1)).sum() / 12)


def _rows(matrix: npt.NDArray[Number], axis: int | None) -> npt.NDArray[Number]:
    """With what shares one scale in a row."""
    return matrix.reshape(1, -1) if axis is None else np.moveaxis(matrix, axis, 0)


def _mean_by_label(source: _Activation) -> Floats:
    counts = np.bincount(source.labels)
    return np.asarray(np.bincount(source.labels, source.power) / np.maximum(counts, 1))


def _read_with(graph: Graph, constant: ScaledConstant) -> TensorName | None:
    """The activation that a weight multiplies; None of other constants."""
    node = graph.nodes[constant.node]
    return node.inputs[0] if constant.slot == 1 and is_linear(node, graph) else None


def _shape(graph: Graph, constant: ScaledConstant) -> Sequence[int]:
    return graph.shape(graph.nodes[constant.node].inputs[constant.slot]) or ()


class _Balance:
    """Channels that are balanced together."""

    def __init__(self, activations: Sequence[_Activation], readers: Sequence[_Reader], n: int) -> None:
        self._activations = activations
        self._readers = readers
        self._gain = np.zeros(n)
        self._range = np.zeros(n)
        self._weight = np.zeros(n)
        for reader in readers:
            np.add.at(self._gain, reader.labels, reader.energy)
            np.maximum.at(self._weight, reader.labels, reader.peak)
        for activation in activations:
            magnitude = np.maximum(-activation.low, activation.high)
            np.maximum.at(self._range, activation.labels, magnitude / (magnitude.max() or 1.0))

    def choose(self) -> Labels:
        """Exponents of all channels, 0 of those that are balanced elsewhere."""
        live = (self._range > 0) & (self._weight > 0) & np.isfinite(self._range * self._weight)
        live[FIXED] = False
        found = np.zeros(live.size, np.intp)
        if live.any():
            wanted = np.log2(self._range[live] / self._weight[live]) / 2
            found[live] = np.clip(np.rint(wanted - np.median(wanted)), -MAX_EXPONENT, MAX_EXPONENT)
        return found if self._error(found) < self._error(np.zeros_like(found)) else np.zeros_like(found)

    def _error(self, exponents: Labels) -> float:
        """Squared error of the readers' outputs, summed: of rounding activations, then of rounding weights."""
        scales = np.exp2(exponents)
        error = sum(reader.error(scales) for reader in self._readers)
        for activation in self._activations:
            own = np.unique(activation.labels)
            error += activation.step(scales) ** 2 * float((self._gain[own] * scales[own] ** 2).sum()) / 12
        return error
