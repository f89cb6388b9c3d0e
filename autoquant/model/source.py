"""The user's own files of a model, which must stay as they are while it is searched."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autoquant.errors import ModelError
from autoquant.model.io import files_of, sha256_of

__all__ = ["SourceFiles"]


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """A model's file and those of its external data, as they were.

    Attributes:
        digests: By file, the model's own first.
        size_bytes: Of all files.
        stamps: Of each file, where the file system says when it was written.
    """

    digests: Mapping[Path, str]
    size_bytes: int
    stamps: Mapping[Path, tuple[int, ...]]

    @classmethod
    def read(cls, path: Path) -> "SourceFiles":
        """As they are now; of a model that was loaded."""
        files = list(files_of(path))
        stamps = {file: _stamp(file) for file in files}  # before they are read: what is written meanwhile has another
        return cls({file: sha256_of(file) for file in files}, sum(file.stat().st_size for file in files), stamps)

    def refuse_changed(self) -> None:
        """Whether they are what they were; those that nobody wrote to are not read again.

        Raises:
            ModelError: One of them is another one, or gone.
        """
        for file, digest in self.digests.items():
            if _stamp(file) != self.stamps[file] and _digest(file) != digest:
                raise ModelError(
                    f"{file}: the model has changed since the search began; put back what was there, or begin another"
                    " run in another folder"
                )


def _stamp(file: Path) -> tuple[int, ...]:
    """Empty where there is no such file."""
    with suppress(OSError):
        found = file.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return ()


def _digest(file: Path) -> str | None:
    """None where it cannot be read."""
    with suppress(OSError):
        return sha256_of(file)
    return None
