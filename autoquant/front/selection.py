"""Which evaluations are worth a last, careful measurement, and which of them are delivered."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from autoquant.domain.front import FLOAT_ID
from autoquant.domain.measurement import Believed, Evaluation, Measurement, State
from autoquant.domain.metric import MemberMetric
from autoquant.domain.objective import DEFAULT_OBJECTIVES, NO_BOUNDS, Bounds, Objectives, Standing, standing_of
from autoquant.domain.share import Z_95
from autoquant.front.coverage import Demands, covering
from autoquant.front.dominance import layers

__all__ = ["choose_finalists", "choose_members", "keeps_drops", "spares"]

_SNR_MARGIN_DB = 3.0
_RATIO_MARGIN = 0.03
"""Beyond its interval, which is about one process."""
_SIZE_MARGIN = 0.02
"""What estimates of the search may err by at most."""
_LEAST_SMALLER = 1e-3
"""Of a file: names and notes in it take so much."""
_LEAST_BETTER_DB = 0.1
"""For which a member may take longer than another one."""
_USUAL_SNR_DB, _SNR_TAIL_DB = 60.0, 10.0
"""Any SNR up to the first is as likely to be asked for as another; those beyond it ever less."""
_SNR_ERROR_DB = 1.0
"""Standard deviation of an SNR that comes from some of the samples."""
_USUAL_SHARE = 0.75
"""Of all candidates: the others may have drops that nobody asks for."""
_MOST_COMPARED = 500
Floats = npt.NDArray[np.float64]
_Candidate = tuple[Evaluation, Standing]


def choose_finalists(
    evaluations: Sequence[Evaluation],
    limit: int,
    *,
    float_bytes: int,
    objectives: Objectives = DEFAULT_OBJECTIVES,
    bounds: Bounds = NO_BOUNDS,
    believed: Mapping[int, Believed] = MappingProxyType({}),
) -> list[Evaluation]:
    """At most ``limit`` evaluations, the most important first: those that should meet most of what could be asked for.

    Estimates err, so some of those that nothing beats leave room for some that are hardly beaten. Who asks for one of
    several targets alone counts as much as who asks for all of them.

    Evaluations are of no interest that are not faster than float on any target and, where the size is an objective, not
    smaller either; nor those with outputs that nothing compares with float's, nor those further beyond a demand on SNR,
    latency or size than an estimate may err. Those that exceed a drop even if they are as good as float on all samples
    that they didn't run come after all others; before them come those of which it is not known, as it was not demanded
    when they were measured.

    Args:
        evaluations: Of the whole search; of those that were not timed the ones with a latency all the same, as
            ``with_known_latencies`` gives it.
        limit: At least 1.
        float_bytes: Size of the float model.
        objectives: What the fronts are of.
        bounds: What is demanded.
        believed: By number of the trial, what counts in place of the SNR and ratios that were measured.
    """
    groups: tuple[list[_Candidate], ...] = ([], [], [])
    for evaluation in _different(evaluations):
        outcome = evaluation.outcome
        assert isinstance(outcome, Measurement)
        standing = standing_of(outcome, believed.get(evaluation.trial.number))
        is_better = min(found.ratio for found in standing.latency.values()) < 1
        is_better = is_better or _is_smaller(standing, objectives, float_bytes)
        if is_better and _may_keep(standing, bounds) and is_comparable(standing, objectives, bounds):
            groups[_drop_group(standing, bounds)].append((evaluation, standing))
    kept: list[Evaluation] = []
    for group in groups:
        kept += _covering(group, limit - len(kept), objectives, bounds, float_bytes)
    return kept


def spares(expected: Mapping[str, Standing], objectives: Objectives, bounds: Bounds) -> list[str]:
    """Ids of finalists that should not be members, those that are nearest to it first.

    Others beat them in the objectives, or they break a demand; only their latencies could still say otherwise.

    Args:
        expected: By id, the most important first; all but latencies as it is measured of the file.
        objectives: What the front is of.
        bounds: What is demanded.
    """
    if not expected:
        return []
    numbers = layers(np.array([objectives.losses(standing) for standing in expected.values()]))
    pairs = zip(expected.items(), numbers, strict=True)
    ranks = {name: (not bounds.keeps(standing), int(number)) for (name, standing), number in pairs}
    return sorted((name for name, rank in ranks.items() if rank > (False, 0)), key=ranks.__getitem__)


def _drop_group(standing: Standing, bounds: Bounds) -> int:
    """0 where all drops that are demanded are kept, 1 where some were not measured, 2 where one is exceeded."""
    if any(standing.drops.get(name, 0.0) > drop for name, drop in bounds.max_drops.items()):
        return 2
    return 0 if bounds.knows(standing.drops) else 1


def _is_smaller(standing: Standing, objectives: Objectives, n_bytes: int) -> bool:
    return objectives.has_size and standing.size_bytes < (1 - _LEAST_SMALLER) * n_bytes


def _may_keep(standing: Standing, bounds: Bounds) -> bool:
    """Whether estimates leave it open that SNR, latency and size keep what is demanded."""
    if bounds.min_snr_db is not None and standing.quality.worst_db < bounds.min_snr_db - _SNR_MARGIN_DB:
        return False
    most = math.inf if bounds.max_latency_ratio is None else bounds.max_latency_ratio + _RATIO_MARGIN
    if any(latency.ratio_low > most for latency in standing.latency.values()):
        return False
    return bounds.max_size_bytes is None or standing.size_bytes <= (1 + _SIZE_MARGIN) * bounds.max_size_bytes


def _covering(
    found: Sequence[_Candidate], limit: int, objectives: Objectives, bounds: Bounds, float_bytes: int
) -> list[Evaluation]:
    """Of the first fronts, as many as are wanted."""
    if limit < 1 or not found:
        return []
    losses = np.array([objectives.losses(standing) for _, standing in found])
    n_compared = max(limit, _MOST_COMPARED)
    order = np.argsort(layers(losses, n_compared), kind="stable")[:n_compared]
    demands = _demands(losses[order], objectives, bounds, float_bytes)
    errors = np.array([_errors(found[i][1], objectives, bounds) for i in order])
    first = objectives.n_qualities
    latencies = range(first, losses.shape[1] - objectives.has_size)
    return [found[order[i]][0] for i in covering(losses[order], errors, demands, limit, latencies)]


def _errors(standing: Standing, objectives: Objectives, bounds: Bounds) -> list[float]:
    """Standard deviations of the losses.

    What the SNRs of all candidates err by changes no choice among them unless an SNR is demanded.
    """
    common_db = 0.0 if bounds.min_snr_db is None else _SNR_ERROR_DB
    return [
        *([math.hypot(common_db, standing.quality.error_db)] if objectives.has_snr else []),
        *(0.0 for _ in objectives.metrics),
        *((latency.ratio_high - latency.ratio_low) / (2 * Z_95) for latency in standing.latency.values()),
        *([0.0] if objectives.has_size else []),
    ]


def _demands(losses: Floats, objectives: Objectives, bounds: Bounds, float_bytes: int) -> list[Demands]:
    """What anybody could ask for who keeps within the bounds; float's latency is the most that is asked for."""
    low, high, usual_high = losses.min(axis=0), losses.max(axis=0), np.quantile(losses, _USUAL_SHARE, axis=0)
    n_latencies = losses.shape[1] - objectives.n_qualities - objectives.has_size
    found: list[Demands] = []
    if objectives.has_snr:
        least_db = 0.0 if bounds.min_snr_db is None else bounds.min_snr_db
        found.append(Demands(-least_db, -max(least_db, _USUAL_SNR_DB), _SNR_TAIL_DB))
    for column, metric in enumerate(objectives.metrics, start=len(found)):
        found.append(Demands(bounds.max_drops.get(metric.name, float(usual_high[column])), float(low[column])))
    for column in range(objectives.n_qualities, objectives.n_qualities + n_latencies):
        slowest = max(1.0, float(high[column])) if n_latencies > 1 or objectives.has_size else 1.0
        most = slowest if bounds.max_latency_ratio is None else bounds.max_latency_ratio
        found.append(Demands(most, float(low[column])))
    if objectives.has_size:
        largest = max(float_bytes, high[-1]) if bounds.max_size_bytes is None else bounds.max_size_bytes
        found.append(Demands(float(largest), float(low[-1])))
    return found


