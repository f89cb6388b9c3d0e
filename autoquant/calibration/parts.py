"""Evaluation data in two parts: what the search looks at, and what only the final table sees."""

import numpy as np

from autoquant.calibration.batches import select
from autoquant.domain.feed import Samples
from autoquant.errors import DataError

__all__ = ["hold_out"]


def hold_out(samples: Samples) -> tuple[Samples, Samples]:
    """Divide evaluation data into search and held-out parts, half of the different samples each.

    To which part a sample goes depends on the contents of all, not on their order, which in real data often repeats;
    samples of equal content go together.

    Args:
        samples: At least two that differ.

    Raises:
        DataError: There are fewer than two different samples.
    """
    contents = samples.feed_digests
    different = sorted(set(contents))
    if len(different) < 2:
        raise DataError(
            f"data {samples.source}: a split into search, held-out needs at least 2 different samples,"
            f" not {len(different)}, give more"
        )
    order = np.random.default_rng(0).permutation(len(different))
    chosen = {different[i] for i in order[: round(len(different) / 2)]}
    is_search = [content in chosen for content in contents]
    return (
        select(samples, [i for i, guides in enumerate(is_search) if guides], "search"),
        select(samples, [i for i, guides in enumerate(is_search) if not guides], "held-out"),
    )
