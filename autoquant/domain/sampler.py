"""What can be asked to propose."""

from enum import StrEnum

__all__ = ["MAX_SEED", "SamplerName"]

MAX_SEED = 2**32 - 1
"""Largest one that numpy's and Optuna's generators take."""


class SamplerName(StrEnum):
    """Ours, and those of Optuna that it is compared with."""

    STRUCTURE = "structure"
    TPE = "tpe"
    """Models regions jointly."""
    TPE_UNIVARIATE = "tpe-univariate"
    """Models each region by itself."""
    NSGA2 = "nsga2"
    RANDOM = "random"
