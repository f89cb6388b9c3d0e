"""Which channels a search fills up, by what it wins here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autoquant.api import steps
from autoquant.api.ingredients import Ingredients
from autoquant.errors import ModelError, ProfileError
from autoquant.measurement.latency import Timings
from autoquant.qdq.candidate import Candidate
from autoquant.rewrites.filled import Filling

__all__ = ["Compare", "Gain", "fastest", "filled", "fillings_of"]

_FILLINGS = (Filling(16), Filling(16, is_tight=True), Filling(8))
"""Blocks of channels have 16 of them on processors with AVX512 and 8 on others."""
_LEVEL = 1.01
"""No ratio beyond it is taken for as fast."""
Compare = Callable[[Candidate, Candidate], Mapping[str, Timings]]
"""Latencies of the second candidate against the first, by target name."""


@dataclass(frozen=True, slots=True)
class Gain:
    """What filled channels take against those that are not.

    Attributes:
        float_ratio: Latency of the float model, on the target where it wins least.
        quantized_ratio: The same of the first recipe with calibrated ranges; None where there is no such recipe.
    """

    float_ratio: float
    quantized_ratio: float | None = None

    def __str__(self) -> str:
        recipe = "" if self.quantized_ratio is None else f", the first recipe {self.quantized_ratio:.3f}"
        return f"float takes {self.float_ratio:.3f} of its latency{recipe}"

    @property
    def mean(self) -> float:
        """Of both, or of the one that there is."""
        ratios = [self.float_ratio, *([] if self.quantized_ratio is None else [self.quantized_ratio])]
        return sum(ratios) / len(ratios)


def fillings_of(plain: Ingredients, n_regions: int) -> Mapping[Filling, Ingredients]:
    """Those that give models of their own."""
    found: dict[Filling, Ingredients] = {}
    for filling in _FILLINGS:
        other = filled(plain, filling, n_regions)
        if other is not None and all(other.prepared.digest != each.prepared.digest for each in found.values()):
            found[filling] = other
    return found


def filled(plain: Ingredients, filling: Filling, n_regions: int) -> Ingredients | None:
    """What candidates are built from with channels filled up; None where none are.

    Args:
        plain: The same as the model has them.
        filling: How far.
        n_regions: Most regions.
    """
    found = steps.fill(plain.prepared, plain.statistics, filling)
    if found is None:
        return None
    prepared, statistics = found
    regions = steps.find_regions(prepared, space=plain.definition, n_regions=n_regions)
    return replace(plain, prepared=prepared, statistics=statistics, regions=regions, filling=filling)


def fastest(
    plain: Ingredients, others: Sequence[Ingredients], compare: Compare, notes: list[str]
) -> tuple[Ingredients, Gain | None]:
    """What is shown to be faster, in float or in 8 bits, and in neither slower; the plain one where nothing is.

    Args:
        plain: As the model has its channels.
        others: With channels filled up.
        compare: Times candidates.
        notes: Gets a sentence where one cannot be compared, after which no others are.
    """
    best, gain = plain, None
    for other in others:
        try:
            found = _gain(plain, other, compare)
        except (ModelError, ProfileError) as error:  # the latter where the process that measures was lost
            notes.append(f"channels are not tried filled up any further: {error}")
            break
        if found is not None and (gain is None or found.mean < gain.mean):
            best, gain = other, found
    return best, gain


def _gain(plain: Ingredients, other: Ingredients, compare: Compare) -> Gain | None:
    """None where it is slower, or nowhere shown to be faster."""
    ratios: list[float] = []
    is_shown = False
    for first, second in zip(_candidates(plain), _candidates(other), strict=True):
        timings = compare(first, second).values()
        ratios.append(max(timing.ratio for timing in timings))
        if ratios[-1] > _LEVEL or any(timing.ratio - 2 * timing.error > 1 for timing in timings):
            return None
        is_shown |= all(timing.ratio + 2 * timing.error < 1 for timing in timings)
    return Gain(*ratios) if is_shown else None


def _candidates(ingredients: Ingredients) -> Iterator[Candidate]:
    """Float, and in the first recipe that quantizes everything with calibrated ranges and nearest integers."""
    recipe = ingredients.first_recipe()
    without = replace(ingredients.definition, schemes=())
    yield replace(ingredients, definition=without).builder().build({})
    if recipe is not None:
        scheme, assignment = recipe
        yield replace(ingredients, definition=replace(without, schemes=(scheme,))).builder().build(assignment)
