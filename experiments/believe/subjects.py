"""Models that are measured, with their data."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from autoquant.examples import EXAMPLES, example

__all__ = ["Subject", "subject_of"]

_PREFIX = "example:"


@dataclass(frozen=True, slots=True)
class Subject:
    """A float model.

    Attributes:
        name: Of the example or of the zoo's folder.
        model: Its file.
        calibration: Samples to calibrate with.
        evaluation: Samples to run.
    """

    name: str
    model: Path
    calibration: Path
    evaluation: Path


def subject_of(text: str) -> Subject:
    """``example:digits``, or a folder that ``experiments.zoo`` made; for argparse.

    Raises:
        argparse.ArgumentTypeError: There is no such model.
    """
    if text.startswith(_PREFIX):
        name = text.removeprefix(_PREFIX)
        if name not in EXAMPLES:
            raise argparse.ArgumentTypeError(f"there is no example '{name}', there is {', '.join(EXAMPLES)}")
        found = example(name)
        return Subject(name, found.model, found.calibration, found.evaluation)
    folder = Path(text).expanduser().resolve()
    if not (folder / "model.onnx").is_file():
        raise argparse.ArgumentTypeError(f"{folder} has no model.onnx: make it with python -m experiments.zoo")
    return Subject(folder.name, folder / "model.onnx", folder / "calib.npz", folder / "eval.npz")
