import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.metric import Accuracy, Agreement, Cosine, Custom, Direction, Metric, MetricSource, default_name
from autoquant.errors import MetricError, UsageError
from autoquant.metrics.grammar import parse_drop, parse_metric, parse_metrics

OUTPUTS = st.sampled_from(["", "scores", "Identity:0", "onnx::Shape_422", "a@b", "head/out.1"])
AXES = st.integers(-3, 3)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z_0-9.-]{0,8}", fullmatch=True)
WORDS = st.from_regex(r"[a-z_][a-z_0-9]{0,8}", fullmatch=True)
SOURCES: st.SearchStrategy[MetricSource] = st.one_of(
    st.builds(Cosine, output=OUTPUTS),
    st.builds(Agreement, k=st.integers(1, 20), output=OUTPUTS, axis=AXES),
    st.builds(Accuracy, label=st.sampled_from(["", "label", "label_age"]), output=OUTPUTS, axis=AXES),
    st.builds(Custom, module=WORDS, function=WORDS),
)


@given(source=SOURCES, name=st.none() | NAMES, lower=st.booleans())
def test_a_metric_is_read_as_it_is_written(source: MetricSource, name: str | None, lower: bool) -> None:
    direction = Direction.LOWER if lower and isinstance(source, Custom) else Direction.HIGHER
    metric = Metric(name=name or default_name(source), source=source, direction=direction)
    assert parse_metric(str(metric)) == metric


@pytest.mark.parametrize(
    ("text", "name", "source"),
    [
        ("cosine", "cosine", Cosine()),
        ("cosine@embedding", "cosine@embedding", Cosine(output="embedding")),
        ("top1", "top1", Agreement(k=1)),
        ("top5@Identity:0", "top5@Identity:0", Agreement(k=5, output="Identity:0")),
        ("pixels=top1@masks#1", "pixels", Agreement(k=1, output="masks", axis=1)),
        ("accuracy", "accuracy", Accuracy()),
        ("age=accuracy.label_age@age", "age", Accuracy(label="label_age", output="age")),
        ("package.module:f", "f", Custom(module="package.module", function="f")),
        ("text=package.module:f:max", "text", Custom(module="package.module", function="f")),
    ],
)
def test_what_is_left_out_has_a_default(text: str, name: str, source: MetricSource) -> None:
    assert parse_metric(text) == Metric(name=name, source=source)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acuracy", "'acuracy' is unknown, did you mean 'accuracy'?"),
        ("mse", "'mse' is unknown, choose from cosine, top1, top5, accuracy or module:function"),
        ("top", "write a number from 1 such as top5"),
        ("topk", "write a number from 1 such as top5"),
        ("top0", "write a number from 1 such as top5"),
        ("cosine#1", "leave '#1' out"),
        ("top1.label", "takes no label, leave '.label' out"),
        ("m:f:down", "the direction 'down' is unknown"),
        ("", "'' is unknown"),
    ],
)
def test_a_wrong_spelling_is_refused_with_the_right_one(text: str, message: str) -> None:
    with pytest.raises(MetricError) as error:
        parse_metric(text)
    assert str(error.value).startswith(f"metric '{text}': ")
    assert message in str(error.value)


def test_two_metrics_cannot_have_one_name() -> None:
    assert [metric.name for metric in parse_metrics(["top1", "a=top1"])] == ["top1", "a"]
    with pytest.raises(MetricError, match=r"metric 'b:f': the name 'f' is taken, give it one of its own: NAME=b:f"):
        parse_metrics(["a:f", "b:f"])


@pytest.mark.parametrize(
    ("text", "drop"), [("0.5%", 0.005), ("0", 0.0), ("1 %", 0.01), (".02", 0.02), ("100%", 1.0), (" 2.% ", 0.02)]
)
def test_a_drop_is_a_share_or_percent(text: str, drop: float) -> None:
    assert parse_drop(text) == pytest.approx(drop)


@pytest.mark.parametrize("text", ["", "%", "-1%", "101%", "2", "half", "1e-3", "0,5%", "nan"])
def test_a_drop_that_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"give a share such as 0\.5% or 0\.005"):
        parse_drop(text)
