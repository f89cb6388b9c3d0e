"""How the channels of a tensor move when its places do."""

import math
from collections.abc import Sequence

import numpy as np

from autoquant.equalisation.ties import Labels

__all__ = ["along", "differs_only_along", "fits_in", "narrowed", "of_rank", "reshaped"]


def along(channels: Labels, axis: int, rank: int) -> Labels:
    """One-dimensional channels at an axis of a tensor."""
    return channels.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def of_rank(labels: Labels, rank: int) -> Labels:
    """The same with leading axes of size 1."""
    return labels.reshape((1,) * (rank - labels.ndim) + labels.shape)


def differs_only_along(labels: Labels, axis: int) -> bool:
    """Whether channels are the same along all other axes."""
    return all(size == 1 or i == axis % labels.ndim for i, size in enumerate(labels.shape))


def fits_in(labels: Labels, shape: Sequence[int]) -> bool:
    """Whether a constant of this shape has a place of its own for every channel."""
    padded = (1,) * (labels.ndim - len(shape)) + tuple(shape)
    return len(padded) == labels.ndim and all(n in (1, m) for n, m in zip(labels.shape, padded, strict=True))


def reshaped(labels: Labels, before: Sequence[int], after: Sequence[int]) -> Labels:
    """The channels of a tensor whose elements, in their order, get another shape.

    Only axes that are merged or split with one along which channels differ are spread out.

    Args:
        labels: Channels of the tensor, rank of ``before``.
        before: Shape, without 0.
        after: Shape with as many elements.
    """
    spread: list[int] = []
    for (i, j), (k, m) in _segments(before, after):
        is_one = math.prod(labels.shape[i:j]) == 1
        labels = labels if is_one else np.broadcast_to(labels, [*labels.shape[:i], *before[i:j], *labels.shape[j:]])
        spread += [1] * (m - k) if is_one else after[k:m]
    return narrowed(labels.reshape(spread))


def narrowed(labels: Labels) -> Labels:
    """The same with size 1 along axes along which channels do not differ."""
    for axis in range(labels.ndim):
        first = labels.take([0], axis=axis)
        labels = first if (labels == first).all() else labels
    return labels


def _segments(before: Sequence[int], after: Sequence[int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Shortest runs of axes with the same number of elements on both sides."""
    found, i, k = [], 0, 0
    while i < len(before) or k < len(after):
        j, m = min(i + 1, len(before)), min(k + 1, len(after))
        while math.prod(before[i:j]) != math.prod(after[k:m]):
            j, m = (j + 1, m) if math.prod(before[i:j]) < math.prod(after[k:m]) else (j, m + 1)
        found.append(((i, j), (k, m)))
        i, k = j, m
    return found
