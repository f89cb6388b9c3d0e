"""What idle threads of other sessions do to a latency.

``python -m experiments.bench.spinning ZOO_DIR`` prints, with onnxruntime's default options and with
``session.force_spinning_stop``, the latency of a model with 2 threads alone and in turns with a second session of it.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

N_RUNS = 40
THREADS = 2


def _session(model: Path, *, stops_spinning: bool) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 4
    if stops_spinning:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _milliseconds(session: ort.InferenceSession, feed: dict[str, np.ndarray]) -> float:
    start = time.perf_counter()
    session.run(None, feed)
    return (time.perf_counter() - start) * 1e3


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench.spinning", description=__doc__)
    parser.add_argument("zoo", type=Path, help="folder that experiments.zoo made")
    folder = parser.parse_args().zoo / "opennsfw"
    arrays = np.load(folder / "eval.npz")
    print("| options | alone, ms | in turns with another session, ms |\n|---|---|---|")
    for name, stops_spinning in (("default", False), ("session.force_spinning_stop", True)):
        one, other = (_session(folder / "model.onnx", stops_spinning=stops_spinning) for _ in range(2))
        feed = {i.name: arrays[i.name][:1] for i in one.get_inputs()}
        for session in (one, other) * 3:
            session.run(None, feed)
        alone = [_milliseconds(one, feed) for _ in range(N_RUNS)]
        turns = [(_milliseconds(one, feed), _milliseconds(other, feed))[0] for _ in range(N_RUNS)]
        print(f"| {name} | {statistics.median(alone):.2f} | {statistics.median(turns):.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
