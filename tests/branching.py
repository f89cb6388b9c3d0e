"""Tiny models that an input decides of."""

from collections.abc import Mapping

import numpy as np
import onnx

from tests.models import Array, floats, model_of

__all__ = ["RATE", "a_branching_model", "feed_at", "two_branches"]

RATE = 16
"""For which the first branch runs."""


def two_branches(first: str, second: str, y: str = "y", condition: str = "c", ends: str = "te") -> str:
    """An If as text, of which bodies write what ``ends`` says."""
    texts = zip(("then", "else"), ends, (first, second), strict=True)
    bodies = ", ".join(f"{kind}_branch = {kind} () => (float[M,K] {end}) {{ {text} }}" for kind, end, text in texts)
    return f"{y} = If({condition}) <{bodies}>"


def a_branching_model(
    *, opset: int = 21, signature: str = "(float[N,8] x, int64 rate) => (float[N,4] y)"
) -> onnx.ModelProto:
    """Two layers where ``rate`` is ``RATE``, another one where it is not."""
    first = "h = Gemm(x, w, b) r = Relu(h) t = Gemm(r, v)"
    constants: Mapping[str, Array | float] = {
        "k": np.array(RATE),
        "w": floats(8, 6, scale=0.4),
        "b": floats(6),
        "v": floats(6, 4, scale=0.4),
        "u": floats(8, 4, seed=1),
    }
    body = f"c = Equal(rate, k) {two_branches(first, 'e = Gemm(x, u)')}"
    return model_of(signature, body, constants, opset=opset)


def feed_at(rate: int, n: int = 2, seed: int = 0) -> dict[str, Array]:
    """A sample of it."""
    return {"x": floats(n, 8, seed=seed), "rate": np.array(rate)}
