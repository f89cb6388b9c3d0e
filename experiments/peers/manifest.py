"""What a tool made, line by line as it appeared: ``manifest.jsonl``. Needs the standard library only."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["MANIFEST", "RUN", "VERSIONS", "Entry", "append", "read_entries"]

MANIFEST = "manifest.jsonl"
VERSIONS = "versions.json"
RUN = "run.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model that a tool made, or why a variant of it made none.

    Attributes:
        tool: Its name.
        variant: How it was called.
        seconds: From the start of the tool until the file was there, or the failure.
        file: Name of the file beside the manifest; empty for a failure.
        error: Its sentence; empty for a file.
    """

    tool: str
    variant: str
    seconds: float
    file: str = ""
    error: str = ""


def append(folder: Path, entry: Entry) -> None:
    """Add a line."""
    with (folder / MANIFEST).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(entry)) + "\n")


def read_entries(folder: Path) -> list[Entry]:
    """All lines, but for one that a kill cut off; none where there is no manifest."""
    with suppress(FileNotFoundError):
        return list(_parsed((folder / MANIFEST).read_text(encoding="utf-8").splitlines()))
    return []


def _parsed(lines: Iterable[str]) -> Iterable[Entry]:
    for line in lines:
        with suppress(json.JSONDecodeError):
            yield Entry(**json.loads(line))
