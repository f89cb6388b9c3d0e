"""How others compare two models: one after the other in one process, a number each, the lower one is faster.

``python -m experiments.believe.protocols PROTOCOL DATA MODEL MODEL`` prints the milliseconds of both as JSON.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

__all__ = ["PROTOCOLS", "Protocol", "compare_by", "main"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Protocol:
    """What is made of a model's runs on the first sample.

    Attributes:
        text: For the table.
        n_warmups: Runs before.
        n_runs: Runs that count.
        statistic: Of their seconds.
    """

    text: str
    n_warmups: int
    n_runs: int
    statistic: Callable[[Sequence[float]], float]


PROTOCOLS: Mapping[str, Protocol] = {
    "mean20": Protocol("mean of 20 runs of the first batch, 10 before", 10, 20, statistics.fmean),
    "median50": Protocol("median of 50 runs, 5 before", 5, 50, statistics.median),
    "best50": Protocol("best of 50 runs, 1 before", 1, 50, min),
}


def compare_by(protocol: str, data: Path, models: Sequence[Path]) -> dict[str, Any]:
    """Two models by one of ``PROTOCOLS`` in a fresh process.

    Returns:
        ``ms`` of each, ``ratio`` of the second to the first, and the ``seconds`` that it all took.
    """
    command = [sys.executable, "-m", "experiments.believe.protocols", protocol, str(data), *map(str, models)]
    start = time.perf_counter()
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    ms = json.loads(run.stdout)
    return {"ms": ms, "ratio": ms[1] / ms[0], "seconds": time.perf_counter() - start}


def _milliseconds(protocol: Protocol, model: str, data: str) -> float:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = _first_batch(session, data)
    for _ in range(protocol.n_warmups):
        session.run(None, feed)
    seconds = []
    for _ in range(protocol.n_runs):
        start = time.perf_counter()
        session.run(None, feed)
        seconds.append(time.perf_counter() - start)
    return 1e3 * protocol.statistic(seconds)


def _first_batch(session: Any, data: str) -> dict[str, Any]:
    with np.load(data) as file:
        return {
            value.name: file[value.name][:1] if file[value.name].ndim == len(value.shape) else file[value.name][0]
            for value in session.get_inputs()
        }


def main(arguments: Sequence[str]) -> int:
    """Print the milliseconds of each model, in the order given."""
    name, data, *models = arguments
    print(json.dumps([_milliseconds(PROTOCOLS[name], model, data) for model in models]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
