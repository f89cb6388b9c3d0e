import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from autoquant.domain.metric import Custom, Metric
from autoquant.errors import MetricError
from autoquant.metrics.custom import call, load

MODULE = """
import numpy as np

def mean(outputs, feeds, labels):
    return np.mean([sample["y"] for sample in outputs])

def count(outputs, feeds, labels):
    return len(feeds)

def broken(outputs, feeds, labels):
    return labels["missing"]

def array(outputs, feeds, labels):
    return np.zeros(3)

def scores(outputs, feeds, labels):
    return [sample["y"][0] > 2 for sample in outputs]

def unfinished(outputs, feeds, labels):
    return [1.0, float("nan")]

def ragged(outputs, feeds, labels):
    return [[1.0], [1.0, 2.0]]

def columns(outputs, feeds, labels):
    return [[1.0] for _ in outputs]

def nothing(outputs, feeds, labels):
    pass

def infinite(outputs, feeds, labels):
    return float("inf")

def leaves(outputs, feeds, labels):
    raise SystemExit(0)

number = 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "users_metrics.py").write_text(MODULE)
    (tmp_path / "users_broken.py").write_text("import users_nothing")
    (tmp_path / "users_script.py").write_text("import sys\n\nsys.exit(0)")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield
    assert sys.path == path
    for name in ("users_metrics", "users_broken"):
        sys.modules.pop(name, None)


def metric(function: str, module: str = "users_metrics") -> tuple[Metric, Custom]:
    source = Custom(module=module, function=function)
    return Metric(name="own", source=source), source


def value(function: str) -> float | npt.NDArray[np.float64]:
    wanted, source = metric(function)
    outputs = [{"y": np.array([1.0])}, {"y": np.array([3.0])}]
    return call(wanted, load(wanted, source), outputs, [{}, {}], {})


def test_a_function_of_the_current_folder_gives_a_number() -> None:
    assert value("mean") == 2.0
    assert value("count") == 2.0
    assert type(value("mean")) is float


def test_a_function_may_score_each_sample() -> None:
    np.testing.assert_array_equal(value("scores"), [0.0, 1.0])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("broken", "raised on 2 samples, put it right (KeyError: 'missing')"),
        ("array", "returned a 'ndarray' of shape (3,), return a float or one a sample"),
        ("ragged", "returned a 'list', return a float or one a sample"),
        ("columns", "returned a 'list' of shape (2, 1), return a float or one a sample"),
        ("nothing", "returned a 'NoneType', return a float or one a sample"),
        ("unfinished", "returned nan on 2 samples, return finite numbers"),
        ("infinite", "returned inf on 2 samples, return finite numbers"),
        ("leaves", "raised on 2 samples, put it right (SystemExit: 0)"),
    ],
)
def test_a_function_without_a_value_is_refused(function: str, message: str) -> None:
    with pytest.raises(MetricError) as error:
        value(function)
    assert str(error.value) == f"metric 'own': users_metrics:{function} {message}"


@pytest.mark.parametrize(
    ("module", "function", "message"),
    [
        ("users_metrics", "maen", "has no function 'maen', did you mean 'mean'?"),
        ("users_metrics", "zzzzzz", "has no function 'zzzzzz', define it"),
        ("users_metrics", "number", "has no function 'number', define it"),
        ("users_broken", "f", "module 'users_broken' cannot be imported, put it right (ModuleNotFoundError: No module"),
        ("users_absent", "f", "module 'users_absent' cannot be imported, put it right (ModuleNotFoundError: No module"),
        ("users_script", "f", "module 'users_script' cannot be imported, put it right (SystemExit: 0)"),
    ],
)
def test_a_function_that_cannot_be_found_is_refused(module: str, function: str, message: str) -> None:
    with pytest.raises(MetricError) as error:
        load(*metric(function, module))
    assert str(error.value).startswith("metric 'own': ")
    assert message in str(error.value)
