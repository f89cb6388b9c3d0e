"""Warnings about what a user's own code did."""

import inspect
import warnings

__all__ = ["warn_caller"]

_INSIDE = frozenset({"autoquant", "optuna"})


def warn_caller(message: str) -> None:
    """Warn at the line that led here from outside of this package and Optuna, whose user can do something about it.

    Args:
        message: One sentence.
    """
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
