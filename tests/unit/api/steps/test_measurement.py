from pathlib import Path

import numpy as np
import pytest

from autoquant.api.steps import build, calibrate, find_regions, measure, open_bench, prepare, signatures_of
from autoquant.calibration.batches import read_samples
from autoquant.domain.feed import Samples
from autoquant.domain.measurement import Failure
from autoquant.domain.target import Target
from autoquant.errors import UsageError
from autoquant.measurement.bench import Bench
from autoquant.qdq.candidate import Candidate


def test_a_bench_holds_its_samples_in_memory(model: Path, samples: Samples, tmp_path: Path) -> None:
    lazy = read_samples(tmp_path / "data.npz", signatures_of(model), role="evaluation", held_bytes=0)
    bench = open_bench(model, lazy)
    (tmp_path / "data.npz").unlink()
    for feed, expected in zip(bench.feeds, samples.feeds, strict=True):
        np.testing.assert_array_equal(feed["x"], expected["x"])


def test_a_candidate_that_cannot_be_opened_is_a_failure(model: Path, samples: Samples) -> None:
    broken = Candidate(
        skeleton=b"nothing", constants={}, variants={}, integer_nodes=frozenset(), float_nodes=frozenset()
    )
    outcome = measure(Bench(model, [Target()], samples.feeds), broken, {}, ())
    assert isinstance(outcome, Failure)
    assert outcome.stage == "open"
    assert "onnxruntime cannot open it" in outcome.reason


def test_a_candidate_of_another_assignment_is_not_measured(model: Path, samples: Samples, tmp_path: Path) -> None:
    prepared = prepare(model, samples)
    regions = find_regions(prepared)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path / "cache")
    assignment = {regions[0].id: "u8s8-channel-mse"}
    candidate, bench = build(prepared, regions, statistics, assignment), open_bench(model, samples)
    with pytest.raises(UsageError, match=f"quantizes region '{regions[0].id}', which the assignment leaves float"):
        measure(bench, candidate, {}, regions)
    found = measure(bench, candidate, assignment, regions, n_rounds=0)
    assert not isinstance(found, Failure)
    assert found.effective == {**{region.id: "float" for region in regions}, **assignment}


def test_what_a_notebook_shows_of_each_step_is_short(model: Path, samples: Samples, tmp_path: Path) -> None:
    prepared = prepare(model, samples)
    regions = find_regions(prepared)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path / "cache")
    candidate, bench = build(prepared, regions, statistics, {}), open_bench(model, samples)
    for shown in (samples, prepared, statistics, candidate, bench):
        assert len(repr(shown)) < 1500
