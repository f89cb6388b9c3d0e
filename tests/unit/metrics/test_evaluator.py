import math
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.metric import MetricResult, MetricValue
from autoquant.errors import MetricError
from autoquant.metrics.evaluator import MetricEvaluator
from autoquant.metrics.grammar import parse_metrics

Array = npt.NDArray[np.generic]
N = 24
MODULE = """
import pickle

import numpy as np

def error(outputs, feeds, labels):
    return np.mean([abs(o["scores"] - r).mean() for o, r in zip(outputs, labels["float:scores"], strict=True)]) * 100

def big(outputs, feeds, labels):
    return 200 * np.mean([o["scores"].argmax() == label for o, label in zip(outputs, labels["label"], strict=True)])

def right(outputs, feeds, labels):
    return [o["scores"].argmax() == label for o, label in zip(outputs, labels["label"], strict=True)]

def cost(outputs, feeds, labels):
    return [10 * (o["scores"].argmax() != label) + 5.0 for o, label in zip(outputs, labels["label"], strict=True)]

def missed(outputs, feeds, labels):
    return [o["scores"].argmax() != label for o, label in zip(outputs, labels["label"], strict=True)]

def pixels(outputs, feeds, labels):
    return [37.5 * bad for bad in missed(outputs, feeds, labels)]

def needs_all(outputs, feeds, labels):
    assert len(outputs) == 24
    return 1.0

def constant(outputs, feeds, labels):
    return 1.0

def same_samples(outputs, feeds, labels):
    for i, feed in enumerate(feeds):
        assert feed["x"] == labels["label"][i] == outputs[i]["index"]
    return float(len(feeds))

def changes_outputs(outputs, feeds, labels):
    outputs[0]["scores"][...] = 7

def changes_feeds(outputs, feeds, labels):
    feeds[0]["x"][...] = 7

def changes_labels(outputs, feeds, labels):
    labels["label"].sort()

def changes_reference(outputs, feeds, labels):
    scores = labels["float:scores"][0]
    scores -= scores.max()

def changes_copies(outputs, feeds, labels):
    first, again = outputs[0]["words"], pickle.loads(pickle.dumps(outputs))[0]["words"]
    changed = again.copy()
    changed[0] = "other"
    assert (first.tolist(), changed.tolist()) == (["one"], ["other"])
    return 1.0
"""


