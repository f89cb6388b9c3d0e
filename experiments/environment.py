"""The machine and the versions behind a number, found without autoquant."""

import hashlib
import json
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from experiments.commit import read_commit

__all__ = ["read_environment"]

PACKAGES = ("autoquant", "numpy", "onnx", "onnxruntime", "optuna")
VECTOR_FLAGS = re.compile(r"(avx|amx|sse4|fma|f16c|asimd|sve|i8mm|bf16)")


def read_environment() -> dict[str, Any]:
    """Processor, its vector extensions, number of processors, system, versions and commit.

    ``id`` tells environments apart, whatever the commit.
    """
    cpu = _read_cpuinfo()
    environment: dict[str, Any] = {
        "cpu": cpu.get("model name", platform.processor() or platform.machine()),
        "flags": sorted(f for f in cpu.get("flags", cpu.get("Features", "")).split() if VECTOR_FLAGS.match(f)),
        "n_cpus": os.cpu_count(),
        "system": platform.platform(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
    }
    digest = hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest()[:8]
    return {"id": digest, **environment, "commit": read_commit()}


def _read_cpuinfo() -> dict[str, str]:
    """The first processor's entry on Linux; empty elsewhere."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").split("\n\n")[0].splitlines() if file.exists() else []
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
