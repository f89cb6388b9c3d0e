"""The loop that one would write without autoquant: Optuna's multi-objective TPE over ``quantize_static``.

``python -m experiments.bench.optuna_loop MODEL CALIBRATION EVALUATION OUT [--time 180]`` gives Conv, Gemm, MatMul
and ConvTranspose a switch each, and all one activation and weight type, scale, symmetry, calibration method and scope.
Each trial calibrates, quantizes, opens and measures on one thread: SNR on all evaluation samples, latency ratio as the
median of 9 interleaved rounds. The models of its front stay in OUT; the last line is JSON with trials and seconds.
"""

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import optuna
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

from experiments.recipes import Feed, Reader, prepare, read_feeds, silence
from experiments.remeasure import open_session, worst_snr_db

__all__ = ["WEIGHTED", "Front", "plain_trial", "prepare_plainly", "run_loop"]

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
N_ROUNDS = 9
SWITCH = "quantize/"


@dataclass(slots=True)
class Front:
    """Files that no other one beats; the beaten ones are deleted."""

    members: list[tuple[float, float, Path]] = field(default_factory=list)

    def add(self, snr_db: float, ratio: float, path: Path) -> None:
        """Keep the file and drop those that it beats, or delete it."""
        if any(s >= snr_db and r <= ratio for s, r, _ in self.members):
            path.unlink()
            return
        for worse in [m for m in self.members if m[0] <= snr_db and m[1] >= ratio]:
            worse[2].unlink()
            self.members.remove(worse)
        self.members.append((snr_db, ratio, path))


def prepare_plainly(model: Path, calibration: Path, folder: Path) -> tuple[Path, list[Feed]]:
    """The model as onnxruntime advises to prepare it, and the feeds that calibrate."""
    feeds = read_feeds(calibration, onnx.load(model, load_external_data=False))
    return prepare(model, feeds[0], folder), feeds


def plain_trial(
    prepared: Path,
    path: Path,
    feeds: Sequence[Feed],
    *,
    excluded: Sequence[str],
    method: str = "MinMax",
    activation: str = "QUInt8",
    weight: str = "QInt8",
    per_channel: bool = True,
    symmetric: bool = False,
    scope: str = "core",
) -> Any:
    """``quantize_static`` and a session.

    Args:
        prepared: Float model.
        path: For the quantized one.
        feeds: Calibration samples.
        excluded: Nodes that stay float.
        method: Name of a ``CalibrationMethod``.
        activation: Name of a ``QuantType``.
        weight: Name of a ``QuantType``.
        per_channel: Whether each channel of a weight has a scale of its own.
        symmetric: Whether activations are.
        scope: ``core`` for weighted operators, Relu and Clip, ``all`` for what onnxruntime quantizes by default.
    """
    with silence():
        quantize_static(
            prepared,
            path,
            Reader(feeds),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType[activation],
            weight_type=QuantType[weight],
            per_channel=per_channel,
            calibrate_method=CalibrationMethod[method],
            nodes_to_exclude=list(excluded),
            op_types_to_quantize=[*WEIGHTED, "Relu", "Clip"] if scope == "core" else None,
            extra_options={"ActivationSymmetric": symmetric, "WeightSymmetric": weight == "QInt8"},
        )
    return open_session(path, 1)


def run_loop(
    model: Path, calibration: Path, evaluation: Path, out: Path, *, seconds: float, front: Front | None = None
) -> dict[str, Any]:
    """Optimize for about this long, one trial at least; the one that runs when the time is over is finished.

    Args:
        model: Float model.
        calibration: ``.npz`` with one array an input, samples along axis 0.
        evaluation: The same, to measure with.
        out: Folder for the files; made where it is missing.
        seconds: After which no trial begins.
        front: What is told of each file; an empty one, unless it is given.

    Returns:
        ``n_trials`` that were measured, ``n_failed``, ``seconds``, and the front as ``[snr_db, ratio, file name]``.
    """
    start = time.perf_counter()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="loop-") as folder:
        prepared, feeds = prepare_plainly(model, calibration, Path(folder))
        objective = _Objective(prepared, feeds, evaluation, out, front or Front())
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=optuna.samplers.TPESampler(seed=0))
        study.enqueue_trial(objective.first())
        study.optimize(objective, n_trials=1)
        while time.perf_counter() - start < seconds:
            study.optimize(objective, n_trials=1)
    n_measured = sum(trial.state is optuna.trial.TrialState.COMPLETE for trial in study.trials)
    return {
        "n_trials": n_measured,
        "n_failed": len(study.trials) - n_measured,
        "seconds": time.perf_counter() - start,
        "front": [[snr, ratio, path.name] for snr, ratio, path in sorted(objective.front.members, key=lambda m: m[1])],
    }


