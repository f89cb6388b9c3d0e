"""Preprocessed models beside those of the user."""

from collections.abc import Callable, Sequence

import numpy as np

from autoquant.domain.feed import Feed
from autoquant.domain.region import TensorName
from autoquant.errors import ModelError
from autoquant.model.prepared import PreparedModel
from tests.models import floats, outputs_of

X = TensorName("x")


def feeds_of(*shape: int, n: int = 3) -> list[Feed]:
    return [{"x": floats(*shape, seed=seed)} for seed in range(n)]


def assert_equals_original(prepared: PreparedModel, feeds: Sequence[Feed]) -> None:
    assert prepared.difference_db >= 60
    for feed in feeds:
        for expected, found in zip(
            outputs_of(prepared.source, feed), outputs_of(prepared.graph.model, feed), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def refusing(reason: str) -> Callable[..., None]:
    def refused(*_: object, **__: object) -> None:
        raise ModelError(reason)

    return refused
