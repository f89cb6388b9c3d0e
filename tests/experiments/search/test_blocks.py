from dataclasses import replace

import numpy as np
import pytest

from autoquant.domain.measurement import State
from autoquant.domain.region import Assignment
from experiments.remeasure import mean_saving
from experiments.search.blocks import FAMILIES, Answers, Blocks, Budget, make_blocks

BLOCKS = make_blocks(40, FAMILIES["alike"], seed=0)


def patterns_of(blocks: Blocks) -> list[str]:
    return [region.pattern for region in blocks.problem.regions]


def test_blocks_repeat_their_patterns_unless_that_is_not_told() -> None:
    assert patterns_of(BLOCKS)[:8] == patterns_of(BLOCKS)[8:16]
    assert len(set(patterns_of(BLOCKS))) == 8
    untold = make_blocks(40, FAMILIES["alike"], seed=0, is_told=False)
    assert len(set(patterns_of(untold))) == 40
    np.testing.assert_array_equal(untold.truth.noise, BLOCKS.truth.noise)


@pytest.mark.parametrize("name", FAMILIES)
def test_noise_spreads_between_and_within_patterns_as_its_family_says(name: str) -> None:
    within, between = [], []
    for seed in range(20):
        blocks = make_blocks(96, FAMILIES[name], seed=seed)
        log = np.log(blocks.truth.noise[0, :, 1:].mean(axis=1)).reshape(2, 6, 8)
        within.append(log.std(axis=1).mean())
        between.append(log.std())
    assert np.mean(within) == pytest.approx(FAMILIES[name].within, rel=0.4)
    assert np.mean(between) == pytest.approx(FAMILIES[name].between, rel=0.4)


def test_the_float_assignment_is_float_and_what_is_attainable_pays() -> None:
    snr_db, ratio = BLOCKS.point(np.zeros(40, dtype=np.int64))
    assert snr_db > 100
    assert ratio == 1.0
    uniform = [BLOCKS.point(np.full(40, scheme)) for scheme in range(9)]
    assert BLOCKS.attainable() > mean_saving(uniform)


def test_an_answer_is_the_truth_with_an_error_of_measurement() -> None:
    budget = Budget(seconds=3.0)
    answers, scheme = Answers(BLOCKS, budget), next(iter(BLOCKS.problem.space.schemes))
    assignment: Assignment = {region.id: scheme for region in BLOCKS.problem.regions}
    first, again = (answers.evaluate(assignment, 1, {}, left_s=1.0) for _ in range(2))
    (latency,), (other,) = first.latency.values(), again.latency.values()
    assert answers.points[0] == answers.points[1] == BLOCKS.point(np.full(40, 1))
    assert first.quality.worst_db == answers.points[0][0]
    assert 0 < abs(latency.ratio - answers.points[0][1]) < 0.05
    assert latency.ratio != other.ratio
    assert budget.left == 1.0
    assert replace(first, latency={}) == replace(again, latency={})


def test_an_evaluation_ends_where_a_timed_one_is_better_and_shown_to_be_faster() -> None:
    budget = Budget(seconds=9.0)
    answers, schemes = Answers(BLOCKS, budget), list(BLOCKS.problem.space.schemes)
    uniform: list[Assignment] = [{region.id: name for region in BLOCKS.problem.regions} for name in schemes]
    uniform.sort(key=lambda each: BLOCKS.point(BLOCKS.problem.encode(each).astype(np.int64))[0])
    worst, best = uniform[0], uniform[-1]
    assert answers.evaluate(worst, 0, {}, left_s=1.0).state is State.UNTIMED
    assert answers.evaluate(best, 6, {"cpu-1t": 0.0}, left_s=1.0).state is State.COMPLETE
    assert answers.evaluate(worst, 6, {"cpu-1t": 0.0}, left_s=1.0).state is State.COMPLETE
    assert answers.evaluate(worst, 6, {}, left_s=1.0).state is State.COMPLETE
    assert answers.evaluate(worst, 6, {"cpu-1t": 2.0}, left_s=1.0).state is State.REJECTED_EARLY
    assert len(answers.points) == 3
    assert budget.elapsed == pytest.approx(3 + 0.5 + 0.4)
