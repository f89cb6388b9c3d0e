"""Convolutions of 3 x 3 with fewer products: F(4 x 4, 3 x 3), tiles of 4 x 4 outputs from windows of 6 x 6 inputs.

References:
    Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016 (arXiv 1509.09308), section 4.3.
"""

import re

import numpy as np
import numpy.typing as npt

__all__ = ["TILE", "WINDOW", "combine_products", "part_name", "transform_weight", "transform_windows", "whole_name"]

Floats = npt.NDArray[np.float32]

TILE, WINDOW = 4, 6
_PART = re.compile(r"_tiles_\d+_*$")
_INPUTS = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
    dtype=np.float64,
)
_WEIGHTS = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], dtype=np.float64) / 24
_OUTPUTS = np.array(
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], dtype=np.float64
)


def part_name(name: str, number: int) -> str:
    """Of one of the nodes that a Conv of this name is written as."""
    return f"{name}_tiles_{number}"


def whole_name(name: str) -> str:
    """Of the Conv that the node of this name is a part of; the name itself where it is none."""
    return _PART.sub("", name)


def transform_windows(n_channels: int) -> Floats:
    """The weight of a Conv in groups of one channel that transforms its windows; shape (36 C, 1, 6, 6)."""
    both = np.einsum("iu,jv->ijuv", _INPUTS, _INPUTS).reshape(WINDOW**2, 1, WINDOW, WINDOW)
    return np.tile(both, (n_channels, 1, 1, 1)).astype(np.float32)


def transform_weight(weight: Floats) -> Floats:
    """What transformed windows are multiplied with; shape (36, M, C) for (M, C, 3, 3)."""
    both, n_taps = np.kron(_WEIGHTS, _WEIGHTS), weight[0, 0].size
    found = both @ weight.reshape(-1, n_taps).T.astype(np.float64)
    return found.reshape(WINDOW**2, *weight.shape[:2]).astype(np.float32)


def combine_products() -> Floats:
    """What makes the outputs of a tile of its products; shape (16, 36)."""
    both = np.einsum("pi,qj->pqij", _OUTPUTS, _OUTPUTS)
    return np.asarray(both.reshape(TILE**2, WINDOW**2), np.float32)
