"""Which sampler proposes: ours, or one of Optuna's for comparison."""

import warnings
from collections.abc import Callable, Mapping, Sequence

from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler

from autoquant.domain.measurement import Believed
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import Assignment
from autoquant.domain.sampler import SamplerName
from autoquant.errors import UsageError
from autoquant.study.layout import Layout
from autoquant.study.outlook import Outlook
from autoquant.study.sampler import StructureSampler, structure_of
from autoquant.study.standing import ALL_OF_INTEREST, Interest

__all__ = [
    "BaseSampler",
    "SamplerChoice",
    "is_structured",
    "least_ratios_of",
    "beliefs_of",
    "make_sampler",
    "outlook_of",
    "parse_sampler",
]


SamplerChoice = SamplerName | BaseSampler


def parse_sampler(asked: str | BaseSampler) -> SamplerChoice:
    """Check what the user asked for.

    Args:
        asked: A name, or a sampler of the user's own. It must handle categorical parameters and several objectives: SNR
            in dB to maximise, then one latency ratio a target to minimise.

    Raises:
        UsageError: There is no sampler of that name, or it is none.
    """
    if isinstance(asked, BaseSampler):
        return asked
    if asked not in tuple(SamplerName):
        raise UsageError(
            f"the sampler is '{asked}', choose from: {', '.join(SamplerName)}; in Python one of Optuna may be given"
        )
    return SamplerName(asked)


def make_sampler(
    asked: SamplerChoice,
    layout: Layout,
    interest: Interest = ALL_OF_INTEREST,
    *,
    seed: int = 0,
    prior: LatencyPrior | None = None,
) -> BaseSampler:
    """The sampler of a search.

    Those of Optuna have Optuna's default settings. Both TPE samplers differ in whether they model regions jointly; its
    option ``group`` is for parameters that only some trials have, so that here it would change nothing.

    Args:
        asked: What ``parse_sampler`` gave; an instance is used as it is, but that a structure sampler, one in a
            ``PartialFixedSampler`` too, proposes for ``interest`` from here on, whatever it was made for, and knows
            nothing of another study.
        layout: Regions, schemes and borders, which only the structure sampler knows of.
        interest: What proposals are made for, likewise.
        seed: Of proposals; an instance has its own.
        prior: What is expected of latencies, for the structure sampler.

    Raises:
        UsageError: The instance is a structure sampler for other regions or schemes.
    """
    ours = structure_of(asked)
    if ours is not None and ours.layout.choices != layout.choices:
        raise UsageError(
            "the StructureSampler is for other regions or schemes than the search has; make it of the same model, space"
            " and number of regions, or give 'structure'"
        )
    if ours is not None:
        ours.begin(interest, prior)
    if isinstance(asked, BaseSampler):
        return asked
    if asked is SamplerName.STRUCTURE:
        return StructureSampler(layout, interest, seed=seed, prior=prior)
    if asked is SamplerName.NSGA2:
        return NSGAIISampler(seed=seed)
    if asked is SamplerName.RANDOM:
        return RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return TPESampler(seed=seed, multivariate=asked is SamplerName.TPE)


def outlook_of(sampler: BaseSampler | None) -> Callable[[], Outlook | None]:
    """What a sampler still expects to gain; generic ones do not know, nor one that knows nothing of fixed regions."""
    return sampler.outlook if isinstance(sampler, StructureSampler) else lambda: None


def beliefs_of(sampler: BaseSampler | None) -> Mapping[int, Believed]:
    """What a sampler believes of measured trials, by number; generic ones believe what was measured."""
    ours = structure_of(sampler)
    return {} if ours is None else ours.beliefs()


def least_ratios_of(sampler: BaseSampler | None) -> Callable[[Assignment], Sequence[float]]:
    """What a sampler takes for the least latency ratios of an assignment; generic ones do not know."""
    ours = structure_of(sampler)
    return (lambda _: ()) if ours is None else ours.least_ratios


def is_structured(asked: SamplerChoice) -> bool:
    """Whether the sampler wants one-region probes first, and repeats itself only where nothing else is left."""
    return asked is SamplerName.STRUCTURE or structure_of(asked) is not None
