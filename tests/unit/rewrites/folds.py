"""What folding leaves of a model."""

import numpy as np
import onnx

from autoquant.rewrites.affine import fold_affine
from tests.models import feed_of, op_types, outputs_of

__all__ = ["assert_folds_to"]


def assert_folds_to(model: onnx.ModelProto, expected: list[str]) -> onnx.ModelProto:
    """Fold it, and run both on equal data."""
    folded = fold_affine(model)
    assert op_types(folded) == expected
    feed = feed_of(model)
    for before, after in zip(outputs_of(model, feed), outputs_of(folded, feed), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)
    return folded
