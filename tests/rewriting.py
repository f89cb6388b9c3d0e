"""What every rewrite promises, checked."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from tests.models import Array, feed_of, outputs_of

__all__ = ["rewritten"]


def rewritten(
    rewrite: Callable[[onnx.ModelProto], onnx.ModelProto],
    model: onnx.ModelProto,
    feed: Mapping[str, Array] | None = None,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> onnx.ModelProto:
    """A valid model with the same outputs, or the given one where nothing changes; that stays as it was.

    Args:
        rewrite: What is checked.
        model: Of inputs of known size, unless they are fed.
        feed: By default normal numbers.
        rtol: How far outputs may be apart, relative to what they were.
        atol: How far besides.
    """
    before = model.SerializeToString(deterministic=True)
    found = rewrite(model)
    assert model.SerializeToString(deterministic=True) == before
    assert (found is model) is (found == model)
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(found, strict_mode=True), full_check=True)
    given = feed_of(model) if feed is None else feed
    for was, now in zip(outputs_of(model, given), outputs_of(found, given), strict=True):
        np.testing.assert_allclose(now, was, rtol=rtol, atol=atol, strict=True)
    return found
