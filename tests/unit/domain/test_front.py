import math
from dataclasses import replace

import pytest

from autoquant.domain.objective import Objectives
from autoquant.domain.target import Target
from autoquant.errors import UsageError
from autoquant.metrics.grammar import parse_metrics
from tests.records import a_front, a_latency, a_member

TWO_TARGETS = (Target("cpu", 1), Target("cpu", 2))
FRONT = a_front(a_member("m1", ratio=0.4, snr_db=28.0), a_member("m2", ratio=0.55, snr_db=41.0))


@pytest.mark.parametrize(
    ("demand", "member", "ratio"), [(20, "m1", 0.4), (28, "m1", 0.4), (30, "m2", 0.55), (41.5, "float", 1.0)]
)
def test_the_fastest_member_that_keeps_a_demand_is_found(demand: float, member: str, ratio: float) -> None:
    assert FRONT.best_member_at(demand).id == member
    assert FRONT.best_ratio_at(demand) == ratio


def test_the_float_model_keeps_every_snr() -> None:
    assert [member.worst_db for member in FRONT.members] == [28.0, 41.0, math.inf]


def test_each_target_has_its_own_best_ratio() -> None:
    member = a_member(targets=TWO_TARGETS)
    slow_on_two = replace(member, latency={"cpu-1t": a_latency(0.5), "cpu-2t": a_latency(1.2)})
    front = a_front(slow_on_two, targets=TWO_TARGETS)

    assert front.best_ratio_at(40, "cpu-1t") == 0.5
    assert front.best_ratio_at(40, "cpu-2t") == 1.0


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(UsageError, match="target 'gpu' is not in this front, it has cpu-1t"):
        FRONT.best_ratio_at(30, "gpu")


def test_the_fastest_members_are_found_at_usual_demands_on_each_target() -> None:
    found = FRONT.best_members()

    assert {demand: member.id for demand, member in found.items()} == {"30 dB": "m2", "40 dB": "m2", "50 dB": "float"}
    assert FRONT.best_members("cpu-1t") == found
    with pytest.raises(UsageError, match="target 'gpu' is not in this front"):
        FRONT.best_members("gpu")


def test_demands_are_on_a_metric_where_snr_is_no_objective() -> None:
    members = a_member("m1", ratio=0.4, drops={"top1": 0.008}), a_member("m2", ratio=0.6, drops={"top1": 0.004})
    folded = a_member("m3", ratio=0.8, drops={"top1": 0.0})
    goals = Objectives(has_snr=False, metrics=parse_metrics(["top1"]), has_size=True).goals
    front = replace(a_front(*members, folded), objectives=goals)

    assert (FRONT.quality_metric, front.quality_metric) == (None, "top1")
    assert {demand: member.id for demand, member in front.best_members().items()} == {
        "top1 no worse": "m3",
        "top1 worse by 0.5 %": "m2",
        "top1 worse by 1 %": "m1",
    }
    with pytest.raises(UsageError, match="target 'gpu' is not in this front"):
        front.best_members("gpu")
