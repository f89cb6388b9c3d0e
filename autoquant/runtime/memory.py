"""Memory of this process, where the system tells."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autoquant.domain.memory import kilobytes_in

__all__ = ["Growth", "resident_growth"]

_SELF = Path("/proc/self")


@dataclass(slots=True)
class Growth:
    """Resident memory at its peak inside a block, above what there was before it; None where nobody tells."""

    megabytes: float | None = None


@contextmanager
def resident_growth() -> Iterator[Growth]:
    """Measure it for a block (Linux: ``VmHWM``, reset through ``clear_refs``, see proc(5))."""
    growth = Growth()
    before = _resident_kb("VmRSS")
    is_reset = _reset_peak()
    yield growth
    peak = _resident_kb("VmHWM")
    if is_reset and before is not None and peak is not None:
        growth.megabytes = max(0.0, (peak - before) * 1024 / 1e6)


def _reset_peak() -> bool:
    """Whether that worked: otherwise the peak is that of something earlier."""
    with contextlib.suppress(OSError):
        (_SELF / "clear_refs").write_text("5", encoding="ascii")
        return True
    return False


def _resident_kb(name: str) -> int | None:
    with contextlib.suppress(OSError, LookupError):
        return kilobytes_in((_SELF / "status").read_text(encoding="utf-8"), name)
    return None
