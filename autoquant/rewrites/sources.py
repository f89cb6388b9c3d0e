"""Tensors that hold the same as others."""

from collections.abc import Mapping

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model, copy_of
from autoquant.rewrites.unread import drop_unread

__all__ = ["with_sources"]


def with_sources(model: Model, sources: Mapping[TensorName, TensorName]) -> Model:
    """The model in which nodes read other tensors instead of some, and without what nothing reads any more.

    Args:
        model: Stays as it is, and is given back where nothing is replaced.
        sources: What is read, by what was; neither outputs of the model nor read by bodies.
    """
    if not sources:
        return model
    found = copy_of(model)
    for node in found.graph.node:
        node.input[:] = [_source(TensorName(name), sources) for name in node.input]
    return drop_unread(found)


def _source(name: TensorName, sources: Mapping[TensorName, TensorName]) -> TensorName:
    while name in sources:
        name = sources[name]
    return name
