"""Models without the branches of If that no sample takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autoquant.domain.counted import enumerated
from autoquant.domain.feed import Feed
from autoquant.domain.reason import one_line
from autoquant.domain.region import TensorName
from autoquant.domain.target import Target
from autoquant.errors import DataError, ModelError
from autoquant.graph.likeness import keeps_outputs, likeness_of, reference_of
from autoquant.model.around import Around
from autoquant.model.copies import Model, in_parts, opset_of, to_bytes
from autoquant.model.graph import Graph
from autoquant.model.rewrite import constants_as_initializers, convert_opset, drop_inferable_types
from autoquant.rewrites.guarded import Taken, guarded
from autoquant.rewrites.taken import Choice, choices_of, conditions_of, with_taken
from autoquant.rewrites.unread import drop_unread
from autoquant.runtime.session import open_parts, open_session

__all__ = ["Narrowed", "narrowed", "tidied"]

_LARGEST_BYTES = int(1.9e9)
"""Of the user's model and the preprocessed one: files hold both, and protobuf less than 2 GiB."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A model that runs as the user's does where conditions are as all samples have them.

    Attributes:
        model: It, without the branches that none takes.
        whole: The user's, of the same opset.
        taken: The conditions, those of branches behind those of the graph around them.
        feed: A sample.
    """

    model: Model
    whole: Model
    taken: Sequence[Sequence[Taken]]
    feed: Feed

    def around(self, prepared: Model) -> Around:
        """What runs candidates for inputs such as the samples, and the user's model for others.

        Args:
            prepared: What candidates are made of.

        Raises:
            ModelError: These cannot be a branch.
        """
        if opset_of(prepared) != opset_of(self.whole):
            raise ModelError(f"the given model cannot be converted from opset {opset_of(self.whole)}")
        n_bytes = self.whole.ByteSize() + prepared.ByteSize()
        if n_bytes > _LARGEST_BYTES:
            raise ModelError(f"files would hold {n_bytes / 1e9:.1f} GB, a candidate and the given model")
        graph, whole = Graph(prepared), Graph(self.whole)
        free = {
            name: [size if own is None else None for size, own in zip(sizes, whole.sizes(name) or (), strict=True)]
            for name, sizes in ((name, graph.sizes(name) or ()) for name in graph.inputs)
            if name in graph.consumers or name in graph.pinned
        }
        fixed = {name: sizes for name, sizes in free.items() if any(size is not None for size in sizes)}
        found = guarded(self.whole, self.taken, fixed)
        session = open_session(b"".join(found.whole(to_bytes(prepared), {}, {})), Target())
        try:
            session.run(None, self.feed)
        except Exception as error:  # onnxruntime raises its own types from run
            raise ModelError(f"onnxruntime cannot run it beside the given model: {one_line(error)}") from error
        return found


def narrowed(plain: Model, feeds: Sequence[Feed], opset: int) -> tuple[Narrowed | None, list[str]]:
    """The model of the branches that all samples take, where values of inputs choose them; and what is to be said.

    Args:
        plain: The user's model, without Constant nodes.
        feeds: All samples.
        opset: Of candidates.

    Raises:
        ModelError: There are such branches, but candidates cannot be one.
    """
    choices = choices_of(plain)
    if not choices:
        return None, []
    if not feeds:
        return None, [
            f"{_inputs(choices)} says which branch of {_names(choices)} runs: without samples both stay float"
        ]
    _refuse(plain)
    whole = _converted(plain, feeds, opset)
    model, taken, notes, varying = whole, list[list[Taken]](), list[str](), set[TensorName]()
    while choices := [choice for choice in choices_of(model) if choice.condition not in varying]:
        held = _conditions(model, choices, feeds)
        same = [(choice, each.pop()) for choice, each in zip(choices, held, strict=True) if len(each) == 1]
        others = [choice for choice in choices if choice not in [choice for choice, _ in same]]
        notes += _sentences([choice for choice, _ in same], others, feeds)
        if not same:
            break
        varying |= {choice.condition for choice in others}
        taken.append([Taken(Graph(model), choice, holds) for choice, holds in same])
        model = tidied(with_taken(model, {choice.node.index: holds for choice, holds in same}))
    return Narrowed(model, whole, taken, feeds[0]) if taken else None, notes


def tidied(model: Model) -> Model:
    """Without Constant nodes, what leads to no output, and what is said of shapes inside that can be inferred."""
    return drop_inferable_types(drop_unread(constants_as_initializers(model)))


def _refuse(plain: Model) -> None:
    graph = Graph(plain)
    passed = next((name for name in graph.outputs if name in graph.inputs), None)
    if passed is not None:
        raise ModelError(f"output '{passed}' is an input")
    unranked = next((name for name in graph.inputs if graph.sizes(name) is None), None)
    if unranked is not None:
        raise ModelError(f"the model does not say how many dimensions input '{unranked}' has")
    untyped = next((name for name in graph.outputs if graph.dtype(name) is None), None)
    if untyped is not None:
        raise ModelError(f"the model does not say of which type output '{untyped}' is")
    if plain.functions:
        raise ModelError(f"function '{plain.functions[0].name}' cannot be put in place of its calls")


def _converted(plain: Model, feeds: Sequence[Feed], opset: int) -> Model:
    """The user's model at the opset of candidates, or as it is where that cannot be or changes what no sample runs."""
    if opset_of(plain) >= opset:
        return plain
    try:
        found = convert_opset(plain, opset)
        others = [_other_branches(model, feeds[:1]) for model in (plain, found)]
        reference = reference_of(open_parts(*in_parts(others[0]), Target()), feeds[:1])
        is_like = keeps_outputs(others[1], likeness_of(others[1], reference).difference_db, from_halves=False)
    except DataError:  # the user's model does not take them there
        return found
    except ModelError:  # candidates stay at its opset, too
        return plain
    return found if is_like else plain


