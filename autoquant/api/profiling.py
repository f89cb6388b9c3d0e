"""What a search expects of latencies before its first trial."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.prior import Profiled
from autoquant.domain.region import Assignment, Region
from autoquant.errors import ProfileError, UsageError
from autoquant.graph.regions import borders
from autoquant.measurement.bench import Bench
from autoquant.measurement.expectation import KernelTimes, expected_latency
from autoquant.measurement.profile import outside_us, region_us
from autoquant.model.graph import Graph
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.study.layout import ALL, DYNAMIC, LINEAR, Layout

__all__ = ["profiled_prior"]

_SLOWEST_FLOAT = 1.5
"""Preprocessing makes no model slower: what says so was measured beside other work, and is measured once more where
there is time."""


def profiled_prior(
    bench: Bench, builder: Builder, graph: Graph, regions: Sequence[Region], layout: Layout, budget: tuple[float, float]
) -> Profiled:
    """Profile the uniform candidates, and one with many borders, on the first target.

    Args:
        bench: The float model.
        builder: Of candidates.
        graph: The preprocessed model.
        regions: The partition, in the order of the layout.
        layout: What the prior is about.
        budget: Seconds for running candidates, and the most that all of it may take.

    Raises:
        ModelError: onnxruntime refuses a candidate.
        ProfileError: There is no time for profiles, or they cannot be had.
    """
    mixed = _alternating(layout)
    uniform = (layout.uniform(kind) for kind in range(1, layout.n_kinds + 1))
    assignments = [np.zeros_like(mixed), mixed, *uniform]
    try:
        candidates = [builder.build(_assignment(layout, codes)) for codes in assignments]
    except (AssertionError, KeyError, ValueError, UsageError) as error:
        raise ProfileError(f"a candidate cannot be built: {type(error).__name__}: {error}") from error
    own, (seconds, most_s) = _Profiled(bench, graph, regions, layout, candidates, mixed), budget
    start = time.perf_counter()
    found = own.take(seconds, most_s)
    left_s = most_s - (time.perf_counter() - start)
    if found.prior.base > _SLOWEST_FLOAT and left_s > most_s / 2:
        found = own.take(seconds, left_s)
    if found.prior.base > _SLOWEST_FLOAT:
        raise ProfileError(
            "other work disturbed the profiles, which say that preprocessing made the model"
            f" {found.prior.base:.1f} times as slow"
        )
    return found


@dataclass(frozen=True, slots=True)
class _Profiled:
    """Candidates whose kernels are timed: all float, mixed, and uniform ones of each kind."""

    bench: Bench
    graph: Graph
    regions: Sequence[Region]
    layout: Layout
    candidates: Sequence[Candidate]
    mixed: npt.NDArray[np.int64]

    def take(self, seconds: float, most_s: float) -> Profiled:
        model, *profiles = self.bench.profile([(c.skeleton, c.constants) for c in self.candidates], seconds, most_s)
        if not model.total_us > 0:
            raise ProfileError("kernels of the model are too short for the profiler")
        float_us, mixed_us, *uniform = (region_us(profile, self.graph, self.regions) for profile in profiles)
        by_kind = dict(enumerate(uniform, 1))
        times = KernelTimes(
            model_us=model.total_us,
            float_us=float_us,
            all_us=by_kind[ALL],
            linear_us=by_kind[LINEAR],
            mixed_us=mixed_us,
            mixed_kinds=self.layout.kinds[self.mixed],
            dynamic_us=by_kind.get(DYNAMIC),
        )
        elements, names = borders(self.graph, self.regions), self.layout.regions
        pairs = [(names[a], names[b]) for a, b in self.layout.edges]
        outside = outside_us(profiles[0], self.graph, self.regions)
        return Profiled(
            prior=expected_latency(times, self.layout.edges, [elements[pair] for pair in pairs]),
            outside={op_type: us / model.total_us for op_type, us in outside.items()},
        )


def _assignment(layout: Layout, codes: npt.NDArray[np.int64]) -> Assignment:
    return {region: layout.schemes[code] for region, code in zip(layout.regions, codes, strict=True)}


def _alternating(layout: Layout) -> npt.NDArray[np.int64]:
    """Every second region is float, the others as uniform as they may."""
    both = np.where(layout.uniform(ALL) > 0, layout.uniform(ALL), layout.uniform(LINEAR))
    return np.where(np.arange(len(both)) % 2 == 1, both, 0)
