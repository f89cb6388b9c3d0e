"""How near a preprocessed model is to the user's file, on a few of the user's samples."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Feed, sample_name
from autoquant.domain.quality import QualityMeter, heard
from autoquant.domain.reason import one_line
from autoquant.domain.target import Target
from autoquant.errors import ModelError
from autoquant.model.copies import Model, in_parts
from autoquant.model.io import output_dtypes
from autoquant.model.numbers import number_outputs
from autoquant.runtime.samples import run_sample
from autoquant.runtime.session import Session, open_parts

__all__ = ["Likeness", "Reference", "keeps_outputs", "likeness_of", "reference_of"]

_EQUAL_DB = 60.0
_EQUAL_HALVES_DB = 40.0
"""Where tensors of the user's file are float16, which rounds to 11 bits."""
_EQUAL_LABELS_DB = 40.0
"""One element in ten thousand: where two scores are nearly equal any rounding makes another label."""
_N_CHECKED = 3
_CHECKING_S = 1.0
"""For running the original on them; a slow model is checked on fewer."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What the user's file wrote on a few feeds, and seconds of the shortest run."""

    feeds: Sequence[Feed]
    outputs: Sequence[Sequence[npt.NDArray[np.generic]]]
    least_s: float


@dataclass(frozen=True, slots=True)
class Likeness:
    """By the names of ``PreparedModel``."""

    difference_db: float
    latency_ratio: float


def keeps_outputs(model: Model, difference_db: float, *, from_halves: bool) -> bool:
    """Whether a preprocessed model is so near to the original that it can stand for it.

    Args:
        model: The preprocessed model.
        difference_db: SNR of its outputs against those of the original.
        from_halves: Whether tensors of the original are float16.
    """
    dtypes = output_dtypes(model)
    is_float = any("float" in dtypes.get(value.name, "float") for value in model.graph.output)
    if not is_float and not number_outputs(model):
        return difference_db >= _EQUAL_LABELS_DB
    return difference_db >= (_EQUAL_HALVES_DB if from_halves else _EQUAL_DB)


def reference_of(session: Session, feeds: Sequence[Feed], names: Sequence[str] = ()) -> Reference:
    """Of the first few feeds; after some seconds of fewer, but not of none.

    Args:
        session: Of the user's file.
        feeds: Real inputs.
        names: What messages call them; their places by default.

    Raises:
        DataError: The file cannot be run on one of them.
    """
    found: list[list[npt.NDArray[np.generic]]] = []
    least_s, end = math.inf, time.perf_counter() + _CHECKING_S
    for i, feed in enumerate(feeds[:_N_CHECKED]):
        start = time.perf_counter()
        if found and start > end:
            break
        found.append(run_sample(session, feed, sample_name(names, i)))
        least_s = min(least_s, time.perf_counter() - start)
    return Reference(tuple(feeds[: len(found)]), found, least_s)


def likeness_of(model: Model, reference: Reference) -> Likeness:
    """Run a preprocessed model on the same feeds.

    Raises:
        ModelError: It cannot be run.
    """
    session = open_parts(*in_parts(model), Target())
    names = [value.name for value in model.graph.output]
    meter, least_s = QualityMeter(names, heard(number_outputs(model), names, reference.outputs)), math.inf
    for expected, feed in zip(reference.outputs, reference.feeds, strict=True):
        start = time.perf_counter()
        try:
            outputs = session.run(None, feed)
        except Exception as error:  # onnxruntime raises its own types from run
            raise ModelError(f"model: onnxruntime cannot run it on these data: {one_line(error)}") from error
        least_s = min(least_s, time.perf_counter() - start)
        meter.add(expected, outputs)
    return Likeness(meter.quality().worst_db, least_s / reference.least_s if reference.outputs else 1.0)
