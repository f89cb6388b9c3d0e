"""What is wrong with the arguments of a search is found before anything is written."""

import re
from dataclasses import dataclass

from autoquant.api import sentences, steps
from autoquant.api.configuration import Configuration
from autoquant.api.data import SearchData, read_search_data
from autoquant.api.warm import WarmSource, read_warm_start
from autoquant.domain.space import SpaceDefinition
from autoquant.errors import ModelError
from autoquant.measurement.conditions import crowded_sentences
from autoquant.model.numbers import number_outputs_of
from autoquant.model.source import SourceFiles
from autoquant.runtime.providers import provider_of
from autoquant.space.schema import read_space

__all__ = ["Checked", "check"]

_OF_RUNS = re.compile(r"(float|t[0-9]{4,}.*)\.onnx")
"""Names of the files of members."""


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
    _refuse_own_names(source)
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


def _refuse_own_names(source: SourceFiles) -> None:
    """The model's files are copied beside those of members."""
    model, *data = source.digests
    taken = next((file.name for file in data if file.parent == model.parent and _OF_RUNS.fullmatch(file.name)), None)
    if taken is not None:
        raise ModelError(
            f"{model}: its external data are in '{taken}', as a file of the run is called; save them in a file of"
            " another name"
        )
