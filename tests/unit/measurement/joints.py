"""Joint measurements of small models."""

import math
import time
from pathlib import Path

from autoquant.domain.feed import Feed
from autoquant.domain.target import Target
from autoquant.measurement.files import FileBenchSetup
from autoquant.measurement.joint import JointMeasurement
from tests.models import floats

N_FEEDS = 7
FEEDS: list[Feed] = [{"x": floats(1, 3, 8, 8, seed=seed)} for seed in range(N_FEEDS)]
TARGETS = [Target(threads=1), Target(threads=2)]


def setup_of(files: dict[str, Path]) -> FileBenchSetup:
    return FileBenchSetup(baseline=files["baseline"], feeds=FEEDS, targets=TARGETS, seed=0)


def measurement(files: dict[str, Path], *, seconds: float = math.inf, n_sessions: int = 3) -> JointMeasurement:
    candidates = {key: path for key, path in files.items() if key != "baseline"}
    deadline = time.perf_counter() + seconds
    return JointMeasurement(setup_of(files), candidates, deadline, n_sessions=n_sessions)
