import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from autoquant.domain.front import RunRecord
from autoquant.domain.measurement import Evaluation, Measurement
from autoquant.domain.objective import Goal, Objectives
from autoquant.domain.target import Target
from autoquant.metrics.grammar import parse_metrics
from autoquant.report.plot import Plot, plot_of
from tests.records import a_failure, a_front, a_latency, a_measured, a_member, a_record

MEMBERS = "on the front, 95 % interval"
TWO = a_front(a_member("m1", ratio=0.5, snr_db=30.0), a_member("m2", ratio=0.7, snr_db=45.0))
TOP1 = Objectives(has_snr=False, metrics=parse_metrics(["top1"])).goals
ERROR = Objectives(has_snr=False, metrics=parse_metrics(["error=tasks:error:min"])).goals


def plotted(record: RunRecord) -> tuple[Plot, dict[str, Any], Any]:
    """The plot, its traces by name, and its layout."""
    plot = plot_of(record, record.front.targets[0])
    figure = json.loads(json.dumps(plot.figure))
    return plot, {trace["name"]: trace for trace in figure["data"]}, figure["layout"]


def path(trace: Any) -> list[tuple[float, float]]:
    return list(zip(trace["x"], trace["y"], strict=True))


def range_of(evaluations: Sequence[Evaluation], axis: str = "xaxis") -> tuple[float, float]:
    _, _, layout = plotted(a_record(TWO, evaluations=tuple(evaluations)))
    low, high = layout[axis]["range"]
    return low, high


def test_members_are_drawn_with_their_interval_and_float_as_a_line() -> None:
    _, traces, layout = plotted(a_record(TWO))
    drawn = traces[MEMBERS]
    assert path(drawn) == [(0.5, 30.0), (0.7, 45.0)]
    assert drawn["error_x"]["array"] == pytest.approx([0.01, 0.01])
    assert drawn["error_x"]["arrayminus"] == pytest.approx([0.01, 0.01])
    assert "ratio 0.500 (0.490 to 0.510)" in drawn["hovertext"][0]
    assert "u8s8 in 2 of 3 regions" in drawn["hovertext"][0]
    (line,) = layout["shapes"]
    assert line["x0"] == line["x1"] == 1


def test_an_interval_reaches_as_far_as_it_does_to_each_side() -> None:
    member = a_member(ratio=0.5)
    latency = replace(member.latency["cpu-1t"], ratio_low=0.4, ratio_high=0.75)
    _, traces, layout = plotted(a_record(a_front(replace(member, latency={"cpu-1t": latency})), evaluations=()))
    errors = traces[MEMBERS]["error_x"]
    assert (errors["array"], errors["arrayminus"]) == (pytest.approx([0.25]), pytest.approx([0.1]))
    assert layout["xaxis"]["range"][0] < 0.4


def test_the_stairs_lead_from_member_to_member_and_to_float() -> None:
    _, traces, _ = plotted(a_record(TWO))
    assert path(traces["front"]) == [(0.5, 30), (0.7, 30), (0.7, 45), (1, 45)]


def test_the_stairs_pass_by_members_that_keep_less_than_a_faster_one() -> None:
    front = a_front(
        *(a_member(f"m{k}", ratio=ratio, snr_db=db) for k, (ratio, db) in enumerate([(0.8, 45), (0.6, 30), (0.7, 20)]))
    )
    _, traces, _ = plotted(a_record(front))
    assert path(traces["front"]) == [(0.6, 30), (0.8, 30), (0.8, 45), (1, 45)]
    assert path(traces[MEMBERS]) == [(0.6, 30), (0.7, 20), (0.8, 45)]


def test_stairs_that_end_right_of_float_do_not_lead_back() -> None:
    _, traces, _ = plotted(a_record(a_front(a_member(ratio=1.2, snr_db=50.0))))
    assert path(traces["front"]) == [(1.2, 50)]


def test_evaluations_are_drawn_behind_the_members() -> None:
    evaluations = a_measured(4, ratio=0.6), a_measured(5, is_complete=False), a_failure(6)
    _, traces, _ = plotted(a_record(evaluations=evaluations))
    assert list(traces) == ["rejected early", "evaluated", "front", MEMBERS]
    assert "<b>trial 4</b>, evaluated" in traces["evaluated"]["text"][0]
    assert "<b>trial 5</b>, rejected early" in traces["rejected early"]["text"][0]


def test_a_target_has_its_own_latencies() -> None:
    targets = Target("cpu", 1), Target("cpu", 2)
    member = a_member(targets=targets)
    latency = {"cpu-1t": member.latency["cpu-1t"], "cpu-2t": member.latency["cpu-2t"].moved_to(0.9)}
    both = a_measured(0, ratio=0.3)
    assert isinstance(both.outcome, Measurement)
    both = replace(both, outcome=replace(both.outcome, latency={"cpu-1t": a_latency(0.3), "cpu-2t": a_latency(0.35)}))
    record = a_record(
        a_front(replace(member, latency=latency), targets=targets),
        evaluations=(both, a_measured(1, ratio=0.4, target="cpu-2t")),
    )
    for target, drawn, n_missing in zip(targets, ([0.3, 0.5], [0.35, 0.4, 0.9]), (1, 0), strict=True):
        plot = plot_of(record, target)
        traces: Any = {trace["name"]: trace for trace in json.loads(json.dumps(plot.figure))["data"]}
        assert traces["evaluated"]["x"] + traces[MEMBERS]["x"] == drawn
        assert (plot.target, "Not drawn" in plot.caption) == (target.name, bool(n_missing))


