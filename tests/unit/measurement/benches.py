"""Candidates whose noise is known, for benches of a small model."""

from collections.abc import Callable

import numpy as np
import onnx

from autoquant.domain.feed import Feed
from autoquant.domain.quality import snr_db
from autoquant.domain.target import Target
from autoquant.measurement.bench import Bench, Progress
from autoquant.measurement.latency import Outputs
from tests.fakes import FakeSession
from tests.models import floats

N_FEEDS = 24
NAME = Target().name
FEEDS: list[Feed] = [{"x": floats(1, 3, 8, 8, seed=seed)} for seed in range(N_FEEDS)]

Noise = Callable[[int], float]


def always(progress: Progress) -> bool:
    return True


def noisy(bench: Bench, noise: Noise, log: list[tuple[str, Feed]] | None = None) -> dict[str, FakeSession]:
    """A candidate whose outputs are the reference, each element ``noise(sample)`` too large."""
    reference = {
        id(feed): (i, outputs) for i, (feed, outputs) in enumerate(zip(bench.feeds, bench.reference, strict=True))
    }

    def compute(feed: Feed) -> Outputs:
        i, outputs = reference[id(feed)]
        return [np.asarray(out, np.float64) + noise(i) for out in outputs]

    return {NAME: FakeSession(compute, log=[] if log is None else log)}


def true_db(bench: Bench, noise: Noise) -> float:
    """Of the first output."""
    signal = sum(float(np.square(out, dtype=np.float64).sum()) for (out, *_) in bench.reference)
    return snr_db(signal, sum(out.size * noise(i) ** 2 for i, (out, *_) in enumerate(bench.reference)))


def teach(bench: Bench, noise: Noise) -> None:
    for _ in range(4):
        bench.measure(noisy(bench, noise), 6, always)


def in_seven(i: int) -> float:
    return 0.3 if i == 7 else 0.001


def skeleton_of(model: onnx.ModelProto) -> bytes:
    return model.SerializeToString()
