"""How much is done for accuracy at no cost in latency."""

from enum import StrEnum

__all__ = ["Accuracy"]


class Accuracy(StrEnum):
    """Algorithms that change the numbers of a model and not its kernels.

    ``none``: schemes as the space says them. ``fast``: what costs a trial nothing: corrected biases, equalised forms of
    the float model. ``full``: also what refines the finalists, within the budget.
    """

    NONE = "none"
    FAST = "fast"
    FULL = "full"
