"""The user's own model on the user's own samples."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Feed
from autoquant.domain.reason import one_line
from autoquant.errors import DataError
from autoquant.runtime.session import Session

__all__ = ["refuse_non_finite", "run_sample"]


def run_sample(
    session: Session, feed: Feed, sample: str, *, output_names: Sequence[str] | None = None
) -> list[npt.NDArray[np.generic]]:
    """Outputs by position.

    Args:
        session: Of the float model.
        feed: The sample.
        sample: What messages call it.
        output_names: Which outputs; all by default.

    Raises:
        DataError: onnxruntime cannot run the model on it.
    """
    try:
        return session.run(output_names, feed)
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime."):
            raise
        raise DataError(
            f"{sample}: onnxruntime cannot run the float model on it ({one_line(error)}); correct the sample, or leave"
            " it out"
        ) from error


def refuse_non_finite(outputs: Iterable[tuple[str, npt.NDArray[np.generic]]], sample: str) -> None:
    """Nothing can be compared with outputs that hold no number at all; masked places beside numbers may have none.

    Args:
        outputs: Of the float model, with their names.
        sample: What messages call it.

    Raises:
        DataError: One holds nothing but NaN or infinity.
    """
    for name, values in outputs:
        if values.dtype.kind == "f" and values.size and not np.isfinite(values).any():
            raise DataError(
                f"{sample}: the float model's output '{name}' holds NaN or infinity alone, so that nothing can be"
                " compared with it; leave the sample out, or cut the model before that output's mask or logarithm"
            )
