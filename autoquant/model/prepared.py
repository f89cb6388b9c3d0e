"""The float model that every candidate is made from."""

from dataclasses import dataclass
from pathlib import Path

from autoquant.model.around import Around
from autoquant.model.graph import Graph

__all__ = ["PreparedModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """A preprocessed float model.

    Attributes:
        graph: The preprocessed model.
        digest: Of its content.
        source: The user's file.
        source_sha256: Of that file.
        difference_db: SNR of its outputs against the user's file on real inputs, ``inf`` where equal.
        latency_ratio: Of the shortest of a few inferences while these were compared: a hint, no measurement.
        notes: Sentences that the user should read.
        from_halves: Whether tensors of the user's file are float16, by whose rounding alone its outputs then differ.
        around: What files have around candidates; None where these are the whole of them.
    """

    graph: Graph
    digest: str
    source: Path
    source_sha256: str
    difference_db: float
    latency_ratio: float
    notes: tuple[str, ...]
    from_halves: bool = False
    around: Around | None = None
