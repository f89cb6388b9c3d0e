"""Files that numpy writes arrays into."""

from typing import IO

from numpy.lib import format as npy

__all__ = ["is_npy"]

_ZIP_PREFIXES = (b"PK\x03\x04", b"PK\x05\x06")
"""Of one with members, and of an empty one."""


def is_npy(file: IO[bytes]) -> bool:
    """Whether it is an .npy, or else an .npz, by its first bytes.

    Args:
        file: At its beginning, where it is left.

    Raises:
        ValueError: It is neither: numpy would take it for a pickle.
    """
    start = file.read(len(npy.MAGIC_PREFIX))
    file.seek(0)
    if not start.startswith((npy.MAGIC_PREFIX, *_ZIP_PREFIXES)):
        raise ValueError("it holds something else than an .npz or an .npy")
    return start == npy.MAGIC_PREFIX
