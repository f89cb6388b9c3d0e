"""What is wrong with the arguments of a search is found before anything is written."""

from dataclasses import dataclass

from autoquant.api import sentences, steps
from autoquant.api.configuration import Configuration
from autoquant.api.data import SearchData, read_search_data
from autoquant.api.warm import WarmSource, read_warm_start
from autoquant.domain.space import SpaceDefinition
from autoquant.measurement.conditions import crowded_sentences
from autoquant.model.numbers import number_outputs_of
from autoquant.model.source import SourceFiles
from autoquant.runtime.providers import provider_of
from autoquant.space.schema import read_space

__all__ = ["Checked", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the arguments name, as it was at the beginning.

    Attributes:
        definition: The space, as it fits the targets.
        source: The model's files.
        numbers: Its outputs of integers that are numbers and no labels.
        data: Samples.
        warm: What a warm start tries, None without one.
        is_pooled: Whether trials run all evaluation samples, so that none of them are held out.
        notes: Sentences that the user should read.
        scheme_notes: Others, where there is something to quantize.
    """

    definition: SpaceDefinition
    source: SourceFiles
    numbers: frozenset[str]
    data: SearchData
    warm: WarmSource | None
    is_pooled: bool
    notes: tuple[str, ...]
    scheme_notes: tuple[str, ...]


def check(asked: Configuration, *, is_pooled: bool = False) -> Checked:
    """Read what the arguments name.

    Args:
        asked: The arguments.
        is_pooled: Whether trials shall run all evaluation samples.

    Raises:
        AutoquantError: Something is not there, damaged, or does not fit the rest.
    """
    for target in asked.targets:
        provider_of(target.ep)
    space = read_space(asked.space, ep=asked.targets[0].ep, accuracy=asked.accuracy)
    definition = steps.fitted(space, asked.targets)
    warm = None if asked.warm_start is None else read_warm_start(asked.warm_start)
    inputs = steps.signatures_of(asked.model)
    source = SourceFiles.read(asked.model)
    data = read_search_data(asked, inputs)
    if is_pooled:
        data = data.united
    return Checked(
        definition=definition,
        source=source,
        numbers=number_outputs_of(asked.model),
        data=data,
        warm=warm,
        is_pooled=is_pooled,
        notes=(
            *crowded_sentences(asked.targets),
            *steps.cache_sentences(asked.cache or steps.user_cache()),
            *data.notes,
        ),
        scheme_notes=tuple(sentences.saturation_sentences(space, definition)),
    )
