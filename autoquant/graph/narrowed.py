"""Models without the branches of If that no sample takes."""

from collections.abc import Sequence
from dataclasses import dataclass

from autoquant.domain.feed import Feed
from autoquant.domain.reason import one_line
from autoquant.domain.target import Target
from autoquant.errors import ModelError
from autoquant.graph.levels import are_alike, inputs_of, levels_of, names_of
from autoquant.model.around import Around
from autoquant.model.copies import Model, opset_of, to_bytes
from autoquant.model.graph import Graph
from autoquant.model.rewrite import convert_opset
from autoquant.rewrites.guarded import Taken, guarded
from autoquant.rewrites.taken import choices_of
from autoquant.runtime.session import open_session

__all__ = ["Narrowed", "narrowed"]

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
        unconverted: Why both are not of the opset of candidates; None where they are.
    """

    model: Model
    whole: Model
    taken: Sequence[Sequence[Taken]]
    feed: Feed
    unconverted: str | None

    def around(self, prepared: Model) -> Around:
        """What runs candidates for inputs such as the samples, and the user's model for others.

        Args:
            prepared: What candidates are made of, of the same opset.

        Raises:
            ModelError: These cannot be a branch.
        """
        _refuse_large(self.whole.ByteSize() + prepared.ByteSize())
        graph, whole, read = Graph(prepared), Graph(self.whole), Graph(self.model)
        free = {
            name: [size if own is None else None for size, own in zip(sizes, whole.sizes(name) or (), strict=True)]
            for name, sizes in ((name, graph.sizes(name) or ()) for name in graph.inputs)
            if name in read.consumers or name in read.pinned  # whose sizes may be constants by now
        }
        fixed = {name: sizes for name, sizes in free.items() if any(size is not None for size in sizes)}
        found = guarded(self.whole, self.taken, fixed)
        session = open_session(b"".join(found.whole(to_bytes(prepared), {}, {})), Target())
        try:
            session.run(None, self.feed)
        except Exception as error:  # onnxruntime raises its own types from run
            raise ModelError(f"onnxruntime cannot run it beside the given model: {one_line(error)}") from error
        return found


def narrowed(
    plain: Model, feeds: Sequence[Feed], opset: int, names: Sequence[str] = ()
) -> tuple[Narrowed | None, list[str]]:
    """The model of the branches that all samples take, where values of inputs choose them; and what is to be said.

    Args:
        plain: The user's model, without Constant nodes.
        feeds: All samples.
        opset: Of candidates.
        names: What messages call the samples; their places by default.

    Raises:
        DataError: No condition can be computed of a sample.
        ModelError: There are such branches, but candidates cannot be one.
    """
    choices = choices_of(plain)
    if not choices:
        return None, []
    if not feeds:
        chosen = f"{inputs_of(choices)} says which branch of {names_of(choices)} runs"
        return None, [f"{chosen}: without samples both stay float"]
    _refuse(plain)
    whole, unconverted = _converted(plain, feeds, opset)
    levels, model = levels_of(whole, feeds, names)
    taken = [[Taken(Graph(level.model), *each) for each in level.same] for level in levels if level.same]
    found = Narrowed(model, whole, taken, feeds[0], unconverted) if taken else None
    return found, [sentence for level in levels for sentence in level.sentences(feeds)]


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
    _refuse_large(2 * plain.ByteSize())


def _refuse_large(n_bytes: int) -> None:
    if n_bytes > _LARGEST_BYTES:
        raise ModelError(f"files would hold {n_bytes / 1e9:.1f} GB, a candidate and the given model")


def _converted(plain: Model, feeds: Sequence[Feed], opset: int) -> tuple[Model, str | None]:
    """The user's model at the opset of candidates, or as it is and why."""
    if opset_of(plain) >= opset:
        return plain, None
    try:
        found = convert_opset(plain, opset)
        (given, _), (converted, _) = (levels_of(model, feeds[:1]) for model in (plain, found))
    except ModelError as error:
        return plain, str(error)
    if are_alike(given, converted, feeds[0]):
        return found, None
    return plain, f"conversion to opset {opset} fails: branches that no sample takes would compute something else"
