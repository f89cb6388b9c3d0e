"""Rescaling of a prepared model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoquant.domain.region import TensorName
from autoquant.domain.statistics import ChannelStatistics
from autoquant.equalisation.channels import trace
from autoquant.equalisation.rescale import rescaled
from autoquant.equalisation.rules import RULES
from autoquant.equalisation.scales import choose_exponents
from autoquant.model.copies import model_digest
from autoquant.model.prepared import PreparedModel

__all__ = ["Equalised", "equalise"]

_IMPOSSIBLE = "no channel can be rescaled: what lies between the linear operators does not let a factor pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Equalised:
    """A prepared model whose channels were rescaled.

    Attributes:
        prepared: The model: same nodes, same tensors, other constants; the one that was given where nothing could be
            gained.
        tensors: Activations that hold other values than before, in topological order.
        largest_exponent: The largest scale, or one over the smallest, is this power of two.
        note: The same in a sentence.
    """

    prepared: PreparedModel
    tensors: tuple[TensorName, ...]
    largest_exponent: int
    note: str


def equalise(prepared: PreparedModel, statistics: Mapping[TensorName, ChannelStatistics]) -> Equalised:
    """Balance the channels of activations against the weights that read them.

    What a channel is divided by, the constants that read it are multiplied by: in Conv, ConvTranspose, Gemm and MatMul,
    through Relu, pooling, residual sums, concatenations and whatever else moves values; scales begin in linear
    operators, LayerNormalization, BatchNormalization and constant factors. All of them are powers of two, so that the
    outputs stay equal to the last bit, unless numbers leave the range of float32. Statistics of the rescaled tensors
    have to be collected anew.

    Args:
        prepared: The preprocessed model.
        statistics: Of the channels of its activations.
    """
    channels = trace(prepared.graph, RULES)
    exponents = choose_exponents(prepared.graph, channels, statistics)
    tensors = tuple(name for name, labels in channels.labels.items() if exponents[labels].any())
    if not tensors:
        note = _IMPOSSIBLE if channels.n == 1 else "rescaling channels would gain nothing"
        return Equalised(prepared=prepared, tensors=(), largest_exponent=0, note=note)
    graph = rescaled(prepared.graph, channels.constants, exponents)
    largest = int(abs(exponents).max())
    return Equalised(
        prepared=replace(prepared, graph=graph, digest=model_digest(graph.model)),
        tensors=tensors,
        largest_exponent=largest,
        note=f"channels of {len(tensors)} activations are rescaled by powers of two, up to 2^{largest}",
    )
