from types import SimpleNamespace
from typing import Any

import pytest

from autoquant.api.deadline import Deadline
from autoquant.api.interrupts import Interrupts
from autoquant.api.run import Run
from autoquant.domain.rewrite import Rewrite, Rewrites


def a_run(elapsed_s: float, earlier: Any = None) -> Run:
    """Of 60 s."""
    checked: Any = SimpleNamespace(notes=())
    configuration: Any = None
    run = Run(configuration, checked, Deadline(60.0, spent_s=elapsed_s), lambda _: None, Interrupts())
    run.earlier = earlier
    return run


EARLIER = SimpleNamespace(rewrites=frozenset({Rewrite.JOINED_GROUPS}))


@pytest.mark.parametrize(
    ("elapsed_s", "possible", "earlier", "known", "left_out"),
    [
        (5.0, set(Rewrite), None, None, []),
        (
            50.0,
            set(Rewrite),
            None,
            frozenset(),
            ["groups of Convs that are joined", "Add before LayerNormalization as Sum"],
        ),
        (50.0, set(), None, frozenset(), []),
        (50.0, set(Rewrite), EARLIER, EARLIER.rewrites, []),
    ],
    ids=["probed", "in a hurry", "nothing to probe", "as before"],
)
def test_rewrites_are_not_probed_in_a_hurry(
    elapsed_s: float, possible: set[Rewrite], earlier: Any, known: Rewrites | None, left_out: list[str]
) -> None:
    ingredients: Any = SimpleNamespace(builder=lambda: SimpleNamespace(possible=possible))
    run = a_run(elapsed_s, earlier)
    assert run._known_rewrites(ingredients) == known
    assert run.deadline.left_out == left_out
