"""Models and data that ship with the package, made by ``python -m experiments.digits``.

``digits``: images from scikit-learn's ``load_digits``, the test part of E. Alpaydin and C. Kaynak, "Optical Recognition
of Handwritten Digits", UCI Machine Learning Repository, 1998.
"""

from dataclasses import dataclass
from pathlib import Path

from autoquant.errors import ModelError

__all__ = ["EXAMPLES", "Example", "example"]

EXAMPLES: tuple[str, ...] = ("digits",)
"""Names of the examples; the command line takes them as ``example:NAME``."""

_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A float model with its own labelled data.

    The data are ``.npz`` files with one array per model input, samples along axis 0, and ``label``, the class of each
    sample. No sample is in both.

    Attributes:
        model: The ``.onnx`` file.
        calibration: Samples from the training data.
        evaluation: Samples that the model was not trained on.
    """

    model: Path
    calibration: Path
    evaluation: Path


def example(name: str) -> Example:
    """Find an embedded example.

    Args:
        name: One of ``EXAMPLES``.

    Returns:
        Its files, in the installed package.

    Raises:
        ModelError: There is no example of that name.
    """
    if name not in EXAMPLES:
        raise ModelError(f"example '{name}' is unknown, there is: {', '.join(EXAMPLES)}")
    return Example(
        model=_FOLDER / f"{name}.onnx",
        calibration=_FOLDER / f"{name}_calibration.npz",
        evaluation=_FOLDER / f"{name}_evaluation.npz",
    )