def _other_branches(model: Model, feeds: Sequence[Feed]) -> Model:
    """The model with the branches that samples do not take."""
    choices = choices_of(model)
    held = _conditions(model, choices, feeds)
    return with_taken(model, {c.node.index: not each.pop() for c, each in zip(choices, held, strict=True)})


def _conditions(model: Model, choices: Sequence[Choice], feeds: Sequence[Feed]) -> list[set[bool]]:
    """What they are in the samples."""
    session, found = open_parts(*in_parts(conditions_of(model, choices)), Target()), [set[bool]() for _ in choices]
    read = {value.name for value in session.get_inputs()}
    for feed in feeds:
        outputs = session.run(None, {name: array for name, array in feed.items() if name in read})
        for held, output in zip(found, outputs, strict=True):
            held.add(bool(np.asarray(output).item()))
    return found


def _sentences(same: Sequence[Choice], others: Sequence[Choice], feeds: Sequence[Feed]) -> Iterator[str]:
    """Of those of one graph, which samples choose alike and which they do not."""
    if same:
        inputs = {name for choice in same for name in choice.inputs}
        value = _single(feeds, *inputs) if len(inputs) == 1 else None
        is_so = "" if value is None else f", which is {value} in all of them"
        yield (
            f"all samples take one branch of {_names(same)}, by {_inputs(same)}{is_so}: candidates are that branch, and"
            " for other inputs files hold the given model beside them, in float"
        )
    if others:
        yield (
            f"samples take both branches of {_names(others)}, by {_inputs(others)}: what is in them stays float; give"
            " samples that take one"
        )


def _names(choices: Sequence[Choice]) -> str:
    return enumerated([f"'{choice.node.name or choice.node.outputs[0]}'" for choice in choices])


def _inputs(choices: Sequence[Choice]) -> str:
    return enumerated([f"'{name}'" for name in dict.fromkeys(name for choice in choices for name in choice.inputs)])


def _single(feeds: Sequence[Feed], name: TensorName) -> str | None:
    """The number that an input is in all samples; None where it is more than one."""
    arrays = [np.asarray(feed[name]) for feed in feeds]
    values = {array.item() for array in arrays} if all(array.size == 1 for array in arrays) else set()
    return str(values.pop()) if len(values) == 1 else None
