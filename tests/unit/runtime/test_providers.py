import pytest

from autoquant.errors import TargetError
from autoquant.runtime.providers import installed, known, provider_of


def test_the_cpu_is_always_installed_under_its_short_name() -> None:
    assert "cpu" in installed()


def test_providers_of_other_packages_are_known() -> None:
    assert {*installed(), "cuda"} <= set(known())


@pytest.mark.parametrize("spelling", ["cpu", "CPU", "CPUExecutionProvider", "cpuexecutionprovider"])
def test_a_provider_is_found_by_its_short_and_its_full_name(spelling: str) -> None:
    assert provider_of(spelling) == "CPUExecutionProvider"


@pytest.mark.parametrize("ep", ["", "abacus", "ExecutionProvider"])
def test_a_provider_that_is_not_installed_is_an_error_that_names_those_that_are(ep: str) -> None:
    with pytest.raises(TargetError, match=rf"'{ep}' is not installed, this onnxruntime has: .*cpu"):
        provider_of(ep)
