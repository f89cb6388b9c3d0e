"""Folders of runs."""

from pathlib import Path

from autoquant.api.folder import RunFolder


def a_run(path: Path) -> RunFolder:
    """A folder with a study that was begun."""
    folder = RunFolder(path, resume=False)
    folder.journal.write_bytes(b"{}\n")
    folder.close()
    return folder
