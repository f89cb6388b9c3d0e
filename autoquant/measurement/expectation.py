"""What regions and borders should cost, from the kernel times of a few uniform candidates."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.prior import LatencyPrior

__all__ = ["KernelTimes", "expected_latency"]

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

_OF_TIMES = 0.1
"""Standard deviation of a difference, as a share of the times that it is between: so well do profiles repeat."""
_OF_CHANGE = 0.25
"""And as a share of itself: a region among float neighbours runs other kernels than the same among integer ones."""
_OF_REGION = 0.003
"""And in any case, as a share of the float latency: the profiler counts whole microseconds, and its own."""
_OF_BORDER = 0.5
_OF_ANY_BORDER = 0.004
_CALL_ELEMENTS = 2000
"""A conversion of nothing takes as long as one of so many elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """Microseconds of kernels, by region, shape (R,).

    Attributes:
        model_us: All kernels of the user's model.
        float_us: Of the all-float candidate.
        all_us: Of the candidate whose regions all take a scheme of kind 1, where they may.
        linear_us: The same of kind 2.
        mixed_us: Of a candidate with many borders.
        mixed_kinds: What its regions take: 0 float, 1 all operators, 2 linear ones; shape (R,).
        dynamic_us: As ``all_us``, of kind 3; None where there is no such scheme.
    """

    model_us: float
    float_us: Floats
    all_us: Floats
    linear_us: Floats
    mixed_us: Floats
    mixed_kinds: Codes
    dynamic_us: Floats | None = None


def expected_latency(times: KernelTimes, edges: Codes, elements: Sequence[int]) -> LatencyPrior:
    """Expected terms of the latency ratio.

    A region changes by what its kernels take in the uniform candidate less what they take in the float one. The
    conversions that a uniform candidate needs, at its inputs, its outputs and operators without an integer kernel, are
    part of that, as no border is there to pay for them: the changes of all regions sum to the uniform candidate's.

    What the mixed candidate takes beyond its regions' terms is the cost of its borders: conversions, changes of the
    layout, float kernels that lose theirs. It is shared among them by the elements of the tensors that cross them,
    ``border = excess * (elements + c) / sum over its borders (elements + c)``, with ``c`` for the call, and each border
    elsewhere costs as much per element.

    Args:
        times: Of the kernels.
        edges: Pairs of touching regions, shape (E, 2).
        elements: Of the tensors that cross each, shape (E,).
    """
    dynamic = [] if times.dynamic_us is None else [times.dynamic_us]
    integer_us = np.stack([times.all_us, times.linear_us, *dynamic], axis=1)
    float_us = times.float_us[:, None]
    change = (integer_us - float_us) / times.model_us
    spread = np.sqrt(
        (_OF_TIMES * (integer_us + float_us) / times.model_us) ** 2 + (_OF_CHANGE * change) ** 2 + _OF_REGION**2
    )
    border = _border_rate(times, change, edges, elements) * _size(elements)
    return LatencyPrior(
        base=float(times.float_us.sum() / times.model_us),
        change=change,
        spread=spread,
        border=border,
        border_spread=_OF_BORDER * border + _OF_ANY_BORDER,
    )


def _border_rate(times: KernelTimes, change: Floats, edges: Codes, elements: Sequence[int]) -> float:
    """Cost per element that crosses; 0 where the mixed candidate is no slower than its regions' terms."""
    kinds = times.mixed_kinds
    integer = kinds > 0
    unlike = integer[edges[:, 0]] != integer[edges[:, 1]]
    if not unlike.any():
        return 0.0
    own = change[integer, kinds[integer] - 1].sum()
    excess = (times.mixed_us.sum() - times.float_us.sum()) / times.model_us - own
    return max(0.0, float(excess / _size(elements)[unlike].sum()))


def _size(elements: Sequence[int]) -> Floats:
    return np.array(elements, dtype=float) + _CALL_ELEMENTS
