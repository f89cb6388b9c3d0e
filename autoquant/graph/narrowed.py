"""Models without the branches of If that no sample takes."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from autoquant.domain.counted import enumerated
from autoquant.domain.feed import Feed
from autoquant.domain.region import TensorName
from autoquant.domain.target import Target
from autoquant.errors import ModelError
from autoquant.model.around import Around
from autoquant.model.copies import Model, in_parts, opset_of
from autoquant.model.graph import Graph
from autoquant.model.rewrite import constants_as_initializers, convert_opset, drop_inferable_types
from autoquant.rewrites.guarded import Taken, guarded
from autoquant.rewrites.taken import Choice, choices_of, conditions_of, with_taken
from autoquant.rewrites.unread import drop_unread
from autoquant.runtime.session import open_parts

__all__ = ["Narrowed", "narrowed", "tidied"]

_LARGEST_BYTES = 2**30
"""Of the user's model: files hold a candidate beside it, and protobuf less than 2 GiB."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A model that runs as the user's does where conditions are as all samples have them.

    Attributes:
        model: It, without the branches that none takes.
        whole: The user's, of the same opset.
        taken: The conditions.
    """

    model: Model
    whole: Model
    taken: Sequence[Taken]

    def around(self, prepared: Model) -> Around:
        """What runs candidates for inputs such as the samples, and the user's model for others.

        Args:
            prepared: What candidates are made of.

        Raises:
            ModelError: These cannot be a branch.
        """
        graph, whole = Graph(prepared), Graph(self.whole)
        _refuse_unwritten(graph)
        if opset_of(prepared) != opset_of(self.whole):
            raise ModelError(f"the given model cannot be converted from opset {opset_of(self.whole)}")
        free = {
            name: [size if own is None else None for size, own in zip(sizes, whole.sizes(name) or (), strict=True)]
            for name, sizes in ((name, graph.sizes(name) or ()) for name in graph.inputs)
        }
        fixed = {name: sizes for name, sizes in free.items() if any(size is not None for size in sizes)}
        return guarded(self.whole, self.taken, fixed)


def narrowed(plain: Model, feeds: Sequence[Feed], opset: int) -> tuple[Narrowed | None, list[str]]:
    """The model of the branches that all samples take, where values of inputs choose them; and what is to be said.

    Args:
        plain: The user's model, without Constant nodes.
        feeds: All samples.
        opset: Of candidates.

    Raises:
        ModelError: There are such branches, but candidates cannot be one.
    """
    if not feeds or not choices_of(plain):
        return None, []
    whole = plain
    with suppress(ModelError):  # candidates stay at its opset, too
        whole = convert_opset(plain, opset) if opset_of(plain) < opset else plain
    _refuse(whole)
    model, taken, notes, varying = whole, list[Taken](), list[str](), set[TensorName]()
    while choices := [choice for choice in choices_of(model) if choice.condition not in varying]:
        found = _conditions(model, choices, feeds)
        same = {choice.node.index: held.pop() for choice, held in zip(choices, found, strict=True) if len(held) == 1}
        varying |= {choice.condition for choice in choices if choice.node.index not in same}
        notes += [_sentence(choice, feeds, is_same=choice.node.index in same) for choice in choices]
        taken += [
            Taken(Graph(model), choice, same[choice.node.index]) for choice in choices if choice.node.index in same
        ]
        model = tidied(with_taken(model, same)) if same else model
    return Narrowed(model, whole, taken) if taken else None, list(dict.fromkeys(notes))


def tidied(model: Model) -> Model:
    """Without Constant nodes, what leads to no output, and what is said of shapes inside that can be inferred."""
    return drop_inferable_types(drop_unread(constants_as_initializers(model)))


def _refuse(whole: Model) -> None:
    graph = Graph(whole)
    _refuse_unwritten(graph)
    unranked = next((name for name in graph.inputs if graph.sizes(name) is None), None)
    if unranked is not None:
        raise ModelError(f"it does not say how many dimensions input '{unranked}' has")
    untyped = next((name for name in graph.outputs if graph.dtype(name) is None), None)
    if untyped is not None:
        raise ModelError(f"it does not say of which type output '{untyped}' is")
    if whole.functions:
        raise ModelError(f"function '{whole.functions[0].name}' cannot be put in place of its calls")
    if whole.ByteSize() >= _LARGEST_BYTES:
        raise ModelError(f"files would hold it beside candidates, and it has {whole.ByteSize() / 1e9:.1f} GB")


def _refuse_unwritten(graph: Graph) -> None:
    """Outputs of a branch must be."""
    unwritten = next((name for name in graph.outputs if name not in graph.producer), None)
    if unwritten is not None:
        raise ModelError(f"no node writes output '{unwritten}'")


def _conditions(model: Model, choices: Sequence[Choice], feeds: Sequence[Feed]) -> list[set[bool]]:
    """What they are in the samples."""
    session, found = open_parts(*in_parts(conditions_of(model, choices)), Target()), [set[bool]() for _ in choices]
    read = {value.name for value in session.get_inputs()}
    for feed in feeds:
        outputs = session.run(None, {name: array for name, array in feed.items() if name in read})
        for held, output in zip(found, outputs, strict=True):
            held.add(bool(np.asarray(output).item()))
    return found


def _sentence(choice: Choice, feeds: Sequence[Feed], *, is_same: bool) -> str:
    inputs = enumerated([f"'{name}'" for name in choice.inputs])
    by = f"'{choice.node.name or choice.node.outputs[0]}', by {inputs}"
    if not is_same:
        return f"samples take both branches of {by}: what is in them stays float; give samples that take one"
    value = _single(feeds, choice.inputs[0]) if len(choice.inputs) == 1 else None
    is_so = "" if value is None else f", which is {value} in all of them"
    return (
        f"all samples take one branch of {by}{is_so}: candidates are that branch, and for other inputs files hold the"
        " given model beside them, in float"
    )


def _single(feeds: Sequence[Feed], name: TensorName) -> str | None:
    """The number that an input is in all samples; None where it is more than one."""
    arrays = [np.asarray(feed[name]) for feed in feeds]
    values = {array.item() for array in arrays} if all(array.size == 1 for array in arrays) else set()
    return str(values.pop()) if len(values) == 1 else None
