"""A small model with what its candidates are built from."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from autoquant.api import steps
from autoquant.api.evaluator_setup import EvaluatorSetup
from autoquant.api.ingredients import Ingredients
from autoquant.domain.measurement import Failure, Measurement
from autoquant.domain.region import Assignment
from autoquant.domain.target import Target
from autoquant.metrics.grammar import parse_metrics
from autoquant.space.schema import read_space
from tests.models import a_convnet, floats, saved

N_SAMPLES = 24
TOP1 = parse_metrics(["top1"])


class Place:
    """A model and everything that its candidates are built from."""

    def __init__(self, folder: Path) -> None:
        model = saved(a_convnet(), folder / "model.onnx")
        data = np.concatenate([floats(1, 3, 8, 8, seed=s) for s in range(N_SAMPLES)])
        samples = steps.read_data(model, {"x": data, "label": np.zeros(N_SAMPLES)})
        prepared = steps.prepare(model, samples)
        definition = read_space("default", ep="cpu")
        regions = steps.find_regions(prepared, space=definition)
        statistics = steps.calibrate(prepared, samples, space=definition, cache_folder=folder)
        self.ingredients = Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=definition)
        self.setup = EvaluatorSetup(model=model, samples=samples, targets=(Target(),), seed=0)
        names = [scheme.name for scheme in definition.schemes]
        self.quantized: list[Assignment] = [{region.id: name for region in regions} for name in names[:6]]

    def outcomes(self, *metrics: str, has_drops: bool = True) -> list[Measurement | Failure]:
        evaluator = replace(self.setup, metrics=parse_metrics(metrics), has_drops=has_drops)()
        evaluator.load(self.ingredients, rewrites=frozenset(), known=())
        return [evaluator.evaluate(assignment, 6).outcome for assignment in ({}, *self.quantized)]
