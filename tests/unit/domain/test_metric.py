import math

import pytest

from autoquant.domain.metric import (
    Accuracy,
    Agreement,
    Cosine,
    Custom,
    Direction,
    Metric,
    MetricSource,
    MetricValue,
    default_name,
)

OWN = Custom(module="tasks.texts", function="error")


@pytest.mark.parametrize(
    ("source", "spelled"),
    [
        (Cosine(), "cosine"),
        (Cosine(output="y"), "cosine@y"),
        (Agreement(k=5), "top5"),
        (Agreement(k=1, output="y", axis=1), "top1@y#1"),
        (Agreement(k=1, axis=0), "top1#0"),
        (Accuracy(), "accuracy"),
        (Accuracy(label="age", output="y", axis=-2), "accuracy.age@y#-2"),
    ],
)
def test_a_built_in_metric_without_a_name_is_called_as_it_is_spelled(source: MetricSource, spelled: str) -> None:
    assert default_name(source) == spelled
    assert str(Metric(name=spelled, source=source)) == spelled
    assert str(Metric(name="mine", source=source)) == f"mine={spelled}"


def test_a_function_is_called_without_its_module_and_says_where_lower_is_better() -> None:
    assert default_name(OWN) == "error"
    assert str(Metric(name="error", source=OWN)) == "tasks.texts:error"
    assert str(Metric(name="error", source=OWN, direction=Direction.LOWER)) == "tasks.texts:error:min"
    assert str(Metric(name="wer", source=OWN, direction=Direction.LOWER)) == "wer=tasks.texts:error:min"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.4, 0.6, True), (0.5, 0.5, True), (-math.inf, 0.6, False), (0.4, math.inf, False), (math.nan, 0.6, False)],
)
def test_an_interval_is_known_where_both_ends_are(low: float, high: float, expected: bool) -> None:
    assert MetricValue(value=0.5, n_samples=4, low=low, high=high).has_interval is expected


def test_an_interval_is_not_known_where_nothing_is_said_of_it() -> None:
    assert not MetricValue(value=0.5, n_samples=4, low=0.4).has_interval
    assert not MetricValue(value=0.5, n_samples=4, high=0.6).has_interval
