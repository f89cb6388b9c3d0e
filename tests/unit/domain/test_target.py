import json
from typing import Any

import numpy as np
import pytest

from autoquant.domain.target import Target
from autoquant.errors import UsageError


def test_a_target_is_named_by_its_provider_and_threads() -> None:
    assert Target().name == "cpu-1t"
    assert Target("cuda", 4).name == "cuda-4t"


@pytest.mark.parametrize("threads", [0, -1])
def test_a_target_has_at_least_one_thread(threads: int) -> None:
    with pytest.raises(UsageError, match=f"threads is {threads}, it must be at least 1"):
        Target(threads=threads)


def test_batches_and_streams_are_part_of_the_name() -> None:
    target = Target(batch=8, streams=2)
    assert target.name == "cpu-1t-b8-s2"
    with pytest.raises(UsageError, match="batch is 0"):
        Target(batch=0)


def test_options_are_texts() -> None:
    options = {"device_id": 0, "arena_extend_strategy": "kSameAsRequested"}
    target = Target("cuda", options=options)  # type: ignore[arg-type]
    assert target.options == {"device_id": "0", "arena_extend_strategy": "kSameAsRequested"}


def test_numbers_of_numpy_become_plain_ones_and_cores_a_tuple() -> None:
    two = np.int64(2)
    target = Target(threads=two, batch=two, streams=two, affinity=[np.int64(0), 1])  # type: ignore[arg-type]
    assert target == Target(threads=2, batch=2, streams=2, affinity=(0, 1))
    assert json.loads(json.dumps([target.threads, target.batch, target.streams, target.affinity])) == [2, 2, 2, [0, 1]]
    assert len({target.affinity}) == 1
    assert Target(affinity=map(int, "01")).affinity == (0, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"threads": 1.5}, "Target.threads is of type 'float', give a whole number"),
        ({"streams": "2"}, "Target.streams is of type 'str', give a whole number"),
        ({"ep": 1}, "Target.ep is of type 'int', give its name, e.g. 'cpu'"),
        ({"options": [1]}, "Target.options is of type 'list', give a dict"),
        ({"affinity": 0}, "Target.affinity is of type 'int', give a list of cores"),
        ({"affinity": "01"}, "a core in Target.affinity is of type 'str', give its number"),
    ],
)
def test_values_of_another_type_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Target(**given)
    assert str(caught.value) == message
