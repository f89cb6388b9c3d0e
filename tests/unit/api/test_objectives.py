from collections.abc import Sequence

import pytest

from autoquant.api.objectives import objective_names, objectives_of
from autoquant.domain.objective import DEFAULT_OBJECTIVES, Objectives
from autoquant.errors import UsageError
from autoquant.metrics.grammar import parse_metrics

SPELLED = ("top1", "mine=tasks:error:min")
METRICS = parse_metrics(SPELLED)


def test_the_order_in_which_objectives_are_given_does_not_matter() -> None:
    assert objectives_of(("latency", "snr"), METRICS) == objectives_of(("snr", "latency"), ()) == DEFAULT_OBJECTIVES
    found = objectives_of(("size", "mine", "latency", "top1"), METRICS)
    assert found == Objectives(has_snr=False, metrics=METRICS, has_size=True)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("snr",), "are snr, but latency must be among them"),
        (("latency", "size"), "are latency, size, add snr or a metric"),
        ((), "are none, but latency"),
        (("latency", "snr", "latency"), "'latency' is named twice, name it once"),
        (
            ("latency", "top5"),
            "'top5' is unknown, choose from latency, size, snr, top1, mine, or add it to the metrics",
        ),
    ],
)
def test_objectives_that_make_no_front_are_refused(names: Sequence[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        objectives_of(names, METRICS)


def test_a_metric_named_like_an_objective_cannot_be_told_from_it() -> None:
    with pytest.raises(UsageError, match="'snr' is also a metric, give that another name: NAME=top1"):
        objectives_of(("latency", "snr"), parse_metrics(["snr=top1"]))
    assert objectives_of(("latency", "snr"), parse_metrics(["size=top1"])) == DEFAULT_OBJECTIVES


@pytest.mark.parametrize(
    ("minimize", "maximize", "names"),
    [
        (None, None, ["latency", "snr"]),
        ("latency,size", None, ["latency", "size", "snr"]),
        (None, "top1", ["latency", "top1"]),
        ("latency, mine", None, ["latency", "mine"]),
        ("latency,mine", "snr", ["latency", "mine", "snr"]),
        ("latency,size", "snr,top1", ["latency", "size", "snr", "top1"]),
    ],
)
def test_snr_is_maximised_where_no_other_quality_is_named(
    minimize: str | None, maximize: str | None, names: list[str]
) -> None:
    assert list(objective_names(minimize, maximize, SPELLED)) == names


@pytest.mark.parametrize(
    ("minimize", "maximize", "message"),
    [
        ("latency,snr", None, "--minimize snr: higher values of it are better, give it with --maximize"),
        ("latency,top1", None, "--minimize top1: higher values"),
        (None, "mine", "--maximize mine: lower values of it are better, give it with --minimize"),
        (None, "latency,snr", "--maximize latency: lower"),
        (None, "top5", "'top5' is unknown"),
        ("latency,", None, "'' is unknown"),
    ],
)
def test_the_option_must_be_that_of_the_direction(minimize: str | None, maximize: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        objective_names(minimize, maximize, SPELLED)
