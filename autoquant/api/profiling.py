"""What a search expects of latencies before its first trial."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import Assignment, Region
from autoquant.errors import ProfileError, UsageError
from autoquant.graph.regions import borders
from autoquant.measurement.bench import Bench
from autoquant.measurement.expectation import KernelTimes, expected_latency
from autoquant.measurement.profile import region_us
from autoquant.model.graph import Graph
from autoquant.qdq.builder import Builder
from autoquant.study.layout import ALL, DYNAMIC, LINEAR, Layout

__all__ = ["profiled_prior"]

_SLOWEST_FLOAT = 1.5
"""Preprocessing makes no model slower: what says so was measured beside other work."""


def profiled_prior(
    bench: Bench, builder: Builder, graph: Graph, regions: Sequence[Region], layout: Layout, budget: tuple[float, float]
) -> LatencyPrior:
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
    kinds = range(1, layout.n_kinds + 1)
    assignments = [np.zeros_like(mixed), mixed, *(layout.uniform(kind) for kind in kinds)]
    try:
        candidates = [builder.build(_assignment(layout, codes)) for codes in assignments]
    except (AssertionError, KeyError, ValueError, UsageError) as error:
        raise ProfileError(f"a candidate cannot be built: {type(error).__name__}: {error}") from error
    model, *profiles = bench.profile([(c.skeleton, c.constants) for c in candidates], *budget)
    if not model.total_us > 0:
        raise ProfileError("kernels of the model are too short for the profiler")
    float_us, mixed_us, *uniform = (region_us(profile, graph, regions) for profile in profiles)
    by_kind = dict(zip(kinds, uniform, strict=True))
    times = KernelTimes(
        model_us=model.total_us,
        float_us=float_us,
        all_us=by_kind[ALL],
        linear_us=by_kind[LINEAR],
        mixed_us=mixed_us,
        mixed_kinds=layout.kinds[mixed],
        dynamic_us=by_kind.get(DYNAMIC),
    )
    elements = borders(graph, regions)
    pairs = [(layout.regions[a], layout.regions[b]) for a, b in layout.edges]
    found = expected_latency(times, layout.edges, [elements[pair] for pair in pairs])
    if found.base > _SLOWEST_FLOAT:
        raise ProfileError(f"the all-float candidate took {found.base:.1f} times as long as the model it came from")
    return found


def _assignment(layout: Layout, codes: npt.NDArray[np.int64]) -> Assignment:
    return {region: layout.schemes[code] for region, code in zip(layout.regions, codes, strict=True)}


def _alternating(layout: Layout) -> npt.NDArray[np.int64]:
    """Every second region is float, the others as uniform as they may."""
    both = np.where(layout.uniform(ALL) > 0, layout.uniform(ALL), layout.uniform(LINEAR))
    return np.where(np.arange(len(both)) % 2 == 1, both, 0)
