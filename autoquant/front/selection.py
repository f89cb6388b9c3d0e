"""Which evaluations are worth a last, careful measurement, and which of them are delivered."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from autoquant.domain.measurement import Evaluation, Measurement
from autoquant.domain.metric import MemberMetric
from autoquant.domain.objective import DEFAULT_OBJECTIVES, NO_BOUNDS, Bounds, Objectives, Standing, standing_of
from autoquant.front.dominance import layers

__all__ = ["choose_finalists", "choose_members", "keeps_drops"]

_SNR_ERROR_DB = 3.0
_SIZE_ERROR = 0.02
"""What estimates of the search may err by."""
_HIGHEST_SNR_DB = 80.0
_SNR_WEIGHT = 0.01
_DROP_WEIGHT = 10.0
Floats = npt.NDArray[np.float64]
_Candidate = tuple[Evaluation, Standing]


def choose_finalists(
    evaluations: Sequence[Evaluation],
    limit: int,
    *,
    float_bytes: int,
    objectives: Objectives = DEFAULT_OBJECTIVES,
    bounds: Bounds = NO_BOUNDS,
) -> list[Evaluation]:
    """At most ``limit`` evaluations, the most important first: the front, then the one behind it, most spread first.

    Evaluations are of no interest that are not faster than float on any target and, where the size is an objective, not
    smaller either; nor those further beyond the least SNR or the largest file than an estimate may err. Those that
    exceed a drop even if they are as good as float on all samples that they didn't run come after all others.

    Args:
        evaluations: Of the whole search.
        limit: At least 1.
        float_bytes: Size of the float model.
        objectives: What the fronts are of.
        bounds: What is demanded.
    """
    groups: tuple[list[_Candidate], list[_Candidate]] = ([], [])
    for evaluation in _different(evaluations):
        outcome = evaluation.outcome
        assert isinstance(outcome, Measurement)
        standing = standing_of(outcome)
        is_better = min(found.ratio for found in standing.latency.values()) < 1
        if (is_better or _is_smaller(standing, objectives, float_bytes)) and _may_keep(standing, bounds):
            drops = (standing.drops.get(name, 0.0) > drop for name, drop in bounds.max_drops.items())
            groups[any(drops)].append((evaluation, standing))
    kept = _two_layers(groups[0], limit, objectives, float_bytes)
    return kept + _two_layers(groups[1], limit - len(kept), objectives, float_bytes)


def _is_smaller(standing: Standing, objectives: Objectives, float_bytes: int) -> bool:
    return objectives.has_size and standing.size_bytes < float_bytes


def _may_keep(standing: Standing, bounds: Bounds) -> bool:
    """Whether estimates leave it open that SNR and size keep what is demanded."""
    if bounds.min_snr_db is not None and standing.quality.worst_db < bounds.min_snr_db - _SNR_ERROR_DB:
        return False
    return bounds.max_size_bytes is None or standing.size_bytes <= (1 + _SIZE_ERROR) * bounds.max_size_bytes


def _two_layers(found: Sequence[_Candidate], limit: int, objectives: Objectives, float_bytes: int) -> list[Evaluation]:
    if limit < 1 or not found:
        return []
    points = np.array([objectives.losses(standing) for _, standing in found])
    scaled = _scaled(points, objectives, float_bytes)
    chosen: list[int] = []
    layer = layers(points)
    for number in range(int(layer.max()) + 1):
        members = np.flatnonzero(layer == number)
        chosen.extend(_spread(scaled, members, limit - len(chosen), objectives.n_qualities))
        if len(chosen) >= limit or number == 1:
            break
    return [found[i][0] for i in chosen]


def _different(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """One complete evaluation of each graph that onnxruntime ran: the smallest file, the first of equals."""
    found: dict[str, tuple[int, Evaluation]] = {}
    for evaluation in evaluations:
        outcome = evaluation.outcome
        if isinstance(outcome, Measurement) and outcome.is_complete:
            earlier = found.get(outcome.digest)
            if earlier is None or outcome.size_bytes < earlier[0]:
                found[outcome.digest] = outcome.size_bytes, evaluation
    return [evaluation for _, evaluation in found.values()]


def choose_members(
    measured: Mapping[str, Standing],
    is_shown_faster: Callable[[str, str], bool],
    *,
    float_bytes: int,
    objectives: Objectives = DEFAULT_OBJECTIVES,
    bounds: Bounds = NO_BOUNDS,
) -> list[str]:
    """Ids that belong on the front: better than float, not beaten in the objectives, and within the demands.

    Better than float is what is faster beyond its interval on a target or, where the size is an objective, smaller;
    more hits than float in a metric are no reason to be slower. A member is beaten by another one that is as good or
    better in everything else, unless it is shown to be the faster of the two: of models whose latencies cannot be told
    apart only the most accurate one stays.

    Args:
        measured: By id.
        is_shown_faster: Whether the first of two ids is faster than the second on some target, beyond the interval of
            their difference.
        float_bytes: Size of the float model.
        objectives: What the front is of.
        bounds: What is demanded.

    Returns:
        By ascending ratio on the first target.
    """
    names = [
        name
        for name, standing in measured.items()
        if (
            any(found.ratio_high < 1 for found in standing.latency.values())
            or _is_smaller(standing, objectives, float_bytes)
        )
        and bounds.keeps(standing)
    ]
    kept: list[str] = []
    for name in sorted(names, key=lambda name: objectives.losses(measured[name])):
        others = _besides_latency(measured[name], objectives)
        if all(
            is_shown_faster(name, member)
            or any(own < its for own, its in zip(others, _besides_latency(measured[member], objectives), strict=True))
            for member in kept
        ):
            kept.append(name)
    return sorted(kept, key=lambda name: next(iter(measured[name].latency.values())).ratio)


def _besides_latency(standing: Standing, objectives: Objectives) -> list[float]:
    losses = objectives.losses(standing)
    return [*losses[: objectives.n_qualities], *losses[objectives.n_qualities + len(standing.latency) :]]


def keeps_drops(metrics: Mapping[str, MemberMetric], max_drops: Mapping[str, float]) -> bool:
    """Whether a model is nowhere worse than float by more than is allowed, over all evaluation samples."""
    return all(name in metrics and metrics[name].drop.all.value <= drop for name, drop in max_drops.items())


def _scaled(points: Floats, objectives: Objectives, float_bytes: int) -> Floats:
    """Losses that are alike: 10 dB, a drop of 1 %, a tenth of float's latency and a tenth of its size.

    SNRs above 80 dB count as 80 dB.
    """
    weights = np.ones(points.shape[1])
    weights[: objectives.n_qualities] = _DROP_WEIGHT
    if objectives.has_snr:
        weights[0] = _SNR_WEIGHT
        points = np.column_stack([np.maximum(points[:, 0], -_HIGHEST_SNR_DB), points[:, 1:]])
    if objectives.has_size:
        weights[-1] = 1 / float_bytes
    return np.asarray(points * weights)


def _spread(scaled: Floats, members: npt.NDArray[np.int64], limit: int, n_qualities: int) -> list[int]:
    """The members at most, first the best in each objective, then always the one farthest from those before.

    Args:
        scaled: Of all points, shape (n, d).
        members: Which of them.
        limit: How many.
        n_qualities: Columns before the latencies, of which the first comes first.
    """
    own = scaled[members]
    columns = [n_qualities, *(i for i in range(own.shape[1]) if i != n_qualities)]
    order = list(dict.fromkeys(int(np.argmin(own[:, i])) for i in columns))
    distance = np.min(np.linalg.norm(own[:, None] - own[order][None], axis=2), axis=1)
    while len(order) < min(limit, len(members)):
        distance[order] = -1.0
        farthest = int(np.argmax(distance))
        order.append(farthest)
        distance = np.minimum(distance, np.linalg.norm(own - own[farthest], axis=1))
    return [int(members[i]) for i in order[:limit]]
