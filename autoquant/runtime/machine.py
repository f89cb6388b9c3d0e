"""What the system tells of its processors and of the container around this process."""

import contextlib
import os
import platform
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Machine", "container_files", "read_machine", "usable_processors"]

_MEBI = 1 << 20
_NO_LIMIT = 1 << 60
"""The first version of control groups writes a number beyond this where there is no limit of memory."""
_ASKING_S = 5.0
"""A program of the system, for what it tells at once."""

_MODEL_FIELDS = {
    "cpu family": "family",
    "model": "model",
    "CPU implementer": "implementer",
    "CPU variant": "variant",
    "CPU part": "part",
}
"""What tells processors apart, on x86 and on ARM, and what it is called here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is not told is None.

    Attributes:
        cpu: Model, with its family.
        flags: Every flag of it.
        is_virtual: Whether a hypervisor is below.
        governor: Of the clock rate.
        current_mhz: Clock rate of the first processor now.
        max_mhz: Its highest.
        container_cpus: Processors whose time the container may use.
        container_memory_mb: Memory that it may use.
    """

    cpu: str
    flags: frozenset[str]
    is_virtual: bool | None
    governor: str | None
    current_mhz: float | None
    max_mhz: float | None
    container_cpus: float | None
    container_memory_mb: int | None


def read_machine(proc: Path = Path("/proc"), system: Path = Path("/sys")) -> Machine:
    """Read it, on Linux; elsewhere little is known.

    Args:
        proc: Where the kernel tells of processes and processors.
        system: Where it tells of devices and control groups.
    """
    fields = dict(_fields(_text(proc / "cpuinfo")))
    flags = frozenset((fields.get("flags") or fields.get("Features") or "").split())
    frequency = system / "devices/system/cpu/cpu0/cpufreq"
    current, highest = (_number(_text(frequency / f"scaling_{name}_freq")) for name in ("cur", "max"))
    return Machine(
        cpu=_model(fields),
        flags=flags,
        is_virtual="hypervisor" in flags if "flags" in fields else None,
        governor=_text(frequency / "scaling_governor") or None,
        current_mhz=_number(fields.get("cpu MHz")) if current is None else current / 1e3,
        max_mhz=None if highest is None else highest / 1e3,
        container_cpus=_container_cpus(proc, system),
        container_memory_mb=_container_memory_mb(proc, system),
    )


def usable_processors() -> tuple[int, ...]:
    """Numbers of the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def container_files(controllers: Collection[str], name: str, proc: Path, system: Path) -> list[Path]:
    """Where control groups may tell something of this process: its own group first, then those around it, outwards.

    Args:
        controllers: Who tells it in the first version of control groups; in the second one, all are in one folder.
        name: Of the file.
        proc: Where the kernel tells of processes.
        system: Holds ``fs/cgroup``.
    """
    root = system / "fs/cgroup"
    found = []
    for line in _text(proc / "self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if not names or set(names.split(",")) & set(controllers):
            own = Path(path.strip("/"))
            found += [root / names / group / name for group in (own, *own.parents)]
    return found


def _container_cpus(proc: Path, system: Path) -> float | None:
    """The least of all groups: each limits those in it."""
    found = []
    for file in container_files(("cpu",), "cpu.max", proc, system):
        quota, _, period = _text(file).partition(" ")
        if quota.isdigit():
            found.append(int(quota) / int(period))
    for file in container_files(("cpu",), "cpu.cfs_quota_us", proc, system):
        used, whole = _number(_text(file)), _number(_text(file.with_name("cpu.cfs_period_us")))
        if used is not None and whole is not None and used > 0:
            found.append(used / whole)
    return min(found, default=None)


def _container_memory_mb(proc: Path, system: Path) -> int | None:
    """The same of memory."""
    files = (
        file
        for name in ("memory.max", "memory.limit_in_bytes")
        for file in container_files(("memory",), name, proc, system)
    )
    limits = [_number(_text(file)) for file in files]
    return min((int(limit) // _MEBI for limit in limits if limit is not None and limit < _NO_LIMIT), default=None)


def _model(fields: dict[str, str]) -> str:
    if not fields:
        return _brand() or platform.processor() or platform.machine()
    told = [f"{name} {fields[field]}" for field, name in _MODEL_FIELDS.items() if field in fields]
    return f"{fields.get('model name', platform.machine())}" + (f" ({', '.join(told)})" if told else "")


def _brand() -> str:
    """What macOS calls the processor, which is "arm" for platform."""
    if platform.system() != "Darwin":
        return ""
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_ASKING_S).stdout.strip()
    return ""


def _fields(text: str) -> list[tuple[str, str]]:
    lines = [line.split(":", 1) for line in text.splitlines() if ":" in line]
    return [(key.strip(), value.strip()) for key, value in lines]


def _number(text: str | None) -> float | None:
    with contextlib.suppress(ValueError):
        return float(text or "")
    return None


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text(encoding="utf-8").strip()
    return ""
