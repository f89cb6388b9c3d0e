"""What an error of a library or of the system says."""

import errno

__all__ = ["is_disk_full", "one_line"]

_LONGEST = 300


def is_disk_full(error: OSError) -> bool:
    """Whether there was no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def one_line(error: BaseException) -> str:
    """In one line, of no more than 300 characters."""
    return " ".join(str(error).split())[:_LONGEST]
