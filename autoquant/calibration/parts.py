"""Data in three parts: what calibrates, what the search looks at, and what only the final table sees."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoquant.calibration.batches import select
from autoquant.domain.feed import Samples
from autoquant.errors import DataError, UsageError

__all__ = ["Parts", "hold_out", "split_in_three"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Samples of different content in every part.

    Attributes:
        calibration: From which ranges come.
        search: On which candidates are compared.
        held_out: Never seen before the final table, so that what was fitted to the search part shows.
    """

    calibration: Samples
    search: Samples
    held_out: Samples


def split_in_three(samples: Samples, shares: tuple[float, float] = (0.4, 0.3), seed: int = 0) -> Parts:
    """Divide samples into calibration, search and held-out parts.

    To which part a sample goes depends on the contents of all, not on their order, which in real data often repeats;
    samples of equal content go together.

    Args:
        samples: At least three that differ.
        shares: Of the different samples, for calibration and search, in (0, 1) and together below 1; the rest is held
            out, and each part gets at least one.
        seed: Of the division.

    Raises:
        DataError: There are fewer than three different samples.
        UsageError: The shares are out of their range.
    """
    calibration, search, held_out = _deal(samples, shares, ("calibration", "search", "held-out"), seed)
    return Parts(calibration=calibration, search=search, held_out=held_out)


def hold_out(samples: Samples, share: float = 0.5, seed: int = 0) -> tuple[Samples, Samples]:
    """Divide evaluation data into search and held-out parts, as ``split_in_three`` does.

    Args:
        samples: At least two that differ.
        share: Of the different samples, for the search, in (0, 1).
        seed: Of the division.

    Raises:
        DataError: There are fewer than two different samples.
        UsageError: ``share`` is out of its range.
    """
    search, held_out = _deal(samples, (share,), ("search", "held-out"), seed)
    return search, held_out


def _deal(samples: Samples, shares: Sequence[float], names: Sequence[str], seed: int) -> list[Samples]:
    """One part a name, the last of them what ``shares`` leave."""
    if not all(share > 0 for share in shares) or not sum(shares) < 1:
        raise UsageError(f"shares are {', '.join(map(str, shares))}, give numbers above 0 that leave some to hold out")
    contents = samples.feed_digests
    different = sorted(set(contents))
    if len(different) < len(names):
        raise DataError(
            f"data {samples.source}: a split into {', '.join(names)} needs at least {len(names)} different samples,"
            f" not {len(different)}, give more"
        )
    order, start, parts = np.random.default_rng(seed).permutation(len(different)), 0, []
    for k, name in enumerate(names):
        n_after = len(names) - k - 1
        wanted = round(len(different) * shares[k]) if n_after else len(different)
        end = min(start + max(wanted, 1), len(different) - n_after)
        chosen = {different[i] for i in order[start:end]}
        parts.append(select(samples, [i for i, content in enumerate(contents) if content in chosen], name))
        start = end
    return parts
