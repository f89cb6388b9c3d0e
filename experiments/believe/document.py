"""The JSON files of these experiments: raw numbers, the command, the environment before and after."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autoquant.runtime.environment import describe_environment
from experiments.commit import read_commit

__all__ = ["markdown", "new_part", "place", "read_document", "share_interval", "write_part"]


def new_part(program: str, **settings: object) -> dict[str, Any]:
    """What is known before anything is measured."""
    arguments = [Path(text).name if "/" in text else text for text in sys.argv[1:]]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m", program, *arguments]),
        "commit": read_commit(),
        "settings": settings,
        "environment": describe_environment(),
    }


def write_part(path: Path, name: str, part: Mapping[str, Any]) -> None:
    """Put a part into a file in place of an older one of that name; others stay."""
    parts = {**read_document(path).get("parts", {}), name: {**part, "environment_after": describe_environment()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(path.name + ".part")
    text = json.dumps(_plain({"schema_version": 1, "parts": parts}), indent=1, allow_nan=False)
    half.write_text(text + "\n", encoding="utf-8")
    half.replace(path)


def read_document(path: Path) -> dict[str, Any]:
    """What was written; empty where nothing was."""
    with suppress(FileNotFoundError):
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return document
    return {}


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def place(environment: Mapping[str, Any]) -> str:
    """Machine and versions in a sentence."""
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return f"{environment['cpu']}, {environment['n_cores']} cores, {environment['system']}; {versions}."


def share_interval(n: int, n_all: int) -> tuple[float, float]:
    """95 % interval of a share, as if all were independent (Wilson 1927)."""
    if not n_all:
        return 0.0, 1.0
    z = 1.96
    p, scale = n / n_all, 1 + z * z / n_all
    centre, reach = p + z * z / (2 * n_all), z * math.sqrt(p * (1 - p) / n_all + z * z / (4 * n_all**2))
    return max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale)


def _plain(value: Any) -> Any:
    """Numbers that JSON doesn't know as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
