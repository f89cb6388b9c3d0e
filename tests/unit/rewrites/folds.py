"""What folding leaves of a model."""

import onnx

from autoquant.rewrites.affine import fold_affine
from tests.models import op_types
from tests.rewriting import rewritten

__all__ = ["assert_folds_to"]


def assert_folds_to(model: onnx.ModelProto, expected: list[str]) -> onnx.ModelProto:
    """Fold it, and run both on equal data."""
    folded = rewritten(fold_affine, model, rtol=1e-4, atol=1e-4)
    assert op_types(folded) == expected
    return folded
