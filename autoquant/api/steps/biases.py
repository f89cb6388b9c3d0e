"""Biases of one candidate, corrected by what its own operators write."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autoquant.api.steps.caching import made_by, recalled
from autoquant.api.steps.passes import in_passes
from autoquant.calibration.batches import select
from autoquant.calibration.drift import channel_means, residual_shifts
from autoquant.calibration.spread import spread_order
from autoquant.calibration.timed import TimedFeeds
from autoquant.domain.feed import Feed, Samples
from autoquant.domain.region import Assignment, NodeName
from autoquant.model.fragments import inline_external
from autoquant.model.ops import channel_axes
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate

__all__ = ["observe_shifts"]

Shifts = Mapping[NodeName, npt.NDArray[np.float64]]
N_SAMPLES = 32
"""More hardly change a mean, and all of them are in memory together."""
_FLOAT_SHARE = 0.4
"""Of the time for the float model, which gives the means to compare with."""


def observe_shifts(
    prepared: PreparedModel,
    builder: Builder,
    assignment: Assignment,
    samples: Samples,
    *,
    n_samples: int = N_SAMPLES,
    seconds: float = math.inf,
    cache_folder: Path | None = None,
) -> Shifts:
    """What the biases of an assignment's integer operators should take off, seen on calibration samples.

    The expected shifts of ``bias = "mean"`` are where it starts, whatever the schemes say; then each operator is
    observed in the quantized model with all operators before it corrected, so that what noise does on its way, through
    Relu and clipping, counts too. That takes two inferences a sample, one of them float (more where what operators
    write takes more than a gigabyte), and a short session for each operator.

    Args:
        prepared: The preprocessed model.
        builder: Of its candidates.
        assignment: What is corrected.
        samples: Calibration samples.
        n_samples: So many of them, evenly spread.
        seconds: Samples and operators that there is no time for are left out; the operators keep their expected shifts.
        cache_folder: Where shifts are kept for which there was time for everything, by content; None keeps nothing.

    Returns:
        For ``builder.build(assignment, shifts)``: shape (C,), by operator.

    References:
        Nagel et al., "Data-free quantization through weight equalization and bias correction", ICCV 2019,
        arXiv 1906.04721, appendix D: empirical bias correction, layer after layer.
    """
    expected = builder.expected_shifts(assignment)
    if not expected:
        return expected
    candidate = builder.build(assignment, expected)
    chosen = select(samples, spread_order(len(samples))[:n_samples], "calibration")

    def observe() -> tuple[Shifts, bool]:
        return _observed(prepared, candidate, expected, chosen.feeds, seconds)

    if cache_folder is None:
        return observe()[0]
    content = prepared.digest, candidate.digest, chosen.digest, made_by("shifts 2")
    return recalled(cache_folder, content, observe)


def _observed(
    prepared: PreparedModel, candidate: Candidate, expected: Shifts, samples: Sequence[Feed], seconds: float
) -> tuple[Shifts, bool]:
    """Shifts of a candidate that takes off the expected ones, and whether there was time for everything."""
    start = time.perf_counter()
    nodes = [node for node in prepared.graph.nodes if node.name in expected]
    axes = {node.outputs[0]: channel_axes(node)[1] for node in nodes}
    first, *others = passes = in_passes(prepared.graph, axes, samples)
    feeds = TimedFeeds(samples, _FLOAT_SHARE / len(passes) * seconds)
    means = dict(channel_means(prepared.graph.model, {name: axes[name] for name in first}, feeds))
    for names in others:
        taken = samples[: feeds.n_taken]
        means.update(channel_means(prepared.graph.model, {name: axes[name] for name in names}, taken))
    residual = residual_shifts(
        inline_external(candidate.skeleton, candidate.constants, {}),
        {node.name: means[node.outputs[0]] for node in nodes},
        {node.name: channel_axes(node)[1] for node in nodes},
        samples[: feeds.n_taken],
        seconds=seconds - (time.perf_counter() - start),
    )
    shifts = {name: shift + residual.get(name, 0.0) for name, shift in expected.items()}
    return shifts, not feeds.is_cut_off and time.perf_counter() - start < seconds
