from pathlib import Path

import numpy as np

from autoquant.api.steps import measure, open_bench, signatures_of
from autoquant.calibration.batches import read_samples
from autoquant.domain.feed import Samples
from autoquant.domain.measurement import Failure
from autoquant.domain.target import Target
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
