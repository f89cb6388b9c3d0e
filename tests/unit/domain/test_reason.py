import errno

import pytest

from autoquant.domain.reason import is_disk_full, one_line, temporary_files
from autoquant.errors import DiskFullError, OutputError


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_full_quota_are_told_from_other_failures(number: int) -> None:
    assert is_disk_full(OSError(number, "full"))
    assert not is_disk_full(PermissionError(errno.EACCES, "denied"))


def test_what_an_error_says_has_one_line_and_an_end() -> None:
    assert one_line(ValueError("first\n  second\tthird")) == "first second third"
    assert one_line(300 * "x") == 300 * "x"
    shortened = one_line("begin " + 1000 * "x" + " why")
    assert len(shortened) == 300
    assert shortened.startswith("begin xxx")
    assert shortened.endswith("xxx why")
    assert "x [...] x" in shortened


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOENT, OutputError), (errno.ENOSPC, DiskFullError)])
def test_where_temporary_files_cannot_be_written_another_place_is_asked_for(
    number: int, kind: type[OutputError]
) -> None:
    expected = (
        r"^temporary files cannot be written \(no room\); set TMPDIR to a folder that can be written and has room$"
    )
    with pytest.raises(OutputError, match=expected) as refused, temporary_files():
        raise OSError(number, "no room")
    assert type(refused.value) is kind
