import numpy as np
import pytest

from autoquant.domain.region import TensorName
from autoquant.domain.statistics import N_BINS, Statistics, TensorStatistics
from autoquant.model.graph import Graph
from autoquant.qdq.masks import masked
from tests.models import floats, model_of

BODY = "s = Add(x, x) p = Softmax(s) y = MatMul(p, w)"


def statistics_of(minimum: float, n_masked: int, tensor: str) -> Statistics:
    counts = np.zeros(N_BINS, np.int64)
    found = TensorStatistics(minimum=minimum, maximum=1, limit=2048, counts=counts, n_zeros=0, n_masked=n_masked)
    return Statistics(tensors={TensorName(tensor): found}, digest="", n_samples=1)


@pytest.mark.parametrize(
    ("minimum", "n_masked", "tensor", "is_masked"),
    [(-900, 0, "s", False), (-1100, 0, "s", True), (-5, 3, "s", True), (-1100, 0, "x", False)],
)
def test_scores_far_below_the_others_are_masked(minimum: float, n_masked: int, tensor: str, is_masked: bool) -> None:
    graph = Graph(model_of("(float[1,4] x) => (float[1,2] y)", BODY, {"w": floats(4, 2)}))
    found = masked(graph, statistics_of(minimum, n_masked, tensor))
    assert found == ({tensor} if is_masked else frozenset())
