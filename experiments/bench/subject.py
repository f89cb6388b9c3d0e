"""A model of the zoo with all that a search makes of it once, from autoquant's public steps."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autoquant import Target
from autoquant.api import steps
from autoquant.domain.feed import Samples
from autoquant.domain.region import Assignment, Region
from autoquant.domain.space import SearchSpace, SpaceDefinition
from autoquant.domain.statistics import Statistics
from autoquant.measurement.bench import Bench
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder
from autoquant.space.resolve import resolve

__all__ = ["Subject", "new_assignments", "open_subject"]

SPACE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What the parts of the benchmark share.

    Attributes:
        folder: Holds ``model.onnx``, ``calib.npz``, ``eval.npz``.
        calibration: Samples.
        prepared: The preprocessed model.
        definition: The space file.
        regions: The partition.
        statistics: Of the calibration samples.
        space: What each region may take.
        bench: On the CPU provider, one thread.
    """

    folder: Path
    calibration: Samples
    prepared: PreparedModel
    definition: SpaceDefinition
    regions: tuple[Region, ...]
    statistics: Statistics
    space: SearchSpace
    bench: Bench

    @property
    def model(self) -> Path:
        """The float model's file."""
        return self.folder / "model.onnx"

    def new_builder(self) -> Builder:
        """One that has no weight quantized and no range chosen yet."""
        return steps.builder_of(self.prepared, self.regions, self.statistics, space=self.definition)

    def uniform_assignments(self) -> list[Assignment]:
        """Each scheme wherever it is allowed: together they need every weight in every format."""
        return [self.space.uniform(name) for name in self.space.schemes]


def open_subject(folder: Path, cache: Path) -> Subject:
    """Do what a search does before its first trial.

    Args:
        folder: Of the model.
        cache: For the statistics.
    """
    model = folder / "model.onnx"
    definition = steps.definition_of(SPACE, "cpu")
    calibration = steps.read_data(model, folder / "calib.npz")
    evaluation = steps.read_data(model, folder / "eval.npz", role="evaluation")
    prepared = steps.prepare(model, calibration)
    regions = steps.find_regions(prepared, space=definition)
    return Subject(
        folder=folder,
        calibration=calibration,
        prepared=prepared,
        definition=definition,
        regions=regions,
        statistics=steps.calibrate(prepared, calibration, space=definition, cache_folder=cache),
        space=resolve(definition, regions),
        bench=Bench(model, (Target("cpu", threads=1),), tuple(evaluation.feeds)),
    )


def new_assignments(space: SearchSpace, seed: int = 0) -> Iterator[Assignment]:
    """Random assignments, no two alike; endless in a space that is large enough."""
    rng, seen = random.Random(seed), set()
    while True:
        names = tuple(rng.choice(choices) for choices in space.choices.values())
        if names not in seen:
            seen.add(names)
            yield dict(zip(space.choices, names, strict=True))
