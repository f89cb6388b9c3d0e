"""Accuracy-latency auto-tuning of mixed-precision QDQ models for onnxruntime."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoquant.api.comparison import compare
    from autoquant.api.configuration import Budget, Demands
    from autoquant.api.finished import load_result
    from autoquant.api.inspect import inspect_model
    from autoquant.api.resolve import resolve
    from autoquant.api.result import SearchResult
    from autoquant.api.sampler import StructureSampler
    from autoquant.api.search import search
    from autoquant.api.steps import build, calibrate, find_regions, measure, open_bench, prepare, read_data
    from autoquant.domain.measurement import Failure
    from autoquant.domain.target import Target
    from autoquant.errors import AutoquantError
    from autoquant.model.dequantized import float_model
    from autoquant.runtime.overrides import load_overrides

__all__ = [
    "AutoquantError",
    "Budget",
    "Demands",
    "Failure",
    "SearchResult",
    "StructureSampler",
    "Target",
    "build",
    "calibrate",
    "compare",
    "find_regions",
    "float_model",
    "inspect_model",
    "load_overrides",
    "load_result",
    "measure",
    "open_bench",
    "prepare",
    "read_data",
    "resolve",
    "search",
]

_HOMES = {
    "AutoquantError": "errors",
    "compare": "api.comparison",
    "Budget": "api.configuration",
    "Demands": "api.configuration",
    "SearchResult": "api.result",
    "StructureSampler": "api.sampler",
    "Failure": "domain.measurement",
    "Target": "domain.target",
    "float_model": "model.dequantized",
    "inspect_model": "api.inspect",
    "load_overrides": "runtime.overrides",
    "load_result": "api.finished",
    "resolve": "api.resolve",
    "search": "api.search",
    **dict.fromkeys(
        ("build", "calibrate", "find_regions", "measure", "open_bench", "prepare", "read_data"), "api.steps"
    ),
}


def __getattr__(name: str) -> object:
    """Load a public name at its first use, so that ``autoquant --help`` answers at once."""
    if name == "__version__":
        return import_module("importlib.metadata").version("autoquant")
    if name not in _HOMES:
        raise AttributeError(f"module 'autoquant' has no attribute '{name}'")
    return getattr(import_module(f"autoquant.{_HOMES[name]}"), name)
