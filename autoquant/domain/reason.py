"""What an error of a library or of the system says."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from autoquant.errors import DiskFullError, OutputError

__all__ = ["is_disk_full", "one_line", "temporary_files"]

_LONGEST, _BEGINNING = 300, 100


def is_disk_full(error: OSError) -> bool:
    """Whether there was no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def one_line(told: BaseException | str) -> str:
    """In one line, of no more than 300 characters; of longer ones the middle is left out: onnxruntime says last why."""
    line = " ".join(str(told).split())
    if len(line) <= _LONGEST:
        return line
    left_out = " [...] "
    return line[:_BEGINNING] + left_out + line[len(line) - _LONGEST + _BEGINNING + len(left_out) :]


@contextmanager
def temporary_files() -> Iterator[None]:
    """Turn a failure to write temporary files, which are all that is written inside, into one sentence."""
    try:
        yield
    except OSError as error:
        kind = DiskFullError if is_disk_full(error) else OutputError
        raise kind(
            f"temporary files cannot be written ({error.strerror}); set TMPDIR to a folder that can be written and has"
            " room"
        ) from error
