"""The machine and the versions behind a measurement."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from functools import cache
from importlib import metadata

from autoquant.runtime.machine import read_machine, usable_processors
from autoquant.runtime.providers import installed, runtime_version

__all__ = ["describe_environment", "differences"]

_PACKAGES = ("autoquant", "onnxruntime", "onnx", "optuna", "numpy")
_RUNTIME = "onnxruntime"
"""It and the packages of its providers, whose names begin like this."""
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
_COMPARED = (
    "cpu",
    "cpu_flags",
    "is_virtual",
    "n_processors",
    "n_cores",
    "governor",
    "max_mhz",
    "container_cpus",
    "python",
)


def describe_environment() -> dict[str, object]:
    """Processor, relevant instruction sets, cores, clock rates, limits of the container, load and versions.

    ``id`` is a digest of what latencies depend on and what stays: measurements compare only where it is the same.
    """
    machine, processors = read_machine(), usable_processors()
    loads = os.getloadavg() if hasattr(os, "getloadavg") else (None, None, None)
    found: dict[str, object] = {
        "cpu": machine.cpu,
        "cpu_flags": [flag for flag in _FLAGS if flag in machine.flags],
        "is_virtual": machine.is_virtual,
        "n_processors": os.cpu_count(),
        "n_cores": len(processors),
        "affinity": _ranges(processors),
        "governor": machine.governor,
        "current_mhz": machine.current_mhz,
        "max_mhz": machine.max_mhz,
        "container_cpus": machine.container_cpus,
        "container_memory_mb": machine.container_memory_mb,
        **{
            f"load_{minutes}min": None if load is None else round(load, 2)
            for minutes, load in zip((1, 5, 15), loads, strict=True)
        },
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": dict(_versions()),
        "execution_providers": list(installed()),
    }
    digest = hashlib.sha256(json.dumps(_compared(found), sort_keys=True).encode()).hexdigest()
    return {"id": digest[:8], **found}


def differences(earlier: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """What keeps the latencies of two environments from being compared, like ``cpu Old, now New``; empty if nothing.

    Args:
        earlier: What ``describe_environment`` gave once, perhaps in an older version.
        now: What it gives.
    """
    before, after = _compared(earlier), _compared(now)
    keys = [key for key in {**after, **before} if before.get(key) != after.get(key)]
    return [f"{key} {before.get(key)}, now {after.get(key)}" for key in keys]


def _compared(environment: Mapping[str, object]) -> dict[str, object]:
    versions = environment.get("versions")
    runtime = versions if isinstance(versions, Mapping) else {}
    return {
        **{key: environment.get(key) for key in _COMPARED},
        **{name: version for name, version in sorted(runtime.items()) if name.startswith(_RUNTIME)},
    }


@cache
def _versions() -> Mapping[str, str]:
    found = dict.fromkeys(_PACKAGES, "not installed")
    for distribution in metadata.distributions():
        name = str(distribution.metadata["Name"])
        if name in found or name.startswith(f"{_RUNTIME}-"):
            found[name] = distribution.version
    return found | {_RUNTIME: runtime_version()}


def _ranges(numbers: tuple[int, ...]) -> str:
    """Ascending numbers like ``0-3,8``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in parts)
