"""What is done for accuracy at no cost in latency."""

from enum import StrEnum

__all__ = ["Accuracy", "Form"]


class Accuracy(StrEnum):
    """Algorithms that change the numbers of a model and not its kernels.

    ``none``: schemes as the space says them. ``fast``: what costs a trial nothing: corrected biases, equalised forms of
    the float model. ``full``: also what refines the finalists, within the budget.
    """

    NONE = "none"
    FAST = "fast"
    FULL = "full"


class Form(StrEnum):
    """Of the float model: all compute the same, and lose less or more of it when they are quantized."""

    PLAIN = "plain"
    """The preprocessed model as it is."""
    EQUALISED = "equalised"
    """Its channels are balanced by powers of two."""
