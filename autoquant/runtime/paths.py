"""Paths that onnxruntime takes."""

import os
from pathlib import Path

__all__ = ["is_text"]


def is_text(path: Path) -> bool:
    """Whether a path, with the folders that it is in, is text in UTF-8: onnxruntime opens no other one."""
    try:
        os.fspath(path.absolute()).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
