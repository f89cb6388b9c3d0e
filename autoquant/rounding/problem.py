"""Rounding a weight as a least squares problem over integers."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from autoquant.domain.scheme import DType

__all__ = ["Floats", "Problem", "damped"]

Floats = npt.NDArray[np.float32]

_DAMPING = 0.01
_DISTRUST = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Minimise ``e^T H e`` in every column, where ``e = weight - scale * (integers - zero_point)``.

    That is the mean squared error of each output channel, as each has integers of its own. The operator has G groups,
    each with D inputs of a product and N output channels. Where the inputs of a group are ``n_parts``, each stands for
    a group here, and the error of an output channel is the sum over them: ``H`` without what parts have in common.

    Attributes:
        weight: Shape (G, D, N).
        moment: ``H``, the mean of ``x x^T`` over the inputs of products, positive definite, shape (G, D, D).
        scale: Not 0, shape (G, 1, N), or (G, D, N) where inputs have scales of their own.
        zero_point: Shape (G, 1, N).
        dtype: Of the integers.
        n_parts: One after the other that share their output channels, and with these scales.
    """

    weight: Floats
    moment: Floats
    scale: Floats
    zero_point: Floats
    dtype: DType
    n_parts: int = 1

    def ordered(self, rows: npt.NDArray[np.intp]) -> Self:
        """The same with the inputs of each group in another order, shape (G, D)."""
        inputs, others = rows[:, :, np.newaxis], rows[:, np.newaxis]
        moment = np.take_along_axis(np.take_along_axis(self.moment, inputs, 1), others, 2)
        scale = np.take_along_axis(self.scale, inputs, 1) if self.scale.shape[1] > 1 else self.scale
        return replace(self, weight=np.take_along_axis(self.weight, inputs, 1), moment=moment, scale=scale)

    def row(self, row: int) -> Self:
        """What is asked of one input in every group; its moment is left out."""
        here = slice(row, row + 1)
        scale = self.scale[:, here] if self.scale.shape[1] > 1 else self.scale
        return replace(self, weight=self.weight[:, here], moment=self.moment[:, :0, :0], scale=scale)

    def nearest(self, values: Floats) -> Floats:
        """The integers nearest to values of shape (G, any, N), as floats."""
        return self.stored(np.rint(values / self.scale))

    def stored(self, steps: Floats) -> Floats:
        """The integers nearest to whole numbers of scales that can be stored, as floats."""
        return np.asarray(np.clip(steps + self.zero_point, self.dtype.lowest, self.dtype.highest))

    def errors(self, integers: Floats) -> npt.NDArray[np.float64]:
        """``e^T H e`` of each output channel, shape (G, 1, N)."""
        e = self.rest(integers, slice(None))
        return np.asarray(np.sum(e * (self.moment @ e), axis=1, keepdims=True, dtype=np.float64))

    def least(self, first: Floats, *others: Floats) -> Floats:
        """In every column the integers of the least error; of equal ones, the first."""
        best = first
        for other in others:
            best = np.where(self.errors(other) < self.errors(best), other, best)
        return best

    def rest(self, integers: Floats, rows: slice) -> Floats:
        """What is left of some rows of the weight; 16 bits leave little of it, which float32 would spoil on the way."""
        found = (integers.astype(np.float64) - self.zero_point) * self.scale
        return np.asarray((self.weight[:, rows] - found).astype(np.float32))

    def dequantized(self, integers: Floats) -> Floats:
        """What integers of shape (G, any, N) stand for."""
        return (integers - self.zero_point) * self.scale

    def over_parts(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The sum over all parts of a group for each of them, shape (G, any, N)."""
        parts = values.reshape(-1, self.n_parts, *values.shape[1:])
        sums = np.broadcast_to(parts.sum(axis=1, keepdims=True), parts.shape)
        return sums.reshape(values.shape)


def damped(moment: Floats, n_products: int) -> Floats:
    """The mean of ``x x^T`` over products, with a share of each group's mean diagonal added to its diagonal.

    That makes it positive definite and keeps integers near to their weights along inputs that hardly vary. The share
    grows with the inputs of each product: of white inputs, half as many products as inputs know so little that trusting
    them would make the error on others three times that of the nearest integers. A group whose inputs are always zero
    gets the identity.

    References:
        Frantar et al., "GPTQ", arXiv 2210.17323, section 3.3, step 3: one hundredth, whatever the number of products.
    """
    found = moment.copy()
    diagonal = np.einsum("gdd->gd", found)  # a view
    share = _DAMPING + _DISTRUST * moment.shape[-1] / max(n_products, 1)
    level = share * diagonal.mean(axis=1, keepdims=True, dtype=np.float64)
    diagonal += np.where(level > np.finfo(np.float32).tiny, level, 1.0).astype(np.float32)
    return found
