"""Files of overrides as onnxruntime's quantizer takes them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autoquant.domain.arguments import check_path
from autoquant.domain.reason import one_line
from autoquant.errors import ModelError

__all__ = ["load_overrides"]

_NUMPY = {"QInt8": np.int8, "QUInt8": np.uint8, "QInt16": np.int16, "QUInt16": np.uint16}


def load_overrides(path: str | os.PathLike[str]) -> dict[str, list[dict[str, Any]]]:
    """Read ``models/*.overrides.json`` for ``quantize_static(extra_options={"TensorQuantOverrides": ...})``.

    JSON has neither enumerations nor sets nor typed scalars; onnxruntime accepts nothing else.

    Raises:
        ModelError: The file is missing or no JSON, or names an unknown type.
        UsageError: It is no path.
    """
    check_path("the overrides", path, is_needed=True)
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return {tensor: [_typed(override) for override in overrides] for tensor, overrides in content.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path}: these are no tensor overrides ({one_line(error)}); give a models/*.overrides.json of a run"
        ) from error


def _typed(override: Mapping[str, Any]) -> dict[str, Any]:
    from onnxruntime.quantization import QuantType  # noqa: PLC0415 - takes long, and only a warm start needs it

    typed = dict(override)
    if "quant_type" in typed:
        typed["quant_type"] = QuantType[override["quant_type"]]
    if "zero_point" in typed:
        typed["zero_point"] = np.array(override["zero_point"], _NUMPY[override["quant_type"]])
    typed.update({key: np.array(override[key], np.float32) for key in ("scale", "rmin", "rmax") if key in override})
    if "recv_nodes" in typed:
        typed["recv_nodes"] = set(override["recv_nodes"])
    if "convert" in typed:
        typed["convert"] = _typed(override["convert"])
    return typed
