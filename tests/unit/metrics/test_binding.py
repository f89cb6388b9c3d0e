import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from autoquant.domain.metric import Custom
from autoquant.errors import MetricError
from autoquant.metrics.binding import BoundMetric, bind, check_labels
from autoquant.metrics.grammar import parse_metric

Array = npt.NDArray[np.generic]
N = 24
SCORES, INDEX = np.zeros((1, N), np.float32), np.array([3])


def bound(
    text: str, labels: Mapping[str, Array] | None = None, outputs: Mapping[str, Array] | None = None
) -> BoundMetric:
    """By default to a model with scores of many classes and an integer."""
    metric = parse_metric(text)
    assert not isinstance(metric.source, Custom)
    given = {"scores": SCORES, "index": INDEX} if outputs is None else outputs
    return bind(metric, metric.source, list(given), list(given.values()), labels or {})


def score(found: BoundMetric, reference: Sequence[Array], candidate: Sequence[Array], sample: int = 0) -> object:
    return found.score(sample, reference, candidate)


@pytest.mark.parametrize(
    ("text", "labels", "message"),
    [
        ("top1@score", {}, "metric 'top1@score': the model has no output 'score', did you mean 'scores'?"),
        ("top1@zzz", {}, "metric 'top1@zzz': the model has no output 'zzz', choose from scores, index"),
        ("cosine@index", {}, "metric 'cosine@index': a cosine needs a float output, take another metric or choose one"),
        ("top1@index", {}, "output 'index' holds int64 and no scores, choose a float output"),
        ("top24", {}, "output 'scores' has 24 classes along axis -1, so one of 24 is always right"),
        ("top1#0", {}, "output 'scores' has 1 classes along axis 0, so one of 1 is always right"),
        ("top1#2", {}, "output 'scores' has 2 dimensions, so there are no classes along 2, change #2"),
        ("top1#-3", {}, "output 'scores' has 2 dimensions, so there are no classes along -3, change #-3"),
        ("accuracy#0", {"label": np.zeros(N)}, "output 'scores' has 1 classes along axis 0, so one of 1 is always"),
        ("accuracy", {}, "metric 'accuracy': the data hold no labels, add an array 'label'"),
        ("accuracy", {"label_a": np.zeros(N), "label_b": np.zeros(N)}, "choose one of label_a, label_b with accuracy"),
        ("accuracy.label_c", {"label_a": np.zeros(N)}, "the data hold no label 'label_c', did you mean 'label_a'?"),
        (
            "accuracy",
            {"label": np.zeros((N, 2))},
            "label 'label' holds 2 values a sample, but output 'scores' of shape",
        ),
        ("accuracy", {"label": np.array(["a"] * N)}, "label 'label' holds str32, write classes as integers"),
        ("accuracy@index", {"label": np.zeros((N, 2))}, "but output 'index' of shape (1,) decides on 1, make them"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused(text: str, labels: Mapping[str, Array], message: str) -> None:
    with pytest.raises(MetricError) as error:
        bound(text, labels)
    assert message in str(error.value)


def test_of_several_outputs_one_must_be_chosen() -> None:
    two = {"a": np.zeros((1, 3)), "b": np.zeros((1, 3))}
    with pytest.raises(MetricError, match="several outputs, choose one of a, b with @OUTPUT"):
        bound("top1", outputs=two)
    assert bound("top1@b", outputs=two).positions == (1,)
    assert bound("cosine", outputs=two).positions == (0, 1)
    assert bound("cosine@b", outputs=two).positions == (1,)


def test_the_only_float_output_is_read_wherever_it_is() -> None:
    outputs = {"index": INDEX, "scores": SCORES}
    assert bound("top1", outputs=outputs).positions == (1,)
    assert bound("cosine", outputs=outputs).positions == (1,)
    assert bound("accuracy", {"label": np.zeros(N)}, outputs).positions == (1,)


def test_without_a_float_output_the_only_one_decides_itself_and_has_no_cosine() -> None:
    found = bound("accuracy", {"label": np.array([3, 4])}, {"index": INDEX})
    assert [score(found, [np.array([3])], [np.array([4])], sample) for sample in (0, 1)] == [(1.0, 0.0), (0.0, 1.0)]
    with pytest.raises(MetricError, match=r"take another metric, as this model has none$"):
        bound("cosine", outputs={"index": INDEX})


def test_every_integer_of_an_output_is_a_decision() -> None:
    outputs = {"mask": np.array([[0, 1, 2], [3, 4, 5]])}
    found = bound("accuracy", {"label": np.zeros((N, 6))}, outputs)
    assert score(found, [outputs["mask"]], [np.zeros((2, 3), int)]) == (pytest.approx(1 / 6), 1.0)
    with pytest.raises(MetricError, match=r"holds 2 values a sample, .* decides on 6"):
        bound("accuracy", {"label": np.zeros((N, 2))}, outputs)


def test_of_several_outputs_the_worst_cosine_counts() -> None:
    reference = [np.array([1.0, 0.0]), np.array([1.0, 0.0])]
    candidate = [np.array([2.0, 0.0]), np.array([1.0, 1.0])]
    outputs = dict(zip("ab", reference, strict=True))
    assert score(bound("cosine", outputs=outputs), reference, candidate) == (1, pytest.approx(math.sqrt(0.5)))
    assert score(bound("cosine@a", outputs=outputs), reference, candidate) == (1, 1)


@pytest.mark.parametrize(("text", "expected"), [("top1#1", 0.5), ("top2#1", 1.0)])
def test_agreement_counts_along_its_axis_in_the_output_that_it_reads(text: str, expected: float) -> None:
    float_, other = np.zeros((1, 3, 2)), np.zeros((1, 3, 2))
    float_[0, 0] = 1
    other[0, :2] = [[2, 1], [1, 2]]
    found = bound(text, outputs={"n": INDEX, "y": float_})
    assert score(found, [INDEX, float_], [INDEX, other]) == (1.0, expected)


def test_accuracy_is_that_of_both_models_against_the_label_of_the_sample() -> None:
    labels = np.arange(N) % 2
    found = bound("accuracy", {"label": labels})
    zero, one = (np.eye(N, dtype=np.float32)[[k]] for k in (0, 1))
    assert score(found, [zero, INDEX], [one, INDEX], 4) == (1.0, 0.0)
    assert score(found, [zero, INDEX], [one, INDEX], 5) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "names", "taken"),
    [
        ("accuracy", ["label_b", "label"], "label"),
        ("accuracy", ["label_b"], "label_b"),
        ("accuracy.label_b", ["label", "label_b"], "label_b"),
    ],
)
def test_the_label_is_the_one_that_is_named_or_called_label_or_the_only_one(
    text: str, names: list[str], taken: str
) -> None:
    labels = {name: np.full(N, i) for i, name in enumerate(names)}
    assert bound(text, labels).labels is labels[taken]


@pytest.mark.parametrize(
    ("array", "n"), [(np.zeros(3), 3), (np.array(3), 1), (np.zeros((25, 24)), 25), (np.zeros(0), 0)]
)
def test_labels_that_are_not_one_a_sample_are_refused(array: Array, n: int) -> None:
    with pytest.raises(MetricError, match=f"^labels 'second': {n} of them for 24 samples, give one a sample"):
        check_labels({"first": np.zeros((24, 7)), "second": array}, 24)


def test_a_label_without_samples_is_refused_for_a_single_sample_too() -> None:
    with pytest.raises(MetricError, match="labels 'label': 1 of them for 1 samples"):
        check_labels({"label": np.array(3)}, 1)
    check_labels({"label": np.array([3])}, 1)