def _different(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """One evaluation, of known latency, of each graph that onnxruntime ran: the smallest file, the first of equals."""
    found: dict[str, tuple[int, Evaluation]] = {}
    for evaluation in evaluations:
        outcome = evaluation.outcome
        if isinstance(outcome, Measurement) and outcome.latency and outcome.state is not State.REJECTED_EARLY:
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

    Better than float is what is shown to be faster on a target or, where the size is an objective, smaller; more hits
    than float in a metric are no reason to be slower. Outputs of NaN or other shapes are of no use to anybody, unless a
    metric that is asked for says so. A member is beaten by another one that is as good or better in everything else,
    unless it is shown to be the faster of the two: of models whose latencies cannot be told apart only the most
    accurate one stays. So it is by one that is shown to be faster and has hardly less SNR.

    Args:
        measured: By id.
        is_shown_faster: Whether the first of two ids is faster than the second on some target, beyond the interval of
            their difference; ``FLOAT_ID`` is that of the float model.
        float_bytes: Size of the float model.
        objectives: What the front is of.
        bounds: What is demanded.

    Returns:
        By ascending ratio on the first target.
    """
    names = [
        name
        for name, standing in measured.items()
        if (is_shown_faster(name, FLOAT_ID) or _is_smaller(standing, objectives, float_bytes))
        and bounds.keeps(standing)
        and is_comparable(standing, objectives, bounds)
    ]
    kept: list[str] = []
    order = {name: (_besides_latency(measured[name], objectives), objectives.losses(measured[name])) for name in names}
    for name in sorted(names, key=order.__getitem__):
        if all(
            (is_shown_faster(name, member) and _is_ahead(measured[name], measured[member]))
            or _is_better_elsewhere(measured[name], measured[member], objectives)
            for member in kept
        ):
            kept.append(name)
    members: list[str] = []
    for name in sorted(kept, key=lambda name: next(iter(measured[name].latency.values())).ratio):
        faster = [member for member in members if is_shown_faster(member, name)]
        if not any(_is_hardly_better(measured[name], measured[member], objectives) for member in faster):
            members.append(name)
    return members


def is_comparable(standing: Standing, objectives: Objectives, bounds: Bounds) -> bool:
    """Whether something says how good the outputs are: an SNR, or a metric that is asked for."""
    return standing.quality.worst_db > -math.inf or bool(objectives.metrics or bounds.max_drops)


def _is_better_elsewhere(standing: Standing, other: Standing, objectives: Objectives) -> bool:
    """In an objective that is no latency."""
    if _is_smaller(standing, objectives, other.size_bytes):
        return True
    found, its = (objectives.losses(one)[: objectives.n_qualities] for one in (standing, other))
    return any(own < loss for own, loss in zip(found, its, strict=True))


def _is_hardly_better(standing: Standing, other: Standing, objectives: Objectives) -> bool:
    """In SNR, and not at all in drops, on another target or by its size."""
    if not objectives.has_snr or _is_ahead(standing, other) or _is_smaller(standing, objectives, other.size_bytes):
        return False
    (own, *drops), (its, *others) = (objectives.losses(one)[: objectives.n_qualities] for one in (standing, other))
    return its - own < _LEAST_BETTER_DB and all(drop >= less for drop, less in zip(drops, others, strict=True))


def _is_ahead(standing: Standing, other: Standing) -> bool:
    """Whether its ratio is the lower one on a target, which differences from round to round may not show."""
    return any(found.ratio < other.latency[target].ratio for target, found in standing.latency.items())


def _besides_latency(standing: Standing, objectives: Objectives) -> list[float]:
    losses = objectives.losses(standing)
    return [*losses[: objectives.n_qualities], *losses[objectives.n_qualities + len(standing.latency) :]]


def keeps_drops(metrics: Mapping[str, MemberMetric], max_drops: Mapping[str, float]) -> bool:
    """Whether a model is nowhere worse than float by more than is allowed, over all evaluation samples."""
    return all(name in metrics and metrics[name].drop.all.value <= drop for name, drop in max_drops.items())
