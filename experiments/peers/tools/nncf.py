"""NNCF: ``quantize`` with both presets, and ``quantize_with_accuracy_control`` with its candidates."""

import logging
from collections.abc import Callable, Sequence

import nncf
import onnx

from experiments.peers.tools.task import ENOUGH_DB, FLOAT_DB, Score, Task, TimeIsOverError, each_within

__all__ = ["make"]

PRESETS = (nncf.QuantizationPreset.PERFORMANCE, nncf.QuantizationPreset.MIXED)
BIASES = {"fast": True, "slow": False}
"""Bias correction, by the value of ``fast_bias_correction``."""


def make(task: Task) -> None:
    """One file a preset and bias correction, one for transformers, and one a candidate of each accuracy control."""
    nncf.set_log_level(logging.ERROR)
    file, feeds = task.prepared()
    model, samples = onnx.load(file), nncf.Dataset(feeds)
    score = Score(task, file)

    def quantize(name: str, **options: object) -> Callable[[float], object]:
        return lambda _: task.save(name, nncf.quantize(model, samples, subset_size=len(feeds), **options))

    def control(name: str, preset: nncf.QuantizationPreset) -> Callable[[float], object]:
        return lambda until_s: nncf.quantize_with_accuracy_control(
            model,
            calibration_dataset=samples,
            validation_dataset=nncf.Dataset(list(range(len(score.feeds))), lambda i: score.feeds[i]),
            validation_fn=_Validation(task, score, name, until_s),
            max_drop=FLOAT_DB - ENOUGH_DB,
            drop_type=nncf.DropType.ABSOLUTE,
            preset=preset,
            subset_size=len(feeds),
            advanced_accuracy_restorer_parameters=nncf.AdvancedAccuracyRestorerParameters(num_ranking_workers=1),
        )

    variants = {
        f"{preset.value}-{bias}": quantize(f"{preset.value}-{bias}", preset=preset, fast_bias_correction=is_fast)
        for bias, is_fast in BIASES.items()
        for preset in PRESETS
    }
    variants["transformer"] = quantize("transformer", model_type=nncf.ModelType.TRANSFORMER)
    variants |= {f"{preset.value}-control": control(f"{preset.value}-control", preset) for preset in PRESETS}
    each_within(task, variants)


class _Validation:
    """Scores what NNCF asks for, and saves each model that it asks for on all samples.

    These are the models that rank the operators, with one group of them in float, and the steps of the greedy search.
    """

    def __init__(self, task: Task, score: Score, variant: str, until_s: float) -> None:
        self.task, self.score, self.variant, self.until_s = task, score, variant, until_s
        self.n_saved = 0

    def __call__(self, model: onnx.ModelProto, indices: Sequence[int]) -> tuple[float, list[float]]:
        if self.task.spent_s > self.until_s:
            raise TimeIsOverError
        indices = list(indices)
        if len(indices) == len(self.score.feeds):
            self.task.save(f"{self.variant}-{self.n_saved:03d}", model)
            self.n_saved += 1
        return self.score.of_samples(model, indices)
