import json

import pytest

from autoquant.runtime.environment import describe_environment, differences


def test_the_environment_names_processor_versions_and_providers_in_plain_values() -> None:
    found = describe_environment()
    assert json.loads(json.dumps(found)) == found
    assert found["cpu"]
    assert isinstance(found["n_cores"], int)
    assert found["n_cores"] >= 1
    versions = found["versions"]
    assert isinstance(versions, dict)
    assert versions.keys() >= {"autoquant", "onnxruntime", "onnx", "optuna", "numpy"}
    assert "not installed" not in versions.values()
    assert "cpu" in found["execution_providers"]  # type: ignore[operator]


def test_what_does_not_change_between_two_looks_is_equal() -> None:
    first, second = describe_environment(), describe_environment()
    changing = {"load_1min", "load_5min", "load_15min", "current_mhz"}
    assert {key for key in first if first[key] != second[key]} <= changing
    assert first["id"] == second["id"]
    assert differences(first, second) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cpu": "Imaginary 9000"}, ["cpu Imaginary 9000, now"]),
        ({"n_cores": 99, "governor": "imaginary"}, ["n_cores 99, now", "governor imaginary, now"]),
        ({"versions": {"onnxruntime": "0.1", "onnx": "0.2"}}, ["onnxruntime 0.1, now"]),
        ({"load_1min": 99.0, "system": "another kernel"}, []),
    ],
)
def test_what_latencies_depend_on_tells_environments_apart(change: dict[str, object], told: list[str]) -> None:
    now = describe_environment()
    found = differences(now | change, now)
    assert len(found) == len(told)
    assert all(sentence.startswith(start) for sentence, start in zip(found, told, strict=True))


def test_an_environment_that_nobody_described_is_another_one() -> None:
    assert differences({}, describe_environment())
