"""Names that onnxruntime gives to what is in functions when it inlines them."""

from collections.abc import Iterator

from autoquant.model.copies import Model, copy_of
from autoquant.model.kept import graph_of
from autoquant.model.names import NewNames
from autoquant.model.subgraphs import graphs_of, rename_tensors

__all__ = ["rename_inlined"]

_PREFIX = "_inlfunc_"


def rename_inlined(model: Model) -> Model:
    """Tensors with such names get others.

    It counts from the beginning in each model, so that an operator that is a function, as HardSwish, which is added to
    what it wrote once would be inlined under names that are taken: "Duplicate definition of name".
    """
    kept = {value.name for value in (*model.graph.input, *model.graph.output)}
    found = [name for name in dict.fromkeys(_tensors(model)) if name.startswith(_PREFIX) and name not in kept]
    if not found:
        return model
    names = NewNames(graph_of(model))
    new = {name: names.new(name.removeprefix(_PREFIX)) for name in found}
    copy = copy_of(model)
    rename_tensors(copy.graph, new)
    return copy


def _tensors(model: Model) -> Iterator[str]:
    for graph in graphs_of(model.graph):
        yield from (tensor.name for tensor in graph.initializer)
        yield from (name for node in graph.node for name in node.output)
