"""What is predicted of an assignment."""

from typing import Any

from autoquant.domain.region import RegionId
from autoquant.study.demand import Predicted

__all__ = ["a_prediction"]


def a_prediction(**changes: Any) -> Predicted:
    """On one target, after 14 trials."""
    predicted: dict[str, Any] = {
        "assignment": {RegionId("r0"): "u8s8"},
        "snr_db": 36.0,
        "snr_error_db": 0.5,
        "ratios": (0.5,),
        "ratio_errors": (0.01,),
        "n_trials": 14,
        "is_proven": True,
    }
    return Predicted(**(predicted | changes))
