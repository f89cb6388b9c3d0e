"""Memory that can still be allocated, where the system tells."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from autoquant.runtime.machine import container_files

__all__ = ["available_memory_bytes"]

_GROUPS = (
    ("memory.max", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""Files of the limit and of what is used, and how counters of a group and all groups in it begin, by version."""
_CACHED = ("inactive_file", "active_file")


def available_memory_bytes(proc: Path = Path("/proc"), system: Path = Path("/sys")) -> int | None:
    """What can be allocated now, within the container's limit; None where the system doesn't tell.

    Files in the cache count as free, as the kernel drops them first.

    Args:
        proc: Where the kernel tells of memory and processes.
        system: Where it tells of control groups.
    """
    return min([*_in_system(proc / "meminfo"), *_in_containers(proc, system)], default=None)


def _in_system(file: Path) -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError, KeyError):
        yield int(_fields(file)["MemAvailable:"]) * 1024


def _in_containers(proc: Path, system: Path) -> Iterator[int]:
    for most, used, prefix in _GROUPS:
        for file in container_files(("memory",), most, proc, system):
            with contextlib.suppress(OSError, ValueError):  # "max" is no number
                left = int(file.read_text(encoding="ascii")) - int(file.with_name(used).read_text(encoding="ascii"))
                yield max(0, left + _cached_bytes(file.with_name("memory.stat"), prefix))


def _cached_bytes(file: Path, prefix: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        counters = _fields(file)
        return sum(int(counters.get(prefix + name, 0)) for name in _CACHED)
    return 0


def _fields(file: Path) -> dict[str, str]:
    lines = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return {words[0]: words[1] for words in lines if len(words) > 1}
