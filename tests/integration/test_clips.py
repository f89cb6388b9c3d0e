"""Relu and Clip in a row, and before masks."""

from pathlib import Path

import numpy as np
import pytest

from autoquant.api import steps
from autoquant.model.fragments import inline_external
from autoquant.space.schema import read_space
from tests.graphs import run
from tests.models import Array, floats, model_of, saved


@pytest.mark.parametrize(
    "body",
    [
        "a = Conv(x, w) r = Relu(a) c = Clip(r, low, high) y = Conv(c, w)",
        "a = Conv(x, w) r = Clip(a, low) c = Clip(r, , high) y = Conv(c, w)",
        "a = Add(x, x) r = Relu(a) c = Relu(r) y = Conv(c, w)",
        "a = Conv(x, w) c = Clip(a, far) p = Softmax(c) y = Conv(p, w)",
    ],
)
def test_whatever_is_clipped_in_a_row_every_recipe_is_built_and_runs(body: str, tmp_path: Path) -> None:
    constants: dict[str, Array | float] = {"w": floats(4, 4, 1, 1), "low": 0.0, "high": 6.0, "far": -65504.0}
    model = saved(model_of("(float[1,4,6,6] x) => (float[1,4,6,6] y)", body, constants), tmp_path / "model.onnx")
    samples = steps.read_data(model, {"x": np.concatenate([3000 * floats(1, 4, 6, 6, seed=s) for s in range(3)])})
    prepared = steps.prepare(model, samples)
    regions = steps.find_regions(prepared)
    statistics = steps.calibrate(prepared, samples, cache_folder=tmp_path)
    builder = steps.builder_of(prepared, regions, statistics)
    for scheme in read_space("default", ep="cpu").schemes:
        candidate = builder.build({region.id: scheme.name for region in regions})
        run(inline_external(candidate.skeleton, candidate.constants, {}), samples.feeds[0])
