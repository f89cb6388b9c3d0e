"""Numbers as a report spells them."""

import math

from autoquant.domain.front import Member

__all__ = ["LONGEST_LABEL", "snr_text", "worst_text"]

LONGEST_LABEL = 6
"""Characters of a label that fit into a cell of a table or beside a point."""


def snr_text(member: Member) -> str:
    """SNR of a member's worst output."""
    if member.quality is None:
        return "reference"
    return worst_text(member.quality.worst_db)


def worst_text(worst_db: float) -> str:
    """An SNR in dB, or what an infinite one means."""
    return f"{worst_db:.1f} dB" if math.isfinite(worst_db) else "equal" if worst_db > 0 else "no signal"
