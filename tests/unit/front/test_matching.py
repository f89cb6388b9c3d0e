from dataclasses import replace

import pytest

from autoquant.domain.front import Front, Member
from autoquant.domain.objective import Goal
from autoquant.front.matching import unmatched
from tests.records import a_float_member, a_front, a_member


def fronts(new: Member, *, objectives: dict[str, Goal] | None = None, **old: float) -> tuple[Front, Front]:
    found = replace(a_front(), objectives=objectives or {"snr": Goal.MAXIMIZE, "latency": Goal.MINIMIZE})
    before = a_member("old", ratio=old.get("ratio", 0.5), snr_db=old.get("snr_db", 42.0))
    return replace(found, members=(before, a_float_member())), replace(found, members=(new, a_float_member()))


@pytest.mark.parametrize(
    ("ratio", "snr_db", "lost"),
    [
        (0.5, 42.0, []),
        (0.505, 42.0, []),  # within the interval
        (0.515, 42.0, ["old"]),
        (0.4, 41.9, ["old"]),
        (0.4, 60.0, []),
    ],
)
def test_a_member_is_lost_where_none_is_as_fast_and_as_accurate(ratio: float, snr_db: float, lost: list[str]) -> None:
    assert unmatched(*fronts(a_member("new", ratio=ratio, snr_db=snr_db))) == lost


@pytest.mark.parametrize("ratio", [0.995, 0.9])
def test_float_takes_no_place_of_another_one_whose_interval_may_reach_beyond_1(ratio: float) -> None:
    assert unmatched(*fronts(a_member("new", snr_db=10.0), ratio=ratio)) == ["old"]


def test_sizes_and_metrics_count_where_they_are_objectives() -> None:
    new = a_member("new", snr_db=10.0, drops={"hits": 0.1})
    by_size = {"latency": Goal.MINIMIZE, "size": Goal.MINIMIZE}
    assert unmatched(*fronts(new, objectives=by_size)) == []
    assert unmatched(*fronts(replace(new, size_bytes=9_000_000), objectives=by_size)) == ["old"]
    by_hits = {"latency": Goal.MINIMIZE, "hits": Goal.MAXIMIZE}
    before, now = fronts(new, objectives=by_hits)
    for drop, lost in ((0.1, []), (0.05, ["old"])):
        old = a_member("old", drops={"hits": drop})
        assert unmatched(replace(before, members=(old, a_float_member())), now) == lost
