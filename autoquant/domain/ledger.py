"""What each region and each border costs, as the model that a search has fitted believes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from autoquant.domain.region import RegionId

__all__ = ["BorderCost", "Estimate", "Foresight", "Ledger", "RegionCost", "Way"]


class Way(StrEnum):
    """How a region runs on integers."""

    ALL = "all"
    """All operators that can."""
    LINEAR = "linear"
    """The linear ones."""
    DYNAMIC = "dynamic"
    """The linear ones, with the range of each input."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is believed of a number.

    Attributes:
        value: Median of the belief.
        low: Lower end of its 90 % interval.
        high: Upper end.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCost:
    """What happens where one region runs one kind of its operators on integers.

    Attributes:
        region: Which one.
        operators: Which ones, and how.
        change_us: Of the latency, by target name, without borders; negative is faster.
        scheme: The least noisy one of that kind that the region may take.
        snr_db: That this scheme would leave at the worst output where all other regions are float.
        noise_share: The region's share, 0 to 1, of the noise power at the worst output of the model that runs every
            region so; a region that may not takes the other kind. As medians, shares add up to one only roughly.
    """

    region: RegionId
    operators: Way
    change_us: Mapping[str, Estimate]
    scheme: str
    snr_db: Estimate
    noise_share: Estimate

    def saved_per_noise(self, target: str) -> float:
        """Microseconds that are saved for the noise power, relative to the signal's, that it adds."""
        return -self.change_us[target].value * 10 ** (self.snr_db.value / 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class BorderCost:
    """What it costs where one of two touching regions carries integers and the other does not.

    Attributes:
        regions: The two.
        change_us: Of the latency, by target name; negative is faster.
    """

    regions: tuple[RegionId, RegionId]
    change_us: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """How well evaluations were predicted before they were made.

    Attributes:
        n_recent: So many of the last evaluations are behind the shares.
        snr_share: Of them, how many had the SNR inside the 90 % interval of its prediction; 0 to 1.
        ratio_share: The same of the latency ratio on the first target.
        generic_share: Of the proposals, how many were left to a generic sampler in the end; 0 to 1.
    """

    n_recent: int
    snr_share: float
    ratio_share: float
    generic_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What each region and each border costs.

    Intervals are those of the fitted model, not of measurements of single regions.

    Attributes:
        regions: In topological order, once for each kind of operators that the region may run on integers.
        borders: Every pair of touching regions.
        snr_stretch: What intervals of SNR and noise were widened by, so that they fit the errors of recent predictions.
        latency_stretch: The same for latencies.
        foresight: None where no evaluation was predicted before it was made.
    """

    regions: tuple[RegionCost, ...]
    borders: tuple[BorderCost, ...]
    snr_stretch: float
    latency_stretch: float
    foresight: Foresight | None
