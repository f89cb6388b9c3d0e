"""Numbers of things in sentences, and their names."""

from collections.abc import Sequence

__all__ = ["counted", "enumerated"]

_MOST_NAMES = 3


def counted(n: int, noun: str) -> str:
    """Such as ``1 region``, ``2 regions`` and ``2 processes``."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{n} {noun if n == 1 else plural}"


def enumerated(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    n_more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {n_more} more" if n_more > 0 else "")
