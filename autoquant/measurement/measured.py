"""What a joint measurement says of a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoquant.domain.measurement import Footprint, Latency, Quality, SnrInterval
from autoquant.domain.metric import MemberMetric
from autoquant.measurement.intervals import SessionInterval

__all__ = ["Judged", "Measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the outputs of one file say.

    Attributes:
        quality: Over the pooled samples, on the worst target; None for the baseline.
        snr_search: On the samples that the search saw; None where nothing says which they are.
        snr_held_out: On the others; None where there are none.
        metrics: By name, each on the target with the largest drop.
    """

    quality: Quality | None = None
    snr_search: SnrInterval | None = None
    snr_held_out: SnrInterval | None = None
    metrics: Mapping[str, MemberMetric] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured of one file.

    Attributes:
        judged: By its outputs.
        latency: By target name.
        footprint: By target name.
        ratio: Of the latency to the baseline's, by target name; empty from a single process.
        faster_than: Ids of the others that it is shown to be faster than on some target.
    """

    judged: Judged
    latency: Mapping[str, Latency]
    footprint: Mapping[str, Footprint]
    ratio: Mapping[str, SessionInterval]
    faster_than: frozenset[str] = frozenset()
