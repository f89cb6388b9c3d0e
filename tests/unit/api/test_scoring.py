import pickle
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from autoquant.api.scoring import FileScorer, FileScorerSetup
from autoquant.domain.division import Division
from autoquant.domain.feed import Feed
from autoquant.domain.metric import MemberMetric
from autoquant.errors import MetricError
from autoquant.measurement.latency import REFERENCE
from autoquant.metrics.custom import Labels, OutputsByName
from autoquant.metrics.evaluator import MetricEvaluator
from autoquant.metrics.grammar import parse_metrics

LABELS = np.array([0, 1, 2, 3, 0, 1, 2, 3])
RIGHT = [np.eye(4, dtype=np.float32)[[k]] for k in LABELS]


def largest(outputs: Sequence[OutputsByName], feeds: Sequence[Feed], labels: Labels) -> float:
    assert len(outputs) == len(feeds) == len(labels["label"])
    return float(np.mean([sample["y"].max() for sample in outputs]))


def broken(outputs: Sequence[OutputsByName], feeds: Sequence[Feed], labels: Labels) -> float:
    return float("nan") if float(outputs[0]["y"].max()) < 0 else 1.0


def needs_the_first(outputs: Sequence[OutputsByName], feeds: Sequence[Feed], labels: Labels) -> float:
    return 1.0 if feeds[0]["x"][0] < 4 else float("nan")


SEEN: list[int] = []


def counted(outputs: Sequence[OutputsByName], feeds: Sequence[Feed], labels: Labels) -> float:
    SEEN.append(len(outputs))
    return 1.0


def counted_each(outputs: Sequence[OutputsByName], feeds: Sequence[Feed], labels: Labels) -> list[float]:
    SEEN.append(len(outputs))
    return [1.0] * len(outputs)


def scorer(*metrics: str, n_held_out: int = 4, is_pooled: bool = True) -> FileScorer:
    setup = FileScorerSetup(
        metrics=parse_metrics(metrics),
        feeds=[{"x": np.array([k])} for k in range(8)],
        labels={"label": LABELS},
        division=Division(n_search=8 - n_held_out, n_held_out=n_held_out, is_pooled=is_pooled),
        seed=0,
    )
    made: FileScorerSetup = pickle.loads(pickle.dumps(setup))
    return made(["y"])


def run(found: FileScorer, outputs: Sequence[npt.NDArray[np.float32]]) -> dict[str, MemberMetric]:
    for sample, (reference, candidate) in enumerate(zip(RIGHT, outputs, strict=False)):
        found.add(REFERENCE, sample, [reference], [reference])
        found.add("a", sample, [reference], [candidate])
    return dict(found.scores("a"))


@pytest.mark.parametrize("is_pooled", [True, False])
def test_metrics_are_of_all_samples_and_of_each_part(is_pooled: bool) -> None:
    """Held-out data of their own count too."""
    wrong_at_the_end = [*RIGHT[:6], -RIGHT[6], -RIGHT[7]]
    found = run(scorer("accuracy", "top1", is_pooled=is_pooled), wrong_at_the_end)
    drop = found["accuracy"].drop
    assert drop.held_out is not None
    assert (drop.all.value, drop.search.value, drop.held_out.value) == (0.25, 0.0, 0.5)
    assert (drop.all.n_samples, drop.search.n_samples, drop.held_out.n_samples) == (8, 4, 4)
    assert found["accuracy"].value.all.value == 0.75
    assert found["top1"].drop.all.has_interval


def test_the_float_model_drops_nothing() -> None:
    made = scorer("accuracy", "tests.unit.api.test_scoring:largest")
    run(made, RIGHT)
    found = made.scores(REFERENCE)
    assert found["accuracy"].value.all.value == 1
    assert found["largest"].drop.all.value == 0


def test_a_function_of_the_users_own_sees_all_samples_of_a_part() -> None:
    found = run(scorer("tests.unit.api.test_scoring:largest"), [0.5 * out for out in RIGHT])
    assert found["largest"].value.all.value == 0.5
    assert found["largest"].drop.search.value == 0.5


def test_where_nothing_is_held_out_the_search_part_is_all() -> None:
    found = run(scorer("accuracy", n_held_out=0), RIGHT)
    assert found["accuracy"].value.held_out is None
    assert found["accuracy"].value.search == found["accuracy"].value.all


@pytest.mark.parametrize("function", ["counted", "counted_each"])
@pytest.mark.parametrize("n_held_out", [0, 4])
def test_how_often_functions_are_called_is_known_beforehand(function: str, n_held_out: int) -> None:
    found = scorer(f"tests.unit.api.test_scoring:{function}", n_held_out=n_held_out)
    setup, names = found.setup, ["y"]
    reference = [[out] for out in RIGHT]
    evaluator = MetricEvaluator(
        metrics=setup.metrics, names=names, reference=reference, feeds=setup.feeds, labels=setup.labels
    )
    evaluator.evaluate(reference, has_intervals=False)
    expected = (2 if n_held_out else 1) * evaluator.n_evaluations
    for sample, out in enumerate(RIGHT):
        found.add(REFERENCE, sample, [out], [out])
        found.add("a", sample, [out], [-out])
    found.scores(REFERENCE)
    SEEN.clear()
    found.scores("a")
    assert 0.6 * expected <= sum(SEEN) / len(RIGHT) <= expected


def test_an_early_end_leaves_the_samples_so_far() -> None:
    found = run(scorer("accuracy"), RIGHT[:3])
    assert found["accuracy"].value.all.n_samples == 3
    assert found["accuracy"].drop.held_out is None


def test_a_metric_without_a_number_for_held_out_samples_leaves_the_others_theirs() -> None:
    found = run(scorer("tests.unit.api.test_scoring:needs_the_first", "accuracy"), RIGHT)
    assert found["needs_the_first"].value.all.value == 1
    assert found["needs_the_first"].value.held_out is None
    assert found["needs_the_first"].drop.held_out is None
    held_out = found["accuracy"].value.held_out
    assert held_out is not None
    assert (held_out.value, held_out.n_samples) == (1, 4)


def test_a_function_that_fails_is_a_metric_error() -> None:
    with pytest.raises(MetricError, match="returned nan"):
        run(scorer("tests.unit.api.test_scoring:broken"), [-3 - out for out in RIGHT])
