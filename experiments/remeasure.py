"""Independent measurement of quantized models, with onnxruntime and numpy and nothing of autoquant.

The SNR is pooled over all samples, and that of the worst output counts. Latencies come from rounds in which every model
runs once, in random order; a ratio is the median of the rounds' ratios to the float model, with a bootstrap interval.

``python -m experiments.remeasure`` reads the arguments of ``remeasure`` from standard input, as JSON with ``model``,
``evaluation``, ``files`` and ``settings`` for the others, and prints the rows as JSON. Exit code 2: bad input.
"""

import json
import logging
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

__all__ = [
    "DEMANDS_DB",
    "FLOAT",
    "Row",
    "mean_saving",
    "open_session",
    "remeasure",
    "row_from",
    "saving_at",
    "together",
    "worst_snr_db",
]

log = logging.getLogger(__name__)

DEMANDS_DB = tuple(range(10, 61, 5))
FLOAT = "float"
MIN_BURST_S = 0.01
MIN_ROUNDS = 5
N_RESAMPLES = 2000

Feed = dict[str, np.ndarray]
Arrays = Sequence[np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was measured of one model.

    Attributes:
        name: As the caller named it; ``float`` for the float model.
        snr_db: Of the worst float output; ``inf`` where nothing differs, ``-inf`` where shapes do.
        median_ms: Median latency.
        ratio: Median of the ratios of latency to the float model's, round by round.
        ratio_low: Lower end of the ratio's 95 % interval.
        ratio_high: Upper end.
        process_ratios: The ratio in each process.
    """

    name: str
    snr_db: float
    median_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    process_ratios: tuple[float, ...]


def remeasure(
    model: Path,
    evaluation: Path,
    files: Mapping[str, Path],
    *,
    threads: int = 1,
    rounds: int = 25,
    limit_s: float = 300,
    seed: int = 0,
    has_snr: bool = True,
) -> list[Row]:
    """Measure models against their float model, all in the same interleaved rounds on the CPU provider.

    Args:
        model: Float model.
        evaluation: ``.npz`` with one array an input, samples along axis 0; ``label*`` and other surplus is ignored.
        files: Models to measure, by name; ``float`` is taken.
        threads: Threads inside an operator.
        rounds: How many rounds; fewer, but at least 5, where ``limit_s`` is over.
        limit_s: Seconds after which no round begins.
        seed: Of the order in which files are opened, which decides where they lie in memory, of the order within rounds
            and of the bootstrap.
        has_snr: Whether the samples are run for the SNR, which is NaN otherwise.

    Returns:
        The float model's row, then one for each file in order; a file that doesn't load or run is logged and left out.

    Raises:
        ValueError: A file is named ``float``, or an input has no data.
    """
    if FLOAT in files:
        raise ValueError(f"A file can't be named {FLOAT!r}, which is the name of the float model's row.")
    baseline = open_session(model, threads)
    feeds = _read_feeds(evaluation, baseline)
    judged = feeds if has_snr else feeds[:1]
    reference = [baseline.run(None, feed) for feed in judged]
    sessions, snr_db = {FLOAT: baseline}, {FLOAT: float("inf")}
    rng, names = np.random.default_rng(seed), list(files)
    for name in [names[i] for i in rng.permutation(len(names))]:
        try:
            session = open_session(files[name], threads)
            snr_db[name] = worst_snr_db(reference, (session.run(None, feed) for feed in judged))
            sessions[name] = session
        except Exception as error:  # another tool's broken model is a result
            log.warning("%s doesn't run: %s", name, next(iter(str(error).splitlines()), "")[:200])
    seconds = _time_interleaved(sessions, feeds, rounds, limit_s, rng)
    return [
        _row(name, snr_db[name] if has_snr else float("nan"), seconds[name], seconds[FLOAT], rng)
        for name in (FLOAT, *names)
        if name in sessions
    ]


def together(rows: Sequence[Row]) -> Row:
    """One model in several processes: the median of the ratios, all intervals, and the SNR of the first process.

    Where the memory of a session lies may decide its latency, for as long as it lives.
    """
    return replace(
        rows[0],
        snr_db=next((row.snr_db for row in rows if not np.isnan(row.snr_db)), float("nan")),
        median_ms=float(np.median([row.median_ms for row in rows])),
        ratio=float(np.median([row.ratio for row in rows])),
        ratio_low=min(row.ratio_low for row in rows),
        ratio_high=max(row.ratio_high for row in rows),
        process_ratios=tuple(ratio for row in rows for ratio in row.process_ratios),
    )


def worst_snr_db(reference: Iterable[Arrays], quantized: Iterable[Arrays]) -> float:
    """Signal-to-noise ratio of the worst float output, ``10 log10(sum r^2 / sum (r - q)^2)`` over all samples.

    Args:
        reference: Outputs of the float model, a sequence of arrays for each sample.
        quantized: Outputs of the other, in the same order.

    Returns:
        Decibels; ``inf`` where nothing differs, ``-inf`` where shapes differ or a value isn't finite.
    """
    signal: dict[int, float] = {}
    noise: dict[int, float] = {}
    for expected, found in zip(reference, quantized, strict=True):
        for i, (r, q) in enumerate(zip(expected, found, strict=True)):
            if r.dtype.kind != "f":
                continue
            if r.shape != q.shape:
                return float("-inf")  # such as a decoder that stopped at another step
            r64 = r.astype(np.float64)
            signal[i] = signal.get(i, 0.0) + float(np.square(r64).sum())
            noise[i] = noise.get(i, 0.0) + float(np.square(r64 - q).sum())
    return min((_snr_db(signal[i], noise[i]) for i in signal), default=float("inf"))


def _snr_db(signal: float, noise: float) -> float:
    if noise == 0:
        return float("inf")
    return 10 * float(np.log10(signal / noise)) if signal > 0 and np.isfinite(noise) else float("-inf")


def saving_at(points: Iterable[tuple[float, float]], demand_db: float) -> float:
    """Share of the float model's latency that the fastest model meeting a demand saves; at least 0, as float is there.

    Args:
        points: SNR in dB and latency ratio of each model.
        demand_db: SNR that is asked for.
    """
    return max((1 - ratio for snr_db, ratio in points if snr_db >= demand_db and ratio < 1), default=0.0)


def mean_saving(points: Iterable[tuple[float, float]]) -> float:
    """The yardstick: ``saving_at`` averaged over the demands 10, 15, ..., 60 dB."""
    points = list(points)
    return float(np.mean([saving_at(points, demand_db) for demand_db in DEMANDS_DB]))


def open_session(path: Path, threads: int) -> Any:
    """A session on the CPU provider with so many threads inside an operator, everything else as it is by default."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _read_feeds(path: Path, session: Any) -> list[Feed]:
    ranks = {value.name: len(value.shape) for value in session.get_inputs()}
    with np.load(path) as file:
        if missing := sorted(set(ranks) - set(file.files)):
            raise ValueError(f"{path} has no array for {', '.join(missing)}; it holds {', '.join(file.files)}.")
        arrays = {name: file[name] for name in ranks}
    n_samples = min(len(array) for array in arrays.values())
    return [
        {name: a[i : i + 1] if a.ndim == ranks[name] else np.asarray(a[i]) for name, a in arrays.items()}
        for i in range(n_samples)
    ]


def _time_interleaved(
    sessions: Mapping[str, Any], feeds: Sequence[Feed], rounds: int, limit_s: float, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Seconds of a run, by model, shape ``(rounds,)``; short models run in bursts of at least 10 ms."""
    for session in sessions.values():
        for feed in feeds[:3]:
            session.run(None, feed)
    n_runs = max(1, int(MIN_BURST_S / max(_burst_s(sessions[FLOAT], feeds[0], 1), 1e-6)))
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    names, end = list(sessions), time.perf_counter() + limit_s
    for i in range(rounds):
        if i >= MIN_ROUNDS and time.perf_counter() > end:
            break
        for k in rng.permutation(len(names)):
            seconds[names[k]].append(_burst_s(sessions[names[k]], feeds[i % len(feeds)], n_runs))
    return {name: np.array(samples) for name, samples in seconds.items()}


def _burst_s(session: Any, feed: Feed, n_runs: int) -> float:
    start = time.perf_counter()
    for _ in range(n_runs):
        session.run(None, feed)
    return (time.perf_counter() - start) / n_runs


def _row(name: str, snr_db: float, seconds: np.ndarray, baseline: np.ndarray, rng: np.random.Generator) -> Row:
    ratios = seconds / baseline
    resampled = rng.choice(ratios, (N_RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    return Row(
        name=name,
        snr_db=snr_db,
        median_ms=1e3 * float(np.median(seconds)),
        ratio=float(np.median(ratios)),
        ratio_low=float(low),
        ratio_high=float(high),
        process_ratios=(float(np.median(ratios)),),
    )


def row_from(record: Mapping[str, Any]) -> Row:
    """A row as it is printed."""
    return Row(**{**record, "process_ratios": tuple(record["process_ratios"])})


def main() -> int:
    """Measure and print."""
    assert "autoquant" not in sys.modules, "autoquant is loaded where nothing of it shall be"
    asked = json.load(sys.stdin)
    files = {name: Path(path) for name, path in asked["files"].items()}
    try:
        rows = remeasure(Path(asked["model"]), Path(asked["evaluation"]), files, **asked["settings"])
    except ValueError as error:
        print(f"experiments.remeasure: {error}", file=sys.stderr)
        return 2
    json.dump([asdict(row) for row in rows], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