@pytest.fixture(autouse=True, scope="module")
def _module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("users")
    (folder / "evaluated_metrics.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield
    sys.modules.pop("evaluated_metrics", None)


def evaluator(
    *texts: str, scores: Array | None = None, labels: Mapping[str, Array] | None = None, n: int = N
) -> MetricEvaluator:
    scores = classes(range(n)) if scores is None else scores
    return MetricEvaluator(
        metrics=parse_metrics(texts),
        names=["scores", "index"],
        reference=outputs(scores),
        feeds=[{"x": np.array(i)} for i in range(n)],
        labels={"label": np.arange(n)} if labels is None else labels,
    )


def classes(found: Sequence[int] | range) -> Array:
    """Scores of N classes whose highest are these."""
    return np.eye(N, dtype=np.float32)[list(found)][:, np.newaxis]


def outputs(scores: Array) -> list[list[Array]]:
    return [[np.asarray(sample), np.array([i])] for i, sample in enumerate(scores)]


def wrong(n_wrong: int) -> list[list[Array]]:
    """A candidate that is wrong on the first samples."""
    return outputs(classes([(i + (i < n_wrong)) % N for i in range(N)]))


def assert_inside(value: MetricValue) -> None:
    assert value.low <= value.value <= value.high


@given(n_wrong=st.integers(0, N))
def test_accuracy_and_agreement_count_what_is_right(n_wrong: int) -> None:
    results = evaluator("accuracy", "top1", "cosine").evaluate(wrong(n_wrong))
    for name in ("accuracy", "top1", "cosine"):
        result = results[name]
        assert result.candidate.value == pytest.approx(1 - n_wrong / N)
        assert result.drop.value == round(n_wrong / N, 12)
        assert result.reference.value == 1
        assert result.candidate.n_samples == N
        for value in (result.candidate, result.reference, result.drop):
            assert_inside(value)
    agreement = results["top1"]
    assert (agreement.reference.low, agreement.reference.high) == (1, 1)
    assert agreement.drop.high == pytest.approx(1 - agreement.candidate.low)


TEXTS = (
    "cosine",
    "top1",
    "top2",
    "accuracy",
    "evaluated_metrics:error:min",
    "evaluated_metrics:big",
    "evaluated_metrics:right",
)


@given(seed=st.integers(0, 100))
def test_equal_outputs_have_no_drop(seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(N, 1, N))
    for result in evaluator(*TEXTS, scores=scores).evaluate(outputs(scores)).values():
        assert (result.drop.value, result.drop.low, result.drop.high) == (0, 0, 0)
        assert result.candidate == result.reference


def test_no_difference_seen_is_no_proof_that_there_is_none() -> None:
    result = evaluator("accuracy").evaluate(outputs(2 * classes(range(N)).astype(np.float32)))["accuracy"]
    assert result.drop.value == 0
    assert result.drop.low < 0 < result.drop.high


def test_the_drop_is_paired() -> None:
    labels = {"label": np.where(np.arange(N) % 2, np.arange(N), -1)}  # float is right on half of the samples
    result = evaluator("accuracy", labels=labels).evaluate(wrong(1))["accuracy"]
    assert result.drop.value == 0  # the first sample was wrong before
    assert result.drop.high - result.drop.low < (result.candidate.high - result.candidate.low) / 1.5


def test_a_function_is_better_where_it_says_and_large_values_drop_relatively() -> None:
    results = evaluator("evaluated_metrics:error:min", "evaluated_metrics:big").evaluate(wrong(6))
    error, big = results["error"], results["big"]
    assert error.reference.value == 0
    assert error.drop.value == pytest.approx(error.candidate.value) == pytest.approx(100 * 6 / N * 2 / N)
    assert big.reference.value == 200
    assert big.candidate.value == pytest.approx(150)
    assert big.drop.value == pytest.approx(0.25)
    for result in (error, big):
        assert_inside(result.drop)
        assert result.drop.has_interval
    assert big.drop.low > 0


def test_a_function_that_scores_samples_is_treated_like_accuracy() -> None:
    results = evaluator("accuracy", "evaluated_metrics:right").evaluate(wrong(5))
    assert results["right"] == results["accuracy"]


def test_scores_of_samples_have_a_direction_and_a_scale_too() -> None:
    result = evaluator("evaluated_metrics:cost:min").evaluate(wrong(6))["cost"]
    assert (result.reference.value, result.candidate.value) == (5, 7.5)
    assert result.drop.value == pytest.approx(2.5 / 5)
    assert 0 < result.drop.low < 0.5 < result.drop.high


@pytest.mark.parametrize(
    ("name", "n_wrong", "known"),
    [
        ("pixels:min", 0, (False, False)),
        ("pixels:min", 4, (False, True)),
        ("missed:min", 0, (False, False)),
        ("missed:min", 4, (True, True)),
        ("right", 0, (True, True)),
    ],
)
def test_of_errors_that_are_0_throughout_the_unit_is_not_known(
    name: str, n_wrong: int, known: tuple[bool, bool]
) -> None:
    (result,) = evaluator(f"evaluated_metrics:{name}").evaluate(wrong(n_wrong)).values()
    assert (result.reference.has_interval, result.candidate.has_interval) == known


def test_a_function_sees_the_same_samples_everywhere() -> None:
    result = evaluator("evaluated_metrics:same_samples").evaluate(wrong(3))["same_samples"]
    assert result.candidate.value == N
    assert result.candidate.n_samples == N


def test_a_function_that_needs_all_samples_has_no_interval() -> None:
    result = evaluator("evaluated_metrics:needs_all").evaluate(wrong(3))["needs_all"]
    assert result.candidate.value == 1
    assert not result.candidate.has_interval
    assert (result.drop.low, result.drop.high) == (-math.inf, math.inf)


def test_a_number_that_no_sample_changes_has_no_interval() -> None:
    result = evaluator("evaluated_metrics:constant").evaluate(wrong(3))["constant"]
    assert (result.drop.value, result.candidate.value) == (0, 1)
    assert not result.drop.has_interval
    assert not result.candidate.has_interval


def test_values_without_intervals_are_the_same_values() -> None:
    metrics = evaluator(*TEXTS)
    full, plain = metrics.evaluate(wrong(5)), metrics.evaluate(wrong(5), has_intervals=False)
    for name, result in plain.items():
        assert result.drop.value == full[name].drop.value
        assert not result.drop.has_interval


def test_a_meter_takes_some_samples_in_any_order() -> None:
    metrics, candidate = evaluator("accuracy", "evaluated_metrics:same_samples"), wrong(2)
    meter = metrics.meter()
    for sample in (9, 1, 4):
        meter.add(sample, candidate[sample])
    results = meter.results()
    assert results["accuracy"].candidate.value == pytest.approx(2 / 3)
    assert results["same_samples"].candidate.value == 3


def test_results_do_not_depend_on_the_order_of_samples() -> None:
    metrics, candidate = evaluator(*TEXTS), wrong(7)
    meter = metrics.meter()
    for sample in reversed(range(N)):
        meter.add(sample, candidate[sample])
    assert meter.results() == metrics.evaluate(candidate)


def test_an_evaluator_can_be_sent_to_another_process() -> None:
    metrics = evaluator(*TEXTS)
    results: dict[str, MetricResult] = pickle.loads(pickle.dumps(metrics)).evaluate(wrong(4))
    assert pickle.loads(pickle.dumps(results)) == metrics.evaluate(wrong(4))


@pytest.mark.parametrize(
    ("text", "labels", "message"),
    [
        ("top1@score", {}, "the model has no output 'score', did you mean 'scores'?"),
        ("accuracy", {"label": np.zeros(3)}, "labels 'label': 3 of them for 24 samples, give one a sample"),
        ("evaluated_metrics:eror", {}, "has no function 'eror', did you mean 'error'?"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused(text: str, labels: Mapping[str, Array], message: str) -> None:
    with pytest.raises(MetricError) as error:
        evaluator(text, labels=labels)
    assert message in str(error.value)


def test_a_function_that_fails_on_all_samples_is_refused(tmp_path: Path) -> None:
    metrics = evaluator("evaluated_metrics:needs_all", n=5)
    with pytest.raises(MetricError, match="needs_all raised on 5 samples"):
        metrics.evaluate(outputs(classes(range(5))))


@pytest.mark.parametrize("what", ["outputs", "feeds", "labels", "reference"])
def test_a_function_that_changes_what_others_read_is_refused(what: str) -> None:
    metrics = evaluator(f"evaluated_metrics:changes_{what}")
    before = pickle.dumps((metrics.reference, metrics.feeds, metrics.labels))
    with pytest.raises(MetricError, match=r"raised on 24 samples, put it right .*read-only"):
        metrics.evaluate(wrong(3))
    assert pickle.dumps((metrics.reference, metrics.feeds, metrics.labels)) == before


def test_a_function_may_change_copies_also_of_strings() -> None:
    texts = parse_metrics(["evaluated_metrics:changes_copies"])
    words = [[np.array(["one"], object)]]
    metrics = MetricEvaluator(texts, ["words"], words, [{}], {})
    assert metrics.evaluate(words)["changes_copies"].candidate.value == 1
    assert words[0][0].tolist() == ["one"]
