from collections.abc import Sequence

import pytest

from autoquant.api.steps import fitted
from autoquant.domain.target import Target
from autoquant.space.schema import read_space


@pytest.mark.parametrize(
    ("threads", "is_unsaturated"), [([1], False), ([1, 2], True), ([2, 1], True)], ids=["none", "last", "first"]
)
def test_a_space_is_fitted_to_the_kernels_of_every_target(
    monkeypatch: pytest.MonkeyPatch, threads: Sequence[int], is_unsaturated: bool
) -> None:
    """As if those with two threads saturated."""
    monkeypatch.setattr("autoquant.api.steps.preparation.is_saturating", lambda target: target.threads == 2)
    space = read_space("default", ep="cpu")
    assert space.unsaturated() != space
    found = fitted(space, [Target(threads=n) for n in threads])
    assert found == (space.unsaturated() if is_unsaturated else space)
