"""The user's own model and its samples."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autoquant.calibration.batches import read_samples
from autoquant.calibration.sources import DataSource
from autoquant.domain.arguments import check_type
from autoquant.domain.feed import InputSignature, Samples
from autoquant.domain.reason import one_line
from autoquant.errors import DataError, ModelError, UsageError
from autoquant.examples import example
from autoquant.model.io import input_signatures, load_model, non_tensors
from autoquant.model.prepared import PreparedModel
from autoquant.runtime.paths import is_text

__all__ = [
    "check_prepared_type",
    "check_samples_type",
    "example_data",
    "model_path",
    "read_data",
    "running",
    "signatures_of",
    "some_data",
]

_ROLES = ("calibration", "evaluation", "held-out")


def model_path(model: str | os.PathLike[str]) -> Path:
    """The file of a model, ``example:NAME`` for one that ships with the package.

    Raises:
        ModelError: There is no such example, or onnxruntime cannot be told of the path.
        UsageError: It is no path.
    """
    if not isinstance(model, str | os.PathLike):
        raise UsageError(
            f"the model is of type {type(model).__name__}, give the path of its file; onnx.save writes one"
        )
    text = os.fspath(model)
    if text.startswith("example:"):
        return example(text.removeprefix("example:")).model
    if not is_text(Path(text)):
        raise ModelError(f"{text}: this name is not UTF-8, as onnxruntime wants it; rename the file or its folder")
    return Path(text)


def example_data(model: str | os.PathLike[str], role: str = "calibration") -> Path | None:
    """The data that an example brings for calibration or evaluation; None for anything else, and any other model.

    Raises:
        ModelError: There is no such example.
    """
    text = os.fspath(model)
    if not text.startswith("example:"):
        return None
    own = example(text.removeprefix("example:"))
    return {"calibration": own.calibration, "evaluation": own.evaluation}.get(role)


def some_data(model: str | os.PathLike[str], role: str = "calibration") -> DataSource:
    """The data of an example where none are given.

    Raises:
        DataError: It is a model of the user's.
    """
    found = example_data(model, role)
    if found is None:
        arrays = ", ".join(f"'{signature.name}'" for signature in signatures_of(model_path(model)))
        raise DataError(f"there are no {role} data; give some as {role}, e.g. an .npz file with samples of {arrays}")
    return found


def read_data(model: str | os.PathLike[str], source: DataSource | None = None, *, role: str = "calibration") -> Samples:
    """Samples of a model, checked against its inputs.

    Args:
        model: The float model's file, or ``example:digits``.
        source: The data, see the guide; an example brings its own.
        role: What they are for, ``calibration``, ``evaluation`` or ``held-out``: for messages, and for which of its
            samples an example brings.

    Raises:
        DataError: There are none, or they do not fit the model.
        ModelError: The model cannot be read.
        UsageError: There is no such role.
    """
    if role not in _ROLES:
        raise UsageError(f"the role is {role!r}, choose from: {', '.join(_ROLES)}")
    path = model_path(model)
    source = source if source is not None else some_data(model, role)
    return read_samples(source, signatures_of(path), role=role)


def signatures_of(path: Path) -> tuple[InputSignature, ...]:
    """The inputs of a model that can be searched: it has some, and only tensors go in and come out.

    Raises:
        ModelError: It has none, or others.
    """
    model = load_model(path)
    for name in non_tensors((*model.graph.input, *model.graph.output)):
        raise ModelError(f"{path}: '{name}' is no tensor; cut the model so that only tensors go in and come out")
    found = input_signatures(model)
    if not found:
        raise ModelError(f"{path}: the model has no inputs, so there is nothing to measure; give one with inputs")
    return found


def check_prepared_type(prepared: object) -> None:
    """Whether a model was prepared.

    Raises:
        UsageError: It is a path or something else.
    """
    check_type("the model", prepared, PreparedModel, "what prepare(model, samples) gives")


def check_samples_type(samples: object) -> None:
    """Whether samples were read.

    Raises:
        UsageError: They are a path or something else.
    """
    check_type("what is given for samples", samples, Samples, "what read_data(model, source) gives")


@contextmanager
def running(path: Path) -> Iterator[None]:
    """Whatever onnxruntime raises while it runs the user's own model is about the model or the data."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime."):
            raise
        raise ModelError(f"{path}: onnxruntime cannot run it on these data: {one_line(error)}") from error
