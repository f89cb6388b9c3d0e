"""Whether a machine was fit to measure on: what disturbed it, and what to do about that."""

import logging
import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from autoquant.domain.counted import counted
from autoquant.domain.target import CPU, Target
from autoquant.runtime.machine import usable_processors
from autoquant.runtime.usage import Usage, read_usage

__all__ = ["Watch", "crowded_sentences", "drift_sentences", "relative", "usage_sentences"]

_LOG = logging.getLogger("autoquant")
_LEAST_S = 1.0
"""The counters are too coarse for less."""
_LOOK_S = 5.0
_OTHERS = 0.10
_STOLEN = 0.02
_THROTTLED = 0.005
"""Shares of the processors' time, the last one of the time that passed, from which on they are worth a sentence."""
_REPEATED = 0.10
_DRIFT = 1.10
_LEAST_ROUNDS = 12
_AGAIN = "stop other programs and measure again"


def crowded_sentences(targets: Sequence[Target]) -> list[str]:
    """Where threads wait for each other, as there are fewer processors."""
    found = []
    for target in targets:
        n_threads, n_processors = target.threads * target.streams, len(target.affinity or usable_processors())
        if target.ep == CPU and n_threads > n_processors:
            found.append(
                f"{target.name} has {n_threads} threads for {counted(n_processors, 'processor')}, on which they"
                " wait for each other; give no more threads than there are processors"
            )
    return found


@dataclass(slots=True)
class Watch:
    """Watches from when it is made.

    Attributes:
        read: Reads the counters.
    """

    read: Callable[[], Usage | None] = read_usage
    _first: Usage | None = field(init=False)
    _last: Usage | None = field(init=False)
    _has_warned: bool = False

    def __post_init__(self) -> None:
        self._first = self._last = self.read()

    def look(self) -> None:
        """Warn, once, as soon as something disturbs; cheap enough to be called after every trial."""
        if self._has_warned or self._last is None:
            return
        now = self.read()
        if now is None or now.wall_s - self._last.wall_s < _LOOK_S:
            return
        for sentence in usage_sentences(self._last, now):
            _LOG.warning("%s", sentence)
            self._has_warned = True
        self._last = now

    @property
    def sentences(self) -> list[str]:
        """What disturbed since the beginning."""
        now = self.read()
        return [] if self._first is None or now is None else usage_sentences(self._first, now)


def usage_sentences(before: Usage, after: Usage) -> list[str]:
    """What two looks at the counters say: other work, a hypervisor's other guests, the container's limit."""
    wall_s = after.wall_s - before.wall_s
    processors_s = wall_s * after.n_processors
    if wall_s < _LEAST_S or not processors_s:
        return []
    others = ((after.busy_s - before.busy_s) - (after.own_s - before.own_s)) / processors_s
    stolen = (after.stolen_s - before.stolen_s) / processors_s
    throttled_s = after.throttled_s - before.throttled_s
    found = []
    if others > _OTHERS:
        load = f"load average {after.load:.1f}"
        found.append(f"the machine was busy with other work: {others:.0%} of the processors' time, {load}; {_AGAIN}")
    if stolen > _STOLEN:
        found.append(
            f"the hypervisor gave {stolen:.0%} of the processors' time to others; measure again at another time,"
            " or on a machine that nobody shares"
        )
    if throttled_s > _THROTTLED * wall_s:
        times = after.n_throttled - before.n_throttled
        found.append(
            f"the container's limit of processor time stopped the measurement {times} times, for {throttled_s:.1f} s;"
            " raise it, or use fewer threads, and measure again"
        )
    return found


def relative(seconds: Sequence[tuple[Hashable, float]]) -> list[float]:
    """Each divided by the median of those of its kind."""
    kinds: dict[Hashable, list[float]] = {}
    for kind, value in seconds:
        kinds.setdefault(kind, []).append(value)
    usual = {kind: statistics.median(values) for kind, values in kinds.items()}
    return [value / usual[kind] for kind, value in seconds]


def drift_sentences(baseline_s: Sequence[float], n_repeated: int) -> list[str]:
    """What the baseline's own latencies say.

    Args:
        baseline_s: Of every counted round, in order, all in the same unit.
        n_repeated: Rounds that do not count.
    """
    found, n_rounds = [], len(baseline_s) + n_repeated
    if n_rounds < _LEAST_ROUNDS:
        return []
    if n_repeated > _REPEATED * n_rounds:
        found.append(f"latencies jumped in {n_repeated} of {n_rounds} rounds, which were repeated; {_AGAIN}")
    third = len(baseline_s) // 3
    if third:
        change = statistics.median(baseline_s[-third:]) / statistics.median(baseline_s[:third])
        if not 1 / _DRIFT < change < _DRIFT:
            how = f"{change - 1:.0%} slower" if change > 1 else f"{1 - change:.0%} faster"
            found.append(
                f"the baseline was {how} in the last third of the rounds than in the first: the processor's clock rate"
                f" changes (heat, power, governor) or other work came or went; {_AGAIN}"
            )
    return found
