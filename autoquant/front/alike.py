"""Candidates that were not timed but run the kernels of one that was."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from autoquant.domain.measurement import Believed, Evaluation, Failure, Measurement, State
from autoquant.domain.objective import standing_of
from autoquant.domain.region import RegionId
from autoquant.domain.scheme import FLOAT, Scheme

__all__ = ["with_known_latencies"]


def with_known_latencies(
    evaluations: Sequence[Evaluation],
    schemes: Mapping[str, Scheme],
    believed: Mapping[int, Believed] = MappingProxyType({}),
) -> list[Evaluation]:
    """The same evaluations, untimed ones with what is believed of the latency of the first one with the same kernels.

    They stay untimed: it is what is expected of them, and nothing that was measured. One whose own graph was timed or
    rejected in another trial has none.

    Args:
        evaluations: Of a search.
        schemes: By name; what else a region runs has kernels of its own.
        believed: By number of the trial, what counts in place of the ratios that were measured.
    """
    measured = [(e.trial.number, e.outcome) for e in evaluations if isinstance(e.outcome, Measurement)]
    complete = [(number, outcome) for number, outcome in measured if outcome.is_complete]
    digests = {outcome.digest for _, outcome in measured if outcome.state is not State.UNTIMED}
    latencies = {
        _kernels(outcome, schemes): standing_of(outcome, believed.get(number)).latency
        for number, outcome in reversed(complete)
    }

    def expected(evaluation: Evaluation) -> Evaluation:
        outcome = evaluation.outcome
        if isinstance(outcome, Failure) or outcome.state is not State.UNTIMED or outcome.digest in digests:
            return evaluation
        return replace(evaluation, outcome=replace(outcome, latency=latencies.get(_kernels(outcome, schemes), {})))

    return [expected(evaluation) for evaluation in evaluations]


def _kernels(outcome: Measurement, schemes: Mapping[str, Scheme]) -> frozenset[tuple[RegionId, object]]:
    """Of each region that is not float."""
    return frozenset(
        (region, schemes[name].kernels if name in schemes else name)
        for region, name in outcome.effective.items()
        if name != FLOAT
    )
