import errno

import pytest

from autoquant.domain.reason import is_disk_full, one_line


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_full_quota_are_told_from_other_failures(number: int) -> None:
    assert is_disk_full(OSError(number, "full"))
    assert not is_disk_full(PermissionError(errno.EACCES, "denied"))


def test_what_an_error_says_has_one_line_and_an_end() -> None:
    assert one_line(ValueError("first\n  second\tthird")) == "first second third"
    assert len(one_line(ValueError(1000 * "x"))) == 300
