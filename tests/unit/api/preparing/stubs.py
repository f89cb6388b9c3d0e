"""What prepares a search is given: an earlier run, and an evaluator whose answers are made up."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from autoquant.api.evaluator import BenchFacts
from autoquant.api.ingredients import Ingredients
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.api.preparing import Preparing
from autoquant.api.resumption import Earlier
from autoquant.domain.accuracy import Form
from autoquant.domain.rewrite import Rewrites
from autoquant.qdq.own_errors import OwnErrors
from autoquant.qdq.twins import Twins
from autoquant.rewrites.filled import Filling

FACTS = BenchFacts(float_s={"cpu-1t": 1e-3}, n_samples=6, opening_s=0.0)
Make = Callable[..., Preparing]


def an_earlier(form: Form, unrounded: Any = frozenset(), filling: Filling | None = None) -> Earlier:
    return Earlier(
        n_calibration_samples=8,
        n_evaluation_samples=6,
        rewrites=frozenset(),
        filling=filling,
        form=form,
        has_mean_biases=True,
        unrounded=unrounded,
        samplers=("structure",),
        prior=None,
    )


@dataclass
class Evaluating:
    """Gives the decibels of the uniform recipes in each form, the forms in the order in which they are loaded."""

    decibels: list[list[float] | Exception]
    loading_s: float = 0.0
    rewrites: Rewrites = frozenset()
    loaded: list[Ingredients] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    is_settled: bool = False
    errors: tuple[OwnErrors, Twins] | Exception | None = None

    def load(self, ingredients: Ingredients, *, rewrites: Rewrites) -> None:
        assert rewrites is self.rewrites
        self.loaded.append(ingredients)

    def uniform_db(self, seconds: float, n_most: int) -> list[float]:
        assert seconds > 0
        self.seconds.append(seconds)
        assert n_most > 0
        found = self.decibels[len(self.loaded) - 1]
        if isinstance(found, Exception):
            raise found
        return found

    def settle(self) -> None:
        self.is_settled = True

    def errors_and_twins(self, seconds: float) -> tuple[OwnErrors, Twins] | None:
        assert seconds > 0
        if isinstance(self.errors, Exception):
            raise self.errors
        return self.errors

    @property
    def real(self) -> IsolatedEvaluator:
        return cast("IsolatedEvaluator", self)
