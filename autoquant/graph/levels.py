"""Which branches of If samples take, where values of inputs choose them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autoquant.domain.counted import enumerated
from autoquant.domain.feed import Feed, sample_name
from autoquant.domain.region import TensorName
from autoquant.domain.target import Target
from autoquant.errors import DataError, ModelError
from autoquant.graph.likeness import keeps_outputs, likeness_of, reference_of
from autoquant.model.copies import Model, in_parts
from autoquant.model.rewrite import constants_as_initializers, drop_inferable_types
from autoquant.rewrites.taken import Choice, choices_of, conditions_of, with_taken
from autoquant.rewrites.unread import drop_unread
from autoquant.runtime.samples import run_sample
from autoquant.runtime.session import open_parts

__all__ = ["Level", "are_alike", "inputs_of", "levels_of", "names_of", "tidied"]


@dataclass(frozen=True, slots=True)
class Level:
    """The Ifs of one graph.

    Attributes:
        model: In whose main graph they are.
        same: Those that all samples choose alike, with their condition.
        others: Those that they do not.
    """

    model: Model
    same: Sequence[tuple[Choice, bool]]
    others: Sequence[Choice]

    def with_branches(self, *, taken: bool) -> Model:
        """The model with the branches that samples take in place of the Ifs, or with the others."""
        return tidied(with_taken(self.model, {choice.node.index: holds is taken for choice, holds in self.same}))

    def sentences(self, feeds: Sequence[Feed]) -> Iterator[str]:
        """What the user should read of them."""
        if self.same:
            same = [choice for choice, _ in self.same]
            inputs = {name for choice in same for name in choice.inputs}
            value = _single(feeds, *inputs) if len(inputs) == 1 else None
            is_so = "" if value is None else f", which is {value} in all of them"
            yield (
                f"all samples take one branch of {names_of(same)}, by {inputs_of(same)}{is_so}: candidates are that"
                " branch, and for other inputs files hold the given model beside them, in float"
            )
        if self.others:
            yield (
                f"samples take both branches of {names_of(self.others)}, by {inputs_of(self.others)}: what is in them"
                " stays float; give samples that take one"
            )


def levels_of(model: Model, feeds: Sequence[Feed], names: Sequence[str] = ()) -> tuple[list[Level], Model]:
    """Of the main graph, of the branches that are taken there, and so on; and the model without those that none takes.

    Args:
        model: Without Constant nodes.
        feeds: All samples.
        names: What messages call them; their places by default.

    Raises:
        DataError: No condition can be computed of one.
    """
    found, varying = list[Level](), set[TensorName]()
    while choices := [choice for choice in choices_of(model) if choice.condition not in varying]:
        conditions = list(zip(choices, _conditions(model, choices, feeds, names), strict=True))
        others = [choice for choice, held in conditions if len(held) > 1]
        found.append(Level(model, [(choice, held.pop()) for choice, held in conditions if len(held) == 1], others))
        if not found[-1].same:
            break
        varying |= {choice.condition for choice in others}
        model = found[-1].with_branches(taken=True)
    return found, model


def are_alike(given: Sequence[Level], converted: Sequence[Level], feed: Feed) -> bool:
    """Whether branches that no sample takes compute the same in two forms of a model, where they take a sample."""
    if [len(level.same) for level in given] != [len(level.same) for level in converted]:
        return False
    for one, other in zip(given, converted, strict=True):
        if not one.same:
            continue
        expected, found = one.with_branches(taken=False), other.with_branches(taken=False)
        try:
            reference = reference_of(open_parts(*in_parts(expected), Target()), [feed])
            if not keeps_outputs(found, likeness_of(found, reference).difference_db, from_halves=False):
                return False
        except DataError:
            continue
        except ModelError:
            return False
    return True


def tidied(model: Model) -> Model:
    """Without Constant nodes, what leads to no output, and what is said of shapes inside that can be inferred."""
    return drop_inferable_types(drop_unread(constants_as_initializers(model)))


def names_of(choices: Sequence[Choice]) -> str:
    """The first few."""
    return enumerated([f"'{choice.node.name or choice.node.outputs[0]}'" for choice in choices])


def inputs_of(choices: Sequence[Choice]) -> str:
    """The first few by which they are chosen."""
    return enumerated([f"'{name}'" for name in dict.fromkeys(name for choice in choices for name in choice.inputs)])


def _conditions(
    model: Model, choices: Sequence[Choice], feeds: Sequence[Feed], names: Sequence[str]
) -> list[set[bool]]:
    """What they are in the samples; both where one is not a single truth, by which an If fails."""
    session, found = open_parts(*in_parts(conditions_of(model, choices)), Target()), [set[bool]() for _ in choices]
    read = {value.name for value in session.get_inputs()}
    for i, feed in enumerate(feeds):
        needed = {name: array for name, array in feed.items() if name in read}
        for held, output in zip(found, run_sample(session, needed, sample_name(names, i)), strict=True):
            held.update({bool(output.item())} if output.size == 1 else {False, True})
    return found


def _single(feeds: Sequence[Feed], name: TensorName) -> str | None:
    """The number that an input is in all samples; None where it is more than one."""
    arrays = [np.asarray(feed[name]) for feed in feeds]
    values = {array.item() for array in arrays} if all(array.size == 1 for array in arrays) else set()
    return str(values.pop()) if len(values) == 1 else None