def test_what_is_not_drawn_is_counted() -> None:
    evaluations = (a_measured(0), a_measured(1, ratio=None), a_measured(2, snr_db=math.inf), a_failure(3))
    plot, traces, _ = plotted(a_record(evaluations=evaluations))
    assert len(traces["evaluated"]["x"]) == 1
    assert "Not drawn, for want of a latency here or of a finite SNR: 2 of the evaluations." in plot.caption


def test_where_all_is_drawn_and_in_view_nothing_is_counted() -> None:
    plot, _, _ = plotted(a_record(evaluations=(a_measured(0), a_failure(1))))
    assert plot.caption == "Further left is faster, further up is closer to the float model."


def test_without_anything_to_draw_that_is_said() -> None:
    plot, traces, layout = plotted(a_record(a_front(a_member(snr_db=math.inf)), evaluations=(a_failure(0),)))
    assert traces == {}
    assert plot.caption == "No measured SNR and latency to draw."
    assert layout["yaxis"]["range"] == [-3, 53]


def test_far_evaluations_start_outside_the_view_and_are_counted() -> None:
    near = tuple(a_measured(i, ratio=0.5 + i / 500) for i in range(100))
    plot, _, layout = plotted(a_record(evaluations=(*near, a_measured(100, ratio=30.0))))
    assert layout["xaxis"]["range"][1] < 2
    assert "Outside the first view: 1 of the evaluations" in plot.caption


def test_few_evaluations_are_all_in_view() -> None:
    few = [a_measured(i, ratio=0.5) for i in range(48)]
    assert range_of([*few, a_measured(48, ratio=30.0)])[1] > 30
    assert range_of([*few, a_measured(48, snr_db=-90.0)], "yaxis")[0] < -90


def test_members_their_intervals_and_float_are_always_in_view() -> None:
    fast, slow = ([a_measured(i, ratio=ratio, snr_db=10.0) for i in range(60)] for ratio in (0.1, 3.0))
    left, right = range_of(fast)
    assert left < 0.1 < 1 < right
    left, right = range_of(slow)
    assert left < 0.49 < 3 < right
    bottom, top = range_of(fast, "yaxis")
    assert bottom < 10 < 45 < top


def test_a_single_height_has_some_room_around_it() -> None:
    _, _, layout = plotted(a_record(a_front(a_member(snr_db=42.0)), evaluations=()))
    assert layout["yaxis"]["range"] == [42.0 - 2.5, 42.0 + 2.5]


@pytest.mark.parametrize(("name", "text"), [("member", "member"), ("members", "")])
def test_only_short_names_are_beside_their_members(name: str, text: str) -> None:
    _, traces, _ = plotted(a_record(a_front(a_member(name))))
    assert traces[MEMBERS]["text"] == [text]
    assert traces[MEMBERS]["hovertext"][0].startswith(f"<b>{name}</b><br>")


def test_what_users_name_is_escaped() -> None:
    member = a_member("<i>", assignment={"r0": "<s>"}, drops={"<m>": 0.1})
    front = replace(a_front(member), objectives={"<m>": Goal.MAXIMIZE, "latency": Goal.MINIMIZE})
    evaluation = a_measured(assignment={"r0": "<s>"}, drops={"<m>": 0.1})
    _, traces, layout = plotted(a_record(front, evaluations=(evaluation,)))
    texts = [traces["evaluated"]["text"][0], traces[MEMBERS]["hovertext"][0], traces[MEMBERS]["text"][0]]
    texts.append(layout["yaxis"]["title"]["text"])
    assert not any(name in text for text in texts for name in ("<i>", "<s>", "<m>"))
    assert all("&lt;" in text for text in texts)


def test_a_metric_is_drawn_upwards_where_it_takes_the_place_of_snr() -> None:
    front = replace(a_front(a_member("m1", ratio=0.5, drops={"top1": 0.02})), objectives=TOP1)
    plot, traces, layout = plotted(a_record(front, evaluations=(a_measured(0, drops={"top1": 0.01}), a_measured(1))))
    assert traces[MEMBERS]["y"] == [-2.0]
    assert traces["evaluated"]["y"] == [-1.0]
    assert "top1 -1.00 %" in traces["evaluated"]["text"][0]
    assert "SNR 42.0 dB<br>top1 -2.00 %" in traces[MEMBERS]["hovertext"][0]
    assert layout["yaxis"]["title"]["text"] == "top1 against float, %"
    assert "further up is better in top1" in plot.caption
    assert "Not drawn, for want of a latency here or of a value of top1: 1 of the evaluations." in plot.caption


def test_a_metric_that_is_better_when_lower_is_drawn_with_its_own_sign_and_its_low_end_above() -> None:
    members = a_member("m1", ratio=0.5, drops={"error": 0.02}), a_member("m2", ratio=0.7, drops={"error": 0.01})
    front = replace(a_front(*members), objectives=ERROR)
    plot, traces, layout = plotted(a_record(front, evaluations=(a_measured(0, drops={"error": 0.03}),)))
    assert traces[MEMBERS]["y"] == [2.0, 1.0]
    assert "error +3.00 %" in traces["evaluated"]["text"][0]
    assert path(traces["front"]) == [(0.5, 2), (0.7, 2), (0.7, 1), (1, 1)]
    bottom, top = layout["yaxis"]["range"]
    assert bottom > 3 > 1 > top
    assert "further up is better in error" in plot.caption


def test_snr_stays_upwards_beside_a_metric() -> None:
    goals = Objectives(metrics=parse_metrics(["top1"])).goals
    front = replace(a_front(a_member(snr_db=42, drops={"top1": 0.02})), objectives=goals)
    _, traces, _ = plotted(a_record(front))
    assert traces[MEMBERS]["y"] == [42.0]
