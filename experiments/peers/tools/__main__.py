"""``python -m experiments.peers.tools TOOL MODEL CALIBRATION EVALUATION OUT WORK SECONDS``: one tool on one model."""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from experiments.peers.manifest import VERSIONS
from experiments.peers.tools.task import Task

__all__ = ["main"]

PACKAGES = ("nncf", "neural-compressor", "optuna", "onnxruntime", "onnx", "numpy")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the versions, then let the tool work."""
    parser = argparse.ArgumentParser(prog="python -m experiments.peers.tools", description=__doc__)
    parser.add_argument("tool")
    for name in ("model", "calibration", "evaluation", "out", "work"):
        parser.add_argument(name, type=Path)
    parser.add_argument("seconds", type=float)
    task = Task(**vars(parser.parse_args(arguments)))
    (task.out / VERSIONS).write_text(json.dumps(_versions()), encoding="utf-8")
    module = importlib.import_module(f"experiments.peers.tools.{task.tool.replace('-', '_')}")
    module.make(task)


def _versions() -> dict[str, str]:
    installed = {found.metadata["Name"].lower().replace("_", "-"): found.version for found in metadata.distributions()}
    own = {"python": ".".join(map(str, sys.version_info[:3]))}
    return own | {name: installed[name] for name in PACKAGES if name in installed}


if __name__ == "__main__":
    main()
