"""The ledger as the report shows it."""

from collections.abc import Sequence
from dataclasses import dataclass

from autoquant.domain.front import RunRecord
from autoquant.domain.ledger import BorderCost, Ledger, RegionCost
from autoquant.report.summary import foresight_sentence

__all__ = ["LedgerView", "ledger_view", "signed_text"]


@dataclass(frozen=True, slots=True)
class LedgerView:
    """What the template writes.

    Attributes:
        lead: What the numbers are, and how good.
        regions: What saves most on the first target for the noise that it adds comes first.
        borders: The costliest on the first target comes first.
    """

    lead: str
    regions: Sequence[RegionCost]
    borders: Sequence[BorderCost]


def ledger_view(record: RunRecord) -> LedgerView | None:
    """The ledger in the order in which it is read; None where the record has none."""
    ledger, target = record.ledger, record.front.targets[0].name
    if ledger is None:
        return None
    return LedgerView(
        _lead(ledger),
        sorted(ledger.regions, key=lambda cost: -cost.saved_per_noise(target)),
        sorted(ledger.borders, key=lambda cost: -cost.change_us[target].value),
    )


def signed_text(number: float) -> str:
    """Three digits or so.

    >>> signed_text(-0.001), signed_text(12.34), signed_text(-1234.5)
    ('+0.00', '+12.3', '-1234')
    """
    size = abs(round(number, 1))
    digits = 2 if size < 10 else 1 if size < 100 else 0
    return f"{round(number, digits) + 0.0:+.{digits}f}"


def _lead(ledger: Ledger) -> str:
    sentences = [
        "What the sampler's model believes, fitted to the evaluations together. A region and its borders mostly change"
        " together: their sum is known better than each of them.",
        f"Ranges are the model's 90 % intervals; after the errors of recent predictions those of latencies are"
        f" {ledger.latency_stretch:.2g} and those of SNR and noise {ledger.snr_stretch:.2g} times as wide as it says.",
    ]
    return " ".join([*sentences, *([] if ledger.foresight is None else [foresight_sentence(ledger.foresight)])])
