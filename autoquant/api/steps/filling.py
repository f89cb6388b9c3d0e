"""The same model with more channels."""

from collections.abc import Mapping
from dataclasses import replace

from autoquant.domain.region import TensorName
from autoquant.domain.statistics import ChannelStatistics, Statistics
from autoquant.model.copies import model_digest
from autoquant.model.graph import Graph
from autoquant.model.prepared import PreparedModel
from autoquant.rewrites.filled import Filling, fill_channels, spread
from autoquant.rewrites.layouts import Layout

__all__ = ["fill"]


def fill(prepared: PreparedModel, statistics: Statistics, filling: Filling) -> tuple[PreparedModel, Statistics] | None:
    """Fill channels up with zeros, see ``autoquant.rewrites.filled``; None where there are none to be filled up.

    Args:
        prepared: A preprocessed model.
        statistics: What calibration observed of it; what is filled in counts in no range.
        filling: How far.
    """
    found = fill_channels(prepared.graph, filling)
    if found is None:
        return None
    channels = {name: _spread(name, each, found.layouts) for name, each in statistics.channels.items()}
    filled = replace(prepared, graph=Graph(found.model), digest=model_digest(found.model))
    return filled, replace(statistics, channels=channels)


def _spread(name: TensorName, found: ChannelStatistics, layouts: Mapping[TensorName, Layout]) -> ChannelStatistics:
    if name not in layouts or not found.mean.size:
        return found
    minimum, maximum = (spread(each, 0, layouts[name]) for each in (found.minimum, found.maximum))
    return replace(found, minimum=minimum, maximum=maximum, mean=spread(found.mean, 0, layouts[name]))
