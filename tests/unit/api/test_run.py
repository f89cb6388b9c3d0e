from types import SimpleNamespace
from typing import Any

import pytest

from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import BenchFacts
from autoquant.api.interrupts import Interrupts
from autoquant.api.run import Run
from autoquant.domain.rewrite import Rewrite, Rewrites


def a_run(elapsed_s: float, earlier: Any = None, *, counts_size: bool = False) -> Run:
    """Of 60 s."""
    checked: Any = SimpleNamespace(notes=())
    configuration: Any = SimpleNamespace(counts_size=counts_size)
    run = Run(configuration, checked, Deadline(60.0, spent_s=elapsed_s), lambda _: None, Interrupts())
    run.earlier = earlier
    return run


EARLIER = SimpleNamespace(rewrites=frozenset({Rewrite.JOINED_GROUPS}))


@pytest.mark.parametrize(
    ("elapsed_s", "float_s", "possible", "earlier", "known", "left_out"),
    [
        (5.0, 0.1, set(Rewrite), None, None, []),
        (50.0, 0.01, {Rewrite.TILED_CONVS}, None, None, []),
        (
            50.0,
            0.1,
            set(Rewrite),
            None,
            frozenset(),
            [
                "groups of Convs that are joined",
                "Add before LayerNormalization as Sum",
                "Convs that are computed tile by tile",
            ],
        ),
        (50.0, 0.01, set(), None, frozenset(), []),
        (50.0, 0.1, set(Rewrite), EARLIER, EARLIER.rewrites, []),
    ],
    ids=["probed", "late and fast", "late and slow", "nothing to probe", "as before"],
)
def test_rewrites_are_not_probed_late_where_that_takes_long(
    elapsed_s: float, float_s: float, possible: set[Rewrite], earlier: Any, known: Rewrites | None, left_out: list[str]
) -> None:
    ingredients: Any = SimpleNamespace(builder=lambda: SimpleNamespace(possible=possible))
    run = a_run(elapsed_s, earlier)
    facts = BenchFacts(float_s={"cpu-1t": float_s}, n_samples=4, opening_s=0.1)
    assert run._known_rewrites(ingredients, facts) == known
    assert run.deadline.left_out == left_out


def test_what_is_not_tried_as_it_adds_to_the_size_is_not_told_as_left_out() -> None:
    ingredients: Any = SimpleNamespace(builder=lambda: SimpleNamespace(possible=frozenset(Rewrite)))
    run = a_run(50.0, counts_size=True)
    run._known_rewrites(ingredients, BenchFacts(float_s={"cpu-1t": 1.0}, n_samples=4, opening_s=0.1))
    assert run.deadline.left_out == ["Add before LayerNormalization as Sum"]
