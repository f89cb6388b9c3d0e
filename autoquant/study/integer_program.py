"""The fastest assignment within a noise power, exactly."""

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array, vstack

from autoquant.study.landscape import Landscape
from autoquant.study.layout import Codes, Floats, Layout

__all__ = ["Fastest", "fastest_within"]

_OPTIMAL = 0
"""What ``milp`` calls a solution that nothing beats."""
_TOO_MUCH = 2.0
"""Of the noise that is allowed, a choice that makes more is none: HiGHS refuses coefficients of 1e15 and more."""


@dataclass(frozen=True, slots=True)
class Fastest:
    """A solution.

    Attributes:
        codes: Scheme numbers, shape (R,); all float where nothing better was found in time.
        is_proven: Whether there was time to show that nothing is faster.
    """

    codes: Codes
    is_proven: bool


def fastest_within(
    landscape: Landscape,
    weights: Floats,
    noise_limit: float,
    *,
    seconds: float,
    excluded: Sequence[Codes] = (),
) -> Fastest:
    """Solve the mixed-integer program with HiGHS.

    Args:
        landscape: What to believe.
        weights: Of the targets; shape (T,).
        noise_limit: Highest relative noise power of any output.
        seconds: After so long the best assignment so far is taken.
        excluded: Assignments that are no solution, each of shape (R,) and not all float.

    References:
        Huangfu and Hall, "Parallelizing the dual revised simplex method", 2018 (HiGHS).
    """
    layout = landscape.layout
    own, border = landscape.weighted(weights)
    region, scheme = np.nonzero(layout.allowed[:, 1:])
    scheme += 1
    costs = np.concatenate([own[region, scheme], border])
    if not costs.size:  # everything is float
        return Fastest(np.zeros(len(layout.regions), dtype=np.int64), is_proven=True)
    noise = np.minimum(landscape.noise[:, region, scheme] / noise_limit, _TOO_MUCH)
    padding = np.zeros((len(noise), len(border)))
    constraints = [
        LinearConstraint(np.concatenate([noise, padding], axis=1), ub=1.0),
        *_structure(layout, region, layout.carries_integers(scheme)),
        *(_others(codes, region, scheme, len(border)) for codes in excluded),
    ]
    with _prints_aside():
        found = milp(
            costs,
            constraints=constraints,
            bounds=Bounds(0, 1),
            integrality=np.concatenate([np.ones(len(region)), np.zeros(len(border))]),
            options={"time_limit": seconds},
        )
    codes = np.zeros(len(layout.regions), dtype=np.int64)
    if found.x is not None:
        chosen = found.x[: len(region)] > 0.5
        codes[region[chosen]] = scheme[chosen]
    return Fastest(codes, is_proven=found.status == _OPTIMAL)


@contextmanager
def _prints_aside() -> Iterator[None]:
    """Standard output of the process is standard error meanwhile: HiGHS prints a line there, whatever it is told.

    https://github.com/jump-dev/HiGHS.jl/issues/312
    """
    try:
        kept = os.dup(1)
    except OSError:  # there is none
        yield
        return
    try:
        _flush_c()
        with suppress(OSError):
            os.dup2(2, 1)
        yield
    finally:
        _flush_c()
        os.dup2(kept, 1)
        os.close(kept)


def _flush_c() -> None:
    """What C holds back for standard output, which is a file of its own there."""
    with suppress(OSError, TypeError, AttributeError):  # by system
        ctypes.CDLL(None).fflush(None)


def _structure(layout: Layout, region: Codes, carries: npt.NDArray[np.bool_]) -> list[LinearConstraint]:
    """One scheme a region at most, and a border is unlike exactly where one of its regions carries no integers."""
    n_regions, n_edges, n_choices = len(layout.regions), len(layout.edges), len(region)
    n = n_choices + n_edges
    chosen = csr_array((np.ones(n_choices), (region, np.arange(n_choices))), shape=(n_regions, n))
    integer = csr_array((carries.astype(float), (region, np.arange(n_choices))), shape=(n_regions, n))
    found = [LinearConstraint(chosen, ub=1.0)]
    if not n_edges:
        return found
    first, second = integer[layout.edges[:, 0]], integer[layout.edges[:, 1]]
    unlike = coo_array((np.ones(n_edges), (np.arange(n_edges), n_choices + np.arange(n_edges))), shape=(n_edges, n))
    at_least = vstack([unlike - first + second, unlike + first - second])
    at_most = vstack([unlike - first - second, unlike + first + second])
    upper = np.concatenate([np.zeros(n_edges), np.full(n_edges, 2.0)])
    return [*found, LinearConstraint(at_least, lb=0.0), LinearConstraint(at_most, ub=upper)]


def _others(codes: Codes, region: Codes, scheme: Codes, n_edges: int) -> LinearConstraint:
    """At least one region differs."""
    wanted = np.where(codes[region] == 0, -1.0, codes[region] == scheme)
    return LinearConstraint(np.concatenate([wanted, np.zeros(n_edges)])[None], ub=np.count_nonzero(codes) - 1.0)
