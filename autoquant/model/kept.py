"""Graphs of models that one function after another looks at."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from autoquant.model.copies import Model
from autoquant.model.graph import Graph

__all__ = ["graph_of", "keeping_the_last_graph"]

_LAST: ContextVar[list[Graph] | None] = ContextVar("_LAST", default=None)
"""At most one; None where none is kept."""


@contextmanager
def keeping_the_last_graph() -> Iterator[None]:
    """In which ``graph_of`` indexes a model once, however many ask for it one after another."""
    token = _LAST.set([])
    try:
        yield
    finally:
        _LAST.reset(token)


def graph_of(model: Model) -> Graph:
    """The graph of a model that stays as it is."""
    last = _LAST.get()
    if last and last[0].model is model:
        return last[0]
    found = Graph(model)
    if last is not None:
        last[:] = [found]
    return found
