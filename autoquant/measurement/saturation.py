"""Whether integer kernels are exact here."""

import numpy as np

from autoquant.domain.target import Target
from autoquant.errors import TargetError
from autoquant.model.saturation import EXACT, two_products
from autoquant.runtime.session import open_session

__all__ = ["is_saturating"]


def is_saturating(target: Target) -> bool:
    """Whether the products of u8 activations and s8 weights are added in 16 bits, which the largest sums leave.

    So do x86-64 processors without VNNI. It is tried out with a product of two elements.

    Returns:
        False where the target cannot run that. It shows nothing of the order in which others than the CPU provider add.

    Raises:
        TargetError: The execution provider is not installed, or does not start.

    References:
        microsoft/onnxruntime issues #6004, #14642: equal models, other numbers on other processors.
    """
    try:
        session = open_session(two_products(), target)
        (found,) = session.run(None, {"x": np.array([[255, 255]], np.uint8)})
    except TargetError:
        raise
    except Exception:  # onnxruntime raises its own types from run
        return False
    return bool(found[0, 0] < EXACT)
