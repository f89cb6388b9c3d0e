"""Which evaluations are worth a last, careful measurement, and which of them are delivered."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from autoquant.domain.measurement import Evaluation, Latency, Measurement, Quality
from autoquant.domain.metric import MemberMetric
from autoquant.front.dominance import layers

__all__ = ["choose_finalists", "choose_members", "keeps_drops"]

_SNR_LIMIT_DB = 200.0
_ESTIMATE_ERROR_DB = 3.0
Floats = npt.NDArray[np.float64]


def choose_finalists(
    evaluations: Sequence[Evaluation],
    limit: int,
    *,
    min_snr_db: float | None,
    max_drops: Mapping[str, float] | None = None,
) -> list[Evaluation]:
    """At most ``limit`` evaluations, the most important first: the front, then the one behind it, most spread first.

    Args:
        evaluations: Of the whole search.
        limit: At least 1.
        min_snr_db: Evaluations further below than an estimate may err are of no interest.
        max_drops: By metric; evaluations that exceed one even if they are as good as float on all samples that they
            didn't run come after all others.
    """
    found = [
        (evaluation, measured)
        for evaluation in _different(evaluations)
        if isinstance(measured := evaluation.outcome, Measurement)
        and measured.is_complete
        and min(latency.ratio for latency in measured.latency.values()) < 1
        and (min_snr_db is None or measured.quality.worst_db >= min_snr_db - _ESTIMATE_ERROR_DB)
    ]
    groups: tuple[list[Evaluation], list[Evaluation]] = [], []
    for evaluation, measured in found:
        groups[any(measured.drops.get(name, 0.0) > drop for name, drop in (max_drops or {}).items())].append(evaluation)
    kept = _two_layers(groups[0], limit)
    return kept + _two_layers(groups[1], limit - len(kept))


def _two_layers(evaluations: Sequence[Evaluation], limit: int) -> list[Evaluation]:
    outcomes = [evaluation.outcome for evaluation in evaluations]
    points = np.array([point(m.quality, m.latency) for m in outcomes if isinstance(m, Measurement)])
    if limit < 1 or not len(points):
        return []
    chosen: list[int] = []
    layer = layers(points)
    for number in range(int(layer.max()) + 1):
        members = np.flatnonzero(layer == number)
        chosen.extend(_spread(points, members, limit - len(chosen)))
        if len(chosen) >= limit or number == 1:
            break
    return [evaluations[i] for i in chosen]


def _different(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """The first evaluation of each graph that onnxruntime ran."""
    found: dict[str, Evaluation] = {}
    for evaluation in evaluations:
        if isinstance(evaluation.outcome, Measurement):
            found.setdefault(evaluation.outcome.digest, evaluation)
    return list(found.values())


def choose_members(
    measured: Mapping[str, tuple[Quality, Mapping[str, Latency]]],
    is_shown_faster: Callable[[str, str], bool],
    *,
    min_snr_db: float | None,
    max_latency_ratio: float | None,
) -> list[str]:
    """Ids that belong on the front: faster than float beyond their interval, not beaten, and within the demands.

    A member is beaten by another one that is as accurate or more, unless it is shown to be the faster of the two: of
    models whose latencies cannot be told apart only the most accurate one stays.

    Args:
        measured: SNR and latencies by id.
        is_shown_faster: Whether the first of two ids is faster than the second on some target, beyond the interval of
            their difference.
        min_snr_db: Least SNR.
        max_latency_ratio: Highest ratio, on every target.

    Returns:
        By ascending ratio on the first target.
    """
    names = [
        name
        for name, (quality, latency) in measured.items()
        if any(found.ratio_high < 1 for found in latency.values())
        and (min_snr_db is None or quality.worst_db >= min_snr_db)
        and (max_latency_ratio is None or all(f.ratio <= max_latency_ratio for f in latency.values()))
    ]
    kept: list[str] = []
    for name in sorted(names, key=lambda name: point(*measured[name])):
        if all(is_shown_faster(name, other) for other in kept):
            kept.append(name)
    return sorted(kept, key=lambda name: next(iter(measured[name][1].values())).ratio)


def keeps_drops(metrics: Mapping[str, MemberMetric], max_drops: Mapping[str, float]) -> bool:
    """Whether a model is nowhere worse than float by more than is allowed, over all evaluation samples."""
    return all(name in metrics and metrics[name].drop.all.value <= drop for name, drop in max_drops.items())


def point(quality: Quality, latency: Mapping[str, Latency]) -> list[float]:
    """Objectives, smaller is better: negative SNR, then a ratio for each target."""
    snr = quality.worst_db if math.isfinite(quality.worst_db) else math.copysign(_SNR_LIMIT_DB, quality.worst_db)
    return [-snr, *(found.ratio for found in latency.values())]


def _spread(points: Floats, members: npt.NDArray[np.int64], limit: int) -> list[int]:
    """The members at most, first the extremes, then always the one farthest from those before.

    10 dB weigh as much as a ratio of 0.1; SNRs above 80 dB are alike.
    """
    scaled = np.clip(points[members], -80, None) * np.array([0.01, *[1.0] * (points.shape[1] - 1)])
    order = list(dict.fromkeys([int(np.argmin(scaled[:, 1])), int(np.argmin(scaled[:, 0]))]))
    distance = np.min(np.linalg.norm(scaled[:, None] - scaled[order][None], axis=2), axis=1)
    while len(order) < min(limit, len(members)):
        distance[order] = -1.0
        farthest = int(np.argmax(distance))
        order.append(farthest)
        distance = np.minimum(distance, np.linalg.norm(scaled - scaled[farthest], axis=1))
    return [int(members[i]) for i in order[:limit]]