class _Objective:
    """Quantizes and measures what a trial suggests."""

    def __init__(self, prepared: Path, feeds: Sequence[Feed], evaluation: Path, out: Path, front: Front) -> None:
        self.prepared, self.feeds, self.out = prepared, feeds, out
        graph = onnx.load(prepared)
        self.nodes = [node.name for node in graph.graph.node if node.op_type in WEIGHTED]
        self.evaluation = read_feeds(evaluation, graph)
        self.baseline = open_session(prepared, 1)
        self.reference = [self.baseline.run(None, feed) for feed in self.evaluation]
        self.front = front

    def first(self) -> dict[str, object]:
        """The recipe that one would try first."""
        recipe = {"activation": "QUInt8", "weight": "QInt8", "method": "MinMax", "scope": "core"}
        return {**{f"{SWITCH}{name}": True for name in self.nodes}, **recipe, "per_channel": True, "symmetric": False}

    def __call__(self, trial: optuna.Trial) -> tuple[float, float]:
        choose = trial.suggest_categorical
        excluded = [name for name in self.nodes if not choose(f"{SWITCH}{name}", [True, False])]
        recipe: dict[str, Any] = {
            "activation": choose("activation", ["QUInt8", "QUInt16"]),
            "weight": choose("weight", ["QInt8", "QUInt8"]),
            "per_channel": choose("per_channel", [True, False]),
            "symmetric": choose("symmetric", [False, True]),
            "scope": choose("scope", ["core", "all"]),
            "method": choose("method", ["MinMax", "Entropy", "Percentile"]),
        }
        path = self.out / f"{trial.number:04d}.onnx"
        try:
            session = plain_trial(self.prepared, path, self.feeds, excluded=excluded, **recipe)
            snr_db = worst_snr_db(self.reference, [session.run(None, feed) for feed in self.evaluation])
            ratio = _latency_ratio(session, self.baseline, self.evaluation[0])
        except Exception as error:  # a combination that onnxruntime refuses is a result
            path.unlink(missing_ok=True)
            raise optuna.TrialPruned from error
        self.front.add(snr_db, ratio, path)
        return max(-200.0, min(200.0, snr_db)), ratio  # Optuna takes finite values


def _latency_ratio(session: Any, baseline: Any, feed: Feed) -> float:
    """Median of interleaved rounds."""
    sessions = (session, baseline)
    for s in sessions:
        s.run(None, feed)
    seconds = np.zeros((N_ROUNDS, 2))
    for row in seconds:
        for k, s in enumerate(sessions):
            start = time.perf_counter()
            s.run(None, feed)
            row[k] = time.perf_counter() - start
    return float(np.median(seconds[:, 0] / seconds[:, 1]))


def main() -> int:
    """Run the loop on the model of the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench.optuna_loop", description=__doc__)
    for name in ("model", "calibration", "evaluation", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--time", type=float, default=180, metavar="SECONDS", help="default: %(default)s")
    a = parser.parse_args()
    logging.disable(logging.WARNING)
    found = run_loop(a.model.resolve(), a.calibration.resolve(), a.evaluation.resolve(), a.out, seconds=a.time)
    for snr_db, ratio, name in found["front"]:
        print(f"{name}  snr {snr_db:.2f} dB  ratio {ratio:.3f}")
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
