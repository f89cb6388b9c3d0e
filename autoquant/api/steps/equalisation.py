"""The same float model, easier to quantize."""

from autoquant.domain.statistics import Statistics
from autoquant.equalisation import equalise as stage
from autoquant.equalisation.equalise import Equalised
from autoquant.model.prepared import PreparedModel

__all__ = ["equalise"]


def equalise(prepared: PreparedModel, statistics: Statistics) -> Equalised:
    """Balance the channels of activations against the weights that read them, with outputs equal to the last bit.

    The regions of the new model are those of the old one; calibrate again on the new one before building candidates.

    Args:
        prepared: The preprocessed model.
        statistics: From ``calibrate`` of that model.
    """
    return stage.equalise(prepared, statistics.channels)
