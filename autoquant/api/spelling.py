"""How users spell times, sizes, cores and drops."""

import math
import re
from collections.abc import Sequence

from autoquant.api.configuration import check_cores
from autoquant.domain.target import MAX_THREADS
from autoquant.errors import UsageError
from autoquant.metrics.grammar import parse_drop, parse_metrics

__all__ = ["bytes_of", "cores_of", "drops_of", "seconds_of"]

_BYTES = {"b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3}
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def cores_of(text: str) -> tuple[int, ...]:
    """Read cores such as ``0,2-3``.

    Raises:
        UsageError: They cannot be read, or this machine does not have them.
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", part)
        if not match:
            raise UsageError(f"--affinity {text}: write cores with commas and ranges, e.g. 0,2-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= MAX_THREADS:
            raise UsageError(f"--affinity {text}: these are more than {MAX_THREADS} cores, choose some of them")
        if last < first:
            raise UsageError(f"--affinity {text}: the range is empty, write the lower core first, e.g. 0-1")
        found += range(first, last + 1)
    check_cores(found, f"--affinity {text}")
    return tuple(dict.fromkeys(found))


def drops_of(texts: Sequence[str], metrics: Sequence[str]) -> dict[str, float] | None:
    """Read largest drops such as ``0.5%``, for every metric, or ``NAME=0.5%``, for one.

    Args:
        texts: What the user wrote; a drop with a name counts before one without.
        metrics: As the user spells them.

    Returns:
        By metric; None where none is given.

    Raises:
        AutoquantError: One is no drop, there are two of one metric, or a metric is spelled wrong.
    """
    named: dict[str, float] = {}
    for text in texts:
        name, drop = text.rpartition("=")[0].strip(), parse_drop(text.rpartition("=")[2])
        if named.setdefault(name, drop) != drop:
            raise UsageError(f"--max-drop {text}: there is another one of {name or 'all metrics'}; give one of them")
    if not texts:
        return None
    default = named.pop("", None)
    every = {} if default is None else {metric.name: default for metric in parse_metrics(metrics)}
    return every | named


def seconds_of(text: str, where: str) -> float:
    """Read a time such as ``120s``, ``5m`` or ``1h``.

    Args:
        text: What the user wrote.
        where: Begins the message, e.g. ``"--time"``.

    Raises:
        UsageError: It is no time, or none at all.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", text.strip())
    if not match:
        raise UsageError(f"{where} {text}: write a number with a unit, e.g. 120s, 5m or 1h")
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if seconds == 0:
        raise UsageError(f"{where} {text}: it must be positive, e.g. 120s")
    return seconds


def bytes_of(text: str, where: str) -> int:
    """Read a size such as ``800kB`` or ``4MB``, in powers of ten.

    Args:
        text: What the user wrote.
        where: Begins the message, e.g. ``"--max-size"``.

    Raises:
        UsageError: It is no size, or none at all.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?b)", text.strip(), re.IGNORECASE)
    size = float(match[1]) * _BYTES[match[2].lower()] if match else 0.0
    if not 1 <= size < math.inf:
        raise UsageError(f"{where} {text}: write a positive number with a unit, e.g. 800kB or 4MB")
    return round(size)
