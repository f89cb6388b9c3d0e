import json
from dataclasses import replace

import numpy as np
import pytest

from autoquant.domain.prior import LatencyPrior

PRIOR = LatencyPrior(
    base=0.9,
    change=np.array([[-0.1, -0.2], [0.0, 0.1]]),
    spread=np.full((2, 2), 0.3),
    border=np.array([0.01]),
    border_spread=np.array([0.02]),
)


def test_a_prior_is_read_as_it_was_written() -> None:
    found = LatencyPrior.parse(json.loads(json.dumps(PRIOR.plain())))
    assert found.plain() == PRIOR.plain()


def test_a_prior_of_no_regions_is_read() -> None:
    empty = {"base": 1.0, "change": [], "spread": [], "border": [], "border_spread": []}
    assert LatencyPrior.parse(empty).change.shape == (0, 2)


@pytest.mark.parametrize("key", ["base", "change", "border_spread"])
def test_what_lacks_something_is_no_prior(key: str) -> None:
    with pytest.raises(ValueError, match="no latency prior"):
        LatencyPrior.parse({name: value for name, value in PRIOR.plain().items() if name != key})


@pytest.mark.parametrize(("key", "value"), [("spread", [[1.0, 2.0]]), ("border", [1.0, 2.0]), ("base", [])])
def test_what_has_other_shapes_is_no_prior(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"no latency prior|reshape"):
        LatencyPrior.parse({**PRIOR.plain(), key: value})


def test_a_prior_may_hold_a_third_kind() -> None:
    change = np.hstack([PRIOR.change, PRIOR.change[:, :1]])
    prior = replace(PRIOR, change=change, spread=change)
    assert LatencyPrior.parse(prior.plain()).plain() == prior.plain()
    with pytest.raises(ValueError, match="its regions have other shapes"):
        LatencyPrior.parse({**prior.plain(), "spread": PRIOR.plain()["spread"]})
