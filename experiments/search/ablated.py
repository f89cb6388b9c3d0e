"""``autoquant.search`` by structure with one part switched off."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from unittest import mock

from autoquant.api.folder import RunFolder
from autoquant.api.ingredients import Ingredients
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.api.preparing import Preparing
from autoquant.api.run import Opened, Run
from autoquant.api.trials import Trials
from autoquant.study.layout import Layout
from experiments.search.parts import Part, layout_without, one_range_each, prior_without, switch_off

__all__ = ["AblatedRun", "without"]

_COARSE = 40


@dataclass
class AblatedRun(Run):
    """A run whose sampler, trials or space lack something.

    Attributes:
        part: That is switched off.
    """

    part: Part | None = None

    def __post_init__(self) -> None:
        """Of what is asked for and of the space, too."""
        super().__post_init__()
        if self.part is Part.FINENESS:
            self.configuration = replace(self.configuration, n_regions=_COARSE)
        if self.part is Part.RANGES:
            definition = self.checked.definition
            definition = replace(definition, schemes=one_range_each(definition.schemes))
            self.checked = replace(self.checked, definition=definition)

    def expect_noise(self, preparing: Preparing, chosen: Ingredients, evaluator: IsolatedEvaluator) -> Ingredients:
        """Unless nothing is to be expected from errors."""
        return chosen if self.part is Part.ERRORS else super().expect_noise(preparing, chosen, evaluator)

    def profile(self, evaluator: IsolatedEvaluator, ingredients: Ingredients) -> None:
        """Unless nothing is to be expected from profiles."""
        if self.part is not Part.PROFILES:
            super().profile(evaluator, ingredients)
        self.prior = prior_without(self.part, self.prior)

    def layout_of(self, ingredients: Ingredients) -> Layout:
        """What is left of it."""
        return layout_without(self.part, super().layout_of(ingredients))

    def open_trials(self, folder: RunFolder, opened: Opened) -> Trials:
        """Without the part."""
        trials = super().open_trials(folder, opened)
        switch_off(self.part, trials)
        return trials


@contextmanager
def without(part: Part | None) -> Iterator[None]:
    """Searches inside lack this part; nothing where there is none."""
    if part is None:
        yield
        return
    with mock.patch("autoquant.api.search.Run", partial(AblatedRun, part=part)):
        yield
