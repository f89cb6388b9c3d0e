from dataclasses import replace

import pytest

from autoquant.domain.measurement import Believed, Evaluation, Measurement, State
from autoquant.front.alike import with_known_latencies
from autoquant.front.selection import choose_finalists
from autoquant.space.schema import read_space
from tests.records import a_failure, a_latency, a_measured

SCHEMES = {scheme.name: scheme for scheme in read_space("default", ep="cpu").schemes}
MINMAX, MSE, TENSOR = "u8s8-channel-minmax", "u8s8-channel-mse", "u8s8-tensor-minmax"


def latency_of(evaluation: Evaluation) -> dict[str, float]:
    assert isinstance(evaluation.outcome, Measurement)
    return {target: latency.ratio for target, latency in evaluation.outcome.latency.items()}


def untimed(number: int, **regions: str) -> Evaluation:
    return a_measured(number, ratio=None, snr_db=40.0, assignment=regions)


def test_an_untimed_candidate_has_the_latency_of_the_first_one_with_its_kernels() -> None:
    timed = [
        a_measured(0, ratio=0.6, assignment={"a": MINMAX, "b": "float"}),
        a_measured(1, ratio=0.61, assignment={"a": MSE, "b": "float"}),
    ]
    others = [untimed(2, a=MSE), untimed(3, a=TENSOR), untimed(4, a=MSE, b=MSE), untimed(5), a_failure(6)]
    found = with_known_latencies([*timed, *others], SCHEMES)
    assert latency_of(found[2]) == {"cpu-1t": 0.6}
    assert isinstance(found[2].outcome, Measurement)
    assert found[2].outcome.state is State.UNTIMED, "it was not measured"
    assert found[:2] + found[3:] == timed + others[1:], "kernels of other formats or regions say nothing"


def test_what_is_believed_of_that_latency_counts() -> None:
    evaluations = [a_measured(0, ratio=0.6, assignment={"a": MINMAX}), untimed(1, a=MSE)]
    found = with_known_latencies(evaluations, SCHEMES, {0: Believed(snr_db=35.0, ratios=(0.65,))})
    assert latency_of(found[1]) == {"cpu-1t": pytest.approx(0.65)}


def test_what_onnxruntime_runs_unasked_counts_as_kernels() -> None:
    evaluations = [a_measured(0, assignment={"a": "int8 by onnxruntime"}), untimed(1, a=MSE)]
    assert with_known_latencies(evaluations, SCHEMES) == evaluations


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_graph_that_was_timed_or_rejected_in_another_trial_is_left_to_it(is_complete: bool) -> None:
    mate = a_measured(0, assignment={"a": MINMAX})
    other, earlier = a_measured(1, assignment={"a": MSE}, is_complete=is_complete), untimed(2, a=MSE)
    assert isinstance(earlier.outcome, Measurement)
    evaluations = [mate, replace(earlier, outcome=replace(earlier.outcome, digest="digest1")), other]
    assert with_known_latencies(evaluations, SCHEMES) == evaluations


def test_of_equal_kernels_the_most_accurate_candidate_is_a_finalist_though_it_was_not_timed() -> None:
    evaluations = [a_measured(0, ratio=0.6, snr_db=14.0, assignment={"a": MINMAX}), untimed(1, a=MSE)]
    assert choose_finalists(evaluations, 1, float_bytes=10_000_000) == evaluations[:1]
    (chosen,) = choose_finalists(with_known_latencies(evaluations, SCHEMES), 1, float_bytes=10_000_000)
    assert chosen.trial.number == 1


def test_what_was_stopped_early_is_no_finalist() -> None:
    stopped = a_measured(0, is_complete=False)
    assert isinstance(stopped.outcome, Measurement)
    assert stopped.outcome.latency == {"cpu-1t": a_latency(0.6)}
    assert choose_finalists(with_known_latencies([stopped], SCHEMES), 1, float_bytes=10_000_000) == []
