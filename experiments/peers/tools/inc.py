"""Neural Compressor 2: its basic and bayesian tuning, with the candidates that it scores."""

import logging
from collections.abc import Iterator, Sequence
from functools import partial

import onnx
from neural_compressor import quantization, set_workspace
from neural_compressor.config import AccuracyCriterion, PostTrainingQuantConfig, TuningCriterion

from experiments.peers.tools.task import ENOUGH_DB, FLOAT_DB, Score, Task, TimeIsOverError, each_within
from experiments.recipes import Feed

__all__ = ["make"]

STRATEGIES = ("basic", "bayesian")
FORMATS = ("QDQ", "QOperator")
MAX_TRIALS = 100_000


class _Loader:
    """Feeds as Neural Compressor reads them: batches with a label each."""

    batch_size = 1

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self.feeds = feeds

    def __iter__(self) -> Iterator[tuple[Feed, int]]:
        return iter([(feed, 0) for feed in self.feeds])


def make(task: Task) -> None:
    """One file a trial of each strategy and format."""
    logging.getLogger("neural_compressor").setLevel(logging.ERROR)
    set_workspace(str(task.work))
    file, feeds = task.prepared()
    model, score = onnx.load(file), Score(task, file)
    names = {f"{strategy}-{form.lower()}": (strategy, form) for strategy in STRATEGIES for form in FORMATS}
    each_within(
        task,
        {name: partial(_tune, task, score, model, feeds, name, *how) for name, how in names.items()},
    )


def _tune(
    task: Task,
    score: Score,
    model: onnx.ModelProto,
    feeds: Sequence[Feed],
    name: str,
    strategy: str,
    form: str,
    until_s: float,
) -> None:
    n_seen = 0

    def evaluate(candidate: onnx.ModelProto) -> float:
        nonlocal n_seen
        if task.spent_s > until_s:
            raise TimeIsOverError
        if n_seen:  # the first one is the float model
            task.save(f"{name}-{n_seen:03d}", candidate)
        n_seen += 1
        return score(candidate)

    config = PostTrainingQuantConfig(
        approach="static",
        quant_format=form,
        quant_level=1,  # the strategy that is named, no other one before
        calibration_sampling_size=[len(feeds)],
        accuracy_criterion=AccuracyCriterion(criterion="absolute", tolerable_loss=FLOAT_DB - ENOUGH_DB),
        tuning_criterion=TuningCriterion(
            strategy=strategy, timeout=max(1, int(until_s - task.spent_s)), max_trials=MAX_TRIALS
        ),
    )
    quantization.fit(model, config, calib_dataloader=_Loader(feeds), eval_func=evaluate)
    if n_seen < 2:
        raise RuntimeError("It scored no candidate; log.txt says why.")
