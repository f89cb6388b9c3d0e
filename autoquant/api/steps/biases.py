"""Biases of one candidate, corrected by what its own operators write."""

import math
import time
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from autoquant.calibration.drift import channel_means, residual_shifts
from autoquant.calibration.timed import TimedFeeds
from autoquant.domain.feed import Samples
from autoquant.domain.region import Assignment, NodeName
from autoquant.model.fragments import inline_external
from autoquant.model.ops import channel_axes
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder

__all__ = ["observe_shifts"]

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
) -> Mapping[NodeName, npt.NDArray[np.float64]]:
    """What the biases of an assignment's integer operators should take off, seen on calibration samples.

    The expected shifts of ``bias = "mean"`` are where it starts, whatever the schemes say; then each operator is
    observed in the quantized model with all operators before it corrected, so that what noise does on its way, through
    Relu and clipping, counts too. That takes two inferences a sample in all, one of them float, and a short session
    for each operator.

    Args:
        prepared: The preprocessed model.
        builder: Of its candidates.
        assignment: What is corrected.
        samples: Calibration samples.
        n_samples: So many of the first ones.
        seconds: Samples and operators that there is no time for are left out; the operators keep their expected shifts.

    Returns:
        For ``builder.build(assignment, shifts)``: shape (C,), by operator.

    References:
        Nagel et al., "Data-free quantization through weight equalization and bias correction", ICCV 2019,
        arXiv 1906.04721, appendix D: empirical bias correction, layer after layer.
    """
    expected = builder.expected_shifts(assignment)
    if not expected:
        return expected
    start = time.perf_counter()
    feeds = TimedFeeds(samples.feeds[:n_samples], _FLOAT_SHARE * seconds)
    nodes = [node for node in prepared.graph.nodes if node.name in expected]
    outputs = {node.outputs[0]: channel_axes(node)[1] for node in nodes}
    means = channel_means(prepared.graph.model, outputs, feeds)
    candidate = builder.build(assignment, expected)
    residual = residual_shifts(
        inline_external(candidate.skeleton, candidate.constants, {}),
        {node.name: means[node.outputs[0]] for node in nodes},
        {node.name: channel_axes(node)[1] for node in nodes},
        samples.feeds[: feeds.n_taken],
        seconds=seconds - (time.perf_counter() - start),
    )
    return {name: shift + residual.get(name, 0.0) for name, shift in expected.items()}
