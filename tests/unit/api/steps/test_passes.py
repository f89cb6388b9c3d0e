from collections.abc import Sequence

import pytest

from autoquant.api.steps.passes import in_passes
from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from tests.models import floats, model_of

GRAPH = Graph(model_of("(float[1,L] x) => (float[1,L] y)", "a = Relu(x) b = Neg(a) y = Abs(b)"))
FEEDS = [{"x": floats(1, length)} for length in (5, 20, 10)]


@pytest.mark.parametrize(
    ("n_values", "expected"),
    [(60, [["a", "b", "y"]]), (59, [["a", "b"], ["y"]]), (1, [["a"], ["b"], ["y"]])],
)
def test_activations_are_fetched_together_as_far_as_those_of_the_largest_sample_fit(
    monkeypatch: pytest.MonkeyPatch, n_values: int, expected: Sequence[Sequence[str]]
) -> None:
    monkeypatch.setattr("autoquant.api.steps.passes._PASS_BYTES", 4 * n_values)
    assert in_passes(GRAPH, map(TensorName, "aby"), FEEDS) == expected


def test_of_no_names_there_is_one_pass() -> None:
    assert in_passes(GRAPH, [], FEEDS) == [[]]
