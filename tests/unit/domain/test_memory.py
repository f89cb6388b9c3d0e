import pytest

from autoquant.domain.memory import kilobytes_in

STATUS = "Name:\tVmData: 3\nVmPeak:\t   70484 kB\nVmHWM:\t   10240 kB\nThreads:\t1\n"


@pytest.mark.parametrize(("name", "kilobytes"), [("VmPeak", 70_484), ("VmHWM", 10_240)])
def test_sizes_are_read_by_name(name: str, kilobytes: int) -> None:
    assert kilobytes_in(STATUS, name) == kilobytes


@pytest.mark.parametrize("status", [STATUS, ""])
def test_what_the_system_does_not_tell_is_said(status: str) -> None:
    with pytest.raises(LookupError, match="VmData"):
        kilobytes_in(status, "VmData")
