"""The machine and the versions behind a measurement."""

import os
import platform
from importlib import metadata
from pathlib import Path

from autoquant.runtime.providers import installed

__all__ = ["describe_environment"]

_PACKAGES = ("autoquant", "onnxruntime", "onnx", "optuna", "numpy")
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")


def describe_environment() -> dict[str, object]:
    """Processor, relevant instruction sets, cores, load and versions; measurements compare only where these agree."""
    cpu, flags = _processor()
    return {
        "cpu": cpu,
        "cpu_flags": [flag for flag in _FLAGS if flag in flags],
        "n_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "execution_providers": list(installed()),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> tuple[str, frozenset[str]]:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return platform.processor() or platform.machine(), frozenset()
    fields = [line.split(":", 1) for line in path.read_text().splitlines() if ":" in line]
    values = {key.strip(): value.strip() for key, value in fields}
    family = f"family {values.get('cpu family')}, model {values.get('model')}"
    return f"{values.get('model name', platform.machine())} ({family})", frozenset(
        (values.get("flags") or values.get("Features") or "").split()
    )
