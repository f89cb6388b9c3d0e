import json

from autoquant.runtime.environment import describe_environment


def test_the_environment_names_processor_versions_and_providers_in_plain_values() -> None:
    found = describe_environment()
    assert json.loads(json.dumps(found)) == found
    assert found["cpu"]
    assert isinstance(found["n_cores"], int)
    assert found["n_cores"] >= 1
    versions = found["versions"]
    assert isinstance(versions, dict)
    assert versions.keys() == {"autoquant", "onnxruntime", "onnx", "optuna", "numpy"}
    assert "not installed" not in versions.values()
    assert "cpu" in found["execution_providers"]  # type: ignore[operator]


def test_what_does_not_change_between_two_looks_is_equal() -> None:
    first, second = describe_environment(), describe_environment()
    del first["load_1min"], second["load_1min"]
    assert first == second
