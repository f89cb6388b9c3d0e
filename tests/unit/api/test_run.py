from types import SimpleNamespace
from typing import Any

import pytest

from autoquant.api.deadline import Deadline
from autoquant.api.interrupts import Interrupts
from autoquant.api.run import Run


def a_run(elapsed_s: float, earlier: Any = None) -> Run:
    """Of 60 s."""
    checked: Any = SimpleNamespace(notes=())
    configuration: Any = None
    run = Run(configuration, checked, Deadline(60.0, spent_s=elapsed_s), lambda _: None, Interrupts())
    run.earlier = earlier
    return run


@pytest.mark.parametrize(
    ("elapsed_s", "has_norms", "earlier", "known", "n_notes"),
    [
        (5.0, True, None, None, 0),
        (50.0, True, None, False, 1),
        (50.0, False, None, False, 0),
        (50.0, True, SimpleNamespace(has_plain_sums=True), True, 0),
    ],
    ids=["probed", "in a hurry", "nothing to probe", "as before"],
)
def test_forms_of_sums_are_not_probed_in_a_hurry(
    elapsed_s: float, has_norms: bool, earlier: Any, known: bool | None, n_notes: int
) -> None:
    ingredients: Any = SimpleNamespace(builder=lambda: SimpleNamespace(has_residual_norms=has_norms))
    run = a_run(elapsed_s, earlier)
    assert run._known_plain_sums(ingredients) is known
    assert len(run.notes) == n_notes
    assert all(note.startswith("Add before LayerNormalization is not tried as Sum: ") for note in run.notes)
