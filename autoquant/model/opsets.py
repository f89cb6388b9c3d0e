"""Opsets of ONNX from which on operators are what rewrites take them for."""

__all__ = [
    "ATTENTION",
    "CLIP_HAS_INPUTS",
    "CLIP_TAKES_INTEGERS",
    "EXTREMES_OF_INTEGERS",
    "GEMM_WITHOUT_BIAS",
    "HARD_SWISH",
    "LIKE_ATTENTION",
    "RESIZE_HAS_REGION",
    "RESIZE_WITHOUT_REGION",
    "SLICE_HAS_INPUTS",
    "SOFTMAX_OF_ONE_AXIS",
    "SPLIT_HAS_INPUTS",
]

SLICE_HAS_INPUTS = 10
"""Before, starts and ends are attributes."""
CLIP_HAS_INPUTS = 11
"""Bounds are tensors; Max, Min and PRelu broadcast from earlier opsets on."""
GEMM_WITHOUT_BIAS = 11
"""Before, there has to be one."""
CLIP_TAKES_INTEGERS = 12
EXTREMES_OF_INTEGERS = 12
"""ReduceMax and ReduceMin take them."""
HARD_SWISH = 14
"""It is an operator."""
RESIZE_HAS_REGION = 11
"""Scales come behind it, and attributes say how places are found."""
RESIZE_WITHOUT_REGION = 13
"""Before, there has to be one, though no mode but one reads it."""
SPLIT_HAS_INPUTS = 13
"""Before, sizes are an attribute, as are the axes of Unsqueeze."""
SOFTMAX_OF_ONE_AXIS = 13
"""The last one by default, and no other; before, it is of all axes from its own on."""
LIKE_ATTENTION = 21
"""From here to the next no other operator means anything else."""
ATTENTION = 23
"""It is an operator."""
