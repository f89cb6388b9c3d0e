"""How objectives are spelled: ``latency``, ``size``, ``snr`` and the names of metrics."""

from collections import Counter
from collections.abc import Sequence

from autoquant.domain.metric import Metric
from autoquant.domain.objective import LATENCY, SIZE, SNR, Goal, Objectives
from autoquant.errors import UsageError
from autoquant.metrics.grammar import parse_metrics

__all__ = ["objective_names", "objectives_of"]


def objectives_of(names: Sequence[str], metrics: Sequence[Metric]) -> Objectives:
    """The objectives of a search.

    Args:
        names: As the user spells them, in any order.
        metrics: Of the search.

    Raises:
        UsageError: One is unknown, named twice or the name of two things, or there is no latency or nothing that says
            how good the outputs are.
    """
    by_name = {metric.name: metric for metric in metrics}
    for name in names:
        _check(name, by_name)
    twice = next((name for name, n in Counter(names).items() if n > 1), None)
    if twice is not None:
        raise UsageError(f"the objective '{twice}' is named twice, name it once")
    found = Objectives(
        has_snr=SNR in names,
        metrics=tuple(metric for metric in metrics if metric.name in names),
        has_size=SIZE in names,
    )
    spelled = ", ".join(names) or "none"
    if LATENCY not in names:
        raise UsageError(f"the objectives are {spelled}, but latency must be among them, to be minimized")
    if not found.n_qualities:
        raise UsageError(f"the objectives are {spelled}, add snr or a metric to them")
    return found


def objective_names(minimize: str | None, maximize: str | None, metrics: Sequence[str]) -> tuple[str, ...]:
    """The objectives of ``--minimize`` and ``--maximize``.

    Args:
        minimize: Names with commas; ``latency`` where it is not given.
        maximize: The same; ``snr`` where it is not given and neither option names a metric.
        metrics: As the user spells them.

    Raises:
        AutoquantError: An objective or a metric is unknown, or an objective is given with the wrong option.
    """
    parsed = {metric.name: metric for metric in parse_metrics(metrics)}
    lower = _split(minimize) if minimize is not None else [LATENCY]
    higher = _split(maximize) if maximize is not None else []
    if maximize is None and not parsed.keys() & set(lower):
        higher = [SNR]
    for option, names in ((Goal.MINIMIZE, lower), (Goal.MAXIMIZE, higher)):
        for name in names:
            _check(name, parsed)
            _check_goal(name, option, Objectives(metrics=tuple(parsed.values()), has_size=True).goals[name])
    return (*lower, *higher)


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _check(name: str, metrics: dict[str, Metric]) -> None:
    own = (LATENCY, SIZE, SNR)
    if name not in own and name not in metrics:
        raise UsageError(
            f"the objective '{name}' is unknown, choose from {', '.join((*own, *metrics))}, or add it to the metrics"
        )
    if name in own and name in metrics:
        raise UsageError(
            f"the objective '{name}' is also a metric, give that another name: NAME={metrics[name].source}"
        )


def _check_goal(name: str, given: Goal, right: Goal) -> None:
    if given is not right:
        better = "lower" if right is Goal.MINIMIZE else "higher"
        raise UsageError(f"--{given} {name}: {better} values of it are better, give it with --{right}")
