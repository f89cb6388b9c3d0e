from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from autoquant.api.steps import (
    builder_of,
    calibrate,
    find_regions,
    open_bench,
    prepare,
    probe_residual_norms,
    read_data,
)
from autoquant.domain.feed import Samples
from autoquant.measurement.bench import Bench
from autoquant.measurement.latency import Timings
from autoquant.qdq.builder import Builder
from tests.models import floats, model_of, saved


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An Add that onnxruntime fuses with the LayerNormalization behind it."""
    made = model_of(
        "(float[1,6,8] x) => (float[1,6,8] y)",
        "a = MatMul(x, w) s = Add(a, x) y = LayerNormalization(s, gamma, beta)",
        {"w": floats(8, 8), "gamma": np.ones(8, np.float32), "beta": np.zeros(8, np.float32)},
    )
    return saved(made, tmp_path / "model.onnx")


@pytest.fixture
def samples(model: Path) -> Samples:
    return read_data(model, {"x": floats(3, 6, 8)})


@pytest.fixture
def builder(model: Path, samples: Samples, tmp_path: Path) -> Builder:
    prepared = prepare(model, samples)
    return builder_of(prepared, find_regions(prepared), calibrate(prepared, samples, cache_folder=tmp_path))


def timings_of(ratios: Sequence[float]) -> Timings:
    timings = Timings()
    for ratio in ratios:
        timings.add([ratio], [1.0])
    return timings


@pytest.mark.parametrize(
    ("ratios", "told"),
    [
        ({"cpu-1t": [0.8] * 5}, "0.800"),
        ({"cpu-1t": [1.2] * 5}, None),
        ({"cpu-1t": [0.8] * 5, "cpu-2t": [0.9] * 5}, "0.900"),
        ({"cpu-1t": [0.8] * 5, "cpu-2t": [1.2] * 5}, None),
        ({"cpu-1t": [0.4, 0.6, 0.8, 1.0, 1.2]}, None),
    ],
)
def test_sums_are_plain_where_they_are_surely_faster_on_every_target(
    model: Path,
    samples: Samples,
    builder: Builder,
    monkeypatch: pytest.MonkeyPatch,
    ratios: dict[str, list[float]],
    told: str | None,
) -> None:
    found = {name: timings_of(each) for name, each in ratios.items()}
    monkeypatch.setattr(Bench, "compare", lambda *_: found)
    sentence = probe_residual_norms(builder, open_bench(model, samples))
    assert builder.has_plain_sums is (told is not None)
    assert sentence == (
        told and f"Add before LayerNormalization is written as Sum: float takes {told} of what the fused form takes"
    )
