"""The steps of a search, one by one, for notebooks and jobs that use a part."""

from autoquant.api.steps.biases import observe_shifts
from autoquant.api.steps.caching import cache_sentences, trim_cache, user_cache
from autoquant.api.steps.calibration import calibrate, recalibrate
from autoquant.api.steps.candidates import (
    build,
    builder_of,
    own_errors,
    planner_of,
    ranges_of,
    twins_of,
)
from autoquant.api.steps.equalisation import equalise
from autoquant.api.steps.filling import fill
from autoquant.api.steps.measurement import measure, open_bench
from autoquant.api.steps.models import example_data, model_path, read_data, running, signatures_of, some_data
from autoquant.api.steps.preparation import (
    compared,
    definition_of,
    expressible,
    find_regions,
    fitted,
    layout_of,
    least_bytes,
    prepare,
    prepare_without_data,
)
from autoquant.api.steps.probing import probe_rewrites, race
from autoquant.api.steps.rounding import round_weights

__all__ = [
    "build",
    "builder_of",
    "cache_sentences",
    "calibrate",
    "compared",
    "definition_of",
    "equalise",
    "example_data",
    "expressible",
    "fill",
    "find_regions",
    "fitted",
    "layout_of",
    "least_bytes",
    "measure",
    "model_path",
    "observe_shifts",
    "open_bench",
    "own_errors",
    "planner_of",
    "prepare",
    "prepare_without_data",
    "probe_rewrites",
    "race",
    "ranges_of",
    "read_data",
    "recalibrate",
    "round_weights",
    "running",
    "signatures_of",
    "some_data",
    "trim_cache",
    "twins_of",
    "user_cache",
]
