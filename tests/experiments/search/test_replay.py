from dataclasses import replace

import numpy as np
import pytest
from optuna.samplers import RandomSampler

from autoquant.domain.measurement import Failure, Measurement
from autoquant.errors import UsageError
from experiments.search.contenders import CONTENDERS, contender
from experiments.search.replay import Replay, replay
from experiments.search.yardsticks import hypervolume
from tests.experiments.search.synthetic import a_table

TABLE = a_table()


@pytest.mark.parametrize("name", CONTENDERS)
def test_the_same_seed_and_table_give_the_same_proposals(name: str) -> None:
    first, again = (replay(TABLE, contender(name, 5), n_evaluations=30, seed=5) for _ in range(2))
    assert first == again
    assert len(set(first)) == len(first) == 30


def test_uniform_recipes_come_first_and_probes_follow_for_ours_alone() -> None:
    ours, theirs = (
        TABLE.codes[replay(TABLE, contender(name, 0), n_evaluations=9, seed=0)] for name in ("structure", "tpe")
    )
    np.testing.assert_array_equal(ours[:3], theirs[:3])
    assert ours[:2].tolist() == [[0] * 6, [1] * 6]
    assert ((ours[3:8] > 0).sum(axis=1) == 1).all()  # the recipe with the best SNR has five regions
    assert not ((theirs[3:8] > 0).sum(axis=1) == 1).all()


def test_a_replay_answers_what_was_measured() -> None:
    answers = Replay(TABLE, 4)
    row = int(np.flatnonzero(TABLE.codes[:, 0] == 2)[0])
    found = answers.evaluate(TABLE.problem.decode(TABLE.codes[row]), 1, {}, left_s=1.0)
    assert isinstance(found, Measurement)
    assert (found.quality.worst_db, found.latency["cpu-1t"].ratio) == TABLE.points()[row]
    assert found.effective[TABLE.problem.regions[0].id] == "a"


def test_a_failure_is_one_in_a_replay_too() -> None:
    (row,) = TABLE.failures
    found = Replay(TABLE, 4).evaluate(TABLE.problem.decode(TABLE.codes[row]), 1, {}, left_s=1.0)
    assert found == Failure(stage="table", reason="RuntimeError: no kernel")


def test_an_assignment_that_is_asked_again_is_not_counted_again() -> None:
    answers = Replay(TABLE, 1)
    first, second = (TABLE.problem.decode(codes) for codes in TABLE.codes[:2])
    assert answers.evaluate(first, 1, {}, left_s=1.0) == answers.evaluate(first, 1, {}, left_s=1.0)
    assert answers.rows == [0]
    assert answers.evaluate(second, 1, {}, left_s=1.0) is None


def test_a_table_that_is_not_complete_is_refused() -> None:
    with pytest.raises(UsageError, match="the table has 10 of 486 assignments"):
        replay(replace(TABLE, codes=TABLE.codes[:10]), RandomSampler(), n_evaluations=5, seed=0)


def test_a_whole_table_can_be_searched_through() -> None:
    small = a_table(3)
    rows = replay(small, RandomSampler(seed=0), n_evaluations=100, seed=0)
    assert sorted(rows) == list(range(18))
    assert hypervolume(small.points()) == hypervolume(small.points()[row] for row in rows)
