import math
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from autoquant.api.steps import calibrate, prepare, read_data
from autoquant.domain.feed import Samples
from autoquant.domain.region import TensorName
from autoquant.errors import UsageError
from tests.models import floats, model_of, saved


def test_statistics_of_the_first_samples_are_those_of_a_calibration_that_was_cut_off_there(
    model: Path, samples: Samples, tmp_path: Path
) -> None:
    prepared = prepare(model, samples)
    cut = calibrate(prepared, samples, cache_folder=tmp_path / "cache", seconds=0)
    whole = calibrate(prepared, samples, cache_folder=tmp_path / "cache")
    again = calibrate(prepared, samples, cache_folder=tmp_path / "cache", n_samples=1)
    assert (cut.n_samples, whole.n_samples, again.n_samples) == (1, 6, 1)
    assert cut.digest == again.digest != whole.digest
    for name, found in again.tensors.items():
        np.testing.assert_array_equal(found.counts, cut.tensors[name].counts)
    assert calibrate(prepared, samples, cache_folder=tmp_path / "cache", n_samples=6).digest == whole.digest


def test_samples_that_there_is_time_for_are_spread_over_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("(float[1,4] x) => (float[1,3] y)", "y = Gemm(x, w)", {"w": floats(4, 3)})
    path, x = saved(model, tmp_path / "model.onnx"), TensorName("x")
    samples = read_data(path, {"x": np.arange(100, dtype=np.float32)[:, np.newaxis] * np.ones(4, np.float32)})
    prepared = prepare(path, samples)
    with monkeypatch.context() as patched:
        patched.setattr("autoquant.calibration.timed.time", SimpleNamespace(perf_counter=count().__next__))
        cut = calibrate(prepared, samples, cache_folder=tmp_path, seconds=7)
    assert cut.n_samples == 8
    assert cut.tensors[x].maximum > 80
    np.testing.assert_allclose(cut.channels[x].mean, 49.5, atol=10)
    again = calibrate(prepared, samples, cache_folder=tmp_path, n_samples=8)
    assert again.digest == cut.digest
    np.testing.assert_array_equal(again.tensors[x].counts, cut.tensors[x].counts)


@pytest.mark.parametrize(("seconds", "n_samples"), [(math.inf, 6), (0, 1)])
def test_activations_that_take_much_memory_are_observed_in_several_passes_over_the_same_samples(
    model: Path, samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, n_samples: int
) -> None:
    prepared, told = prepare(model, samples), list[int]()
    at_once = calibrate(prepared, samples, cache_folder=tmp_path / "once", n_samples=n_samples)
    monkeypatch.setattr("autoquant.api.steps.passes._PASS_BYTES", 1)
    found = calibrate(prepared, samples, cache_folder=tmp_path / "often", seconds=seconds, on_sample=told.append)
    assert (found.n_samples, found.digest) == (n_samples, at_once.digest)
    assert told == list(range(1, n_samples + 1))
    assert found.tensors.keys() == at_once.tensors.keys()
    for name, one in at_once.tensors.items():
        np.testing.assert_array_equal(found.tensors[name].counts, one.counts)
        assert (found.tensors[name].minimum, found.tensors[name].maximum) == (one.minimum, one.maximum)
    assert found.channels.keys() == at_once.channels.keys()
    for name, channels in at_once.channels.items():
        np.testing.assert_array_equal(found.channels[name].mean, channels.mean)


def test_samples_whose_feeds_were_replaced_are_refused_and_leave_the_cache(tmp_path: Path) -> None:
    path = saved(model_of("(float[1,4] x) => (float[1,4] y)", "y = Relu(x)"), tmp_path / "model.onnx")
    samples = read_data(path, {"x": floats(6, 4)})
    prepared = prepare(path, samples)
    larger = [{"x": 9 * feed["x"]} for feed in samples.feeds]
    for feeds in (samples.feeds[:2], larger, []):
        with pytest.raises(
            UsageError, match="feeds of the samples are others than those that were read; give read_data"
        ):
            calibrate(prepared, replace(samples, feeds=feeds), cache_folder=tmp_path)
    parts = {name: getattr(samples, name)[:2] for name in ("feeds", "feed_digests", "names")}
    assert calibrate(prepared, replace(samples, **parts), cache_folder=tmp_path).n_samples == 2
    assert calibrate(prepared, samples, cache_folder=tmp_path).n_samples == 6
    with pytest.raises(UsageError, match="the number of samples is 0, give 1 or more"):
        calibrate(prepared, samples, cache_folder=tmp_path, n_samples=0)
