"""Known differences: how often they are found, in what time, by us and by what others do.

``python -m experiments.believe.truth OUT.json [MODEL ...] [--shares 3 5 10] [--repetitions 20] [--truth-seconds 600]``
compares each model with itself, and with itself doing 3 %, 5 % and 10 % more: products of matrices that nothing can
remove. How much more that is say long measurements of them all together, the truth of the table; the amount of work is
chosen by a short one. The two models of a pair come in random order. The protocols of others
(``experiments.believe.protocols``) compare two numbers, so that they always show a difference, even between a model and
itself.
"""

import argparse
import random
import shutil
import sys
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from autoquant import compare
from autoquant.api.comparison import Verdict
from autoquant.measurement.intervals import session_intervals
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.believe.extra_work import calibrate_work, with_more_work
from experiments.believe.protocols import PROTOCOLS, compare_by
from experiments.believe.subjects import Subject, subject_of

__all__ = ["OURS", "main", "render_truth"]

OURS = "autoquant"
TRUTH_PRECISION = 0.001
RIGHT, WRONG, NONE = "right", "wrong", "none"


def make_models(subject: Subject, shares: Sequence[float], folder: Path) -> dict[float, Path]:
    """The model under another name (0), and with each share of work added."""
    work = calibrate_work(subject.model, subject.evaluation, folder)
    proto = onnx.load(subject.model)
    files = {0.0: folder / "same.onnx"}
    shutil.copyfile(subject.model, files[0.0])
    for share in shares:
        files[share] = folder / f"more{round(1e3 * share)}.onnx"
        onnx.save(with_more_work(proto, work.rows_for(share)), files[share])
    return files


def measure_truth(subject: Subject, files: Mapping[float, Path], *, seconds: float, seed: int) -> list[dict[str, Any]]:
    """Every file against the model, in joint measurements of many processes each until the time is over.

    The measurements are the unit of the interval where there are two or more.
    """
    found: list[list[dict[Hashable, Any]]] = []
    end = time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        left = max(end - time.perf_counter(), 1.0)
        models = [subject.model, *files.values()]
        table = compare(models, subject.evaluation, seconds=left, precision=TRUTH_PRECISION, seed=seed + len(found))
        found.append(table.table.to_dict("records")[1:])
    ratios = {share: [float(rows[i]["ratio"]) for rows in found] for i, share in enumerate(files)}
    if len(found) > 1:
        ends = {share: (each.value, each.low, each.high) for share, each in session_intervals(ratios).items()}
    else:
        rows = dict(zip(files, found[0], strict=True))
        ends = {share: (row["ratio"], row["ratio_low"], row["ratio_high"]) for share, row in rows.items()}
    n_sessions = sum(rows[0]["n_sessions"] for rows in found)
    return [
        {"share": share, "ratio": value, "ratio_low": low, "ratio_high": high, "ratios": ratios[share]}
        | {"n_sessions": n_sessions}
        for share, (value, low, high) in ends.items()
    ]


def decisions(
    subject: Subject, files: Mapping[float, Path], *, repetitions: int, seconds: float, seed: int
) -> Iterator[dict[str, Any]]:
    """Each protocol on each pair, over and over, in random order."""
    rng = random.Random(seed)
    for repetition in range(repetitions):
        tasks = [(share, protocol) for share in files for protocol in (OURS, *PROTOCOLS)]
        rng.shuffle(tasks)
        for share, protocol in tasks:
            pair = [subject.model, files[share]]
            is_turned = rng.random() < 0.5
            models = pair[::-1] if is_turned else pair
            if protocol == OURS:
                found = _ours(models, subject.evaluation, seconds, rng.randrange(2**31))
            else:
                found = compare_by(protocol, subject.evaluation, models)
                found["difference"] = found["ratio"] - 1
            if is_turned:
                found |= {"ratio": 1 / found["ratio"], "difference": -found["difference"]}
            yield {"repetition": repetition, "share": share, "protocol": protocol, "is_turned": is_turned, **found}


def _ours(models: Sequence[Path], data: Path, seconds: float, seed: int) -> dict[str, Any]:
    start = time.perf_counter()
    found = compare(models, data, seconds=seconds, seed=seed)
    wall_s = time.perf_counter() - start
    row = found.table.to_dict("records")[1]
    shown = row["verdict"] in (Verdict.FASTER, Verdict.SLOWER)
    return {
        "ratio": row["ratio"],
        "difference": row["ratio"] - 1 if shown else 0.0,
        "seconds": wall_s,
        "n_sessions": row["n_sessions"],
        "notes": [_without_folders(note, models) for note in found.notes],
    }


def _without_folders(note: str, models: Sequence[Path]) -> str:
    """Notes are committed, and folders are of one machine."""
    for model in models:
        note = note.replace(str(model), model.name)
    return note


def answer(record: Mapping[str, Any]) -> str:
    """What a decision says of the model with more work: ``right`` is slower; of equal models every answer is wrong."""
    if record["difference"] == 0:
        return NONE
    return RIGHT if record["difference"] > 0 and record["share"] > 0 else WRONG


def render_truth(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model, pair and protocol."""
    rows = []
    for name, part in document["parts"].items():
        for true in part["truth"]:
            for protocol in (OURS, *PROTOCOLS):
                found = [d for d in part["decisions"] if (d["share"], d["protocol"]) == (true["share"], protocol)]
                if found:
                    rows.append([name, *_cells(true, protocol, found)])
    headings = ("model", "work added", "truth", "protocol", "n", "right", "wrong", "no answer")
    return markdown((*headings, "median error", "largest error", "seconds"), rows)


def _cells(true: Mapping[str, Any], protocol: str, found: Sequence[Mapping[str, Any]]) -> list[str]:
    answers = [answer(record) for record in found]
    errors = [abs(record["ratio"] - (true["ratio"] if true["share"] else 1)) for record in found]
    interval = "" if true["ratio_low"] is None else f" ({true['ratio_low'] - 1:.1%} to {true['ratio_high'] - 1:.1%})"
    return [
        f"{true['share']:.0%}",
        f"{true['ratio'] - 1:.1%}{interval}",
        PROTOCOLS[protocol].text if protocol in PROTOCOLS else protocol,
        str(len(found)),
        *("" if kind == RIGHT and not true["share"] else f"{answers.count(kind) / len(found):.0%}" for kind in _KINDS),
        f"{np.median(errors):.1%}",
        f"{max(errors):.1%}",
        f"{np.median([record['seconds'] for record in found]):.1f}",
    ]


_KINDS = (RIGHT, WRONG, NONE)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.believe.truth", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file, with a part for each model")
    parser.add_argument("models", type=subject_of, nargs="*", help="example:digits, or folders of the zoo")
    parser.add_argument("--shares", type=float, nargs="+", default=[3, 5, 10], help="%% (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=20, help="of each protocol on each pair (default: 20)")
    parser.add_argument("--truth-seconds", type=float, default=600, help="of a model's truth (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="most, of a comparison of ours (default: 60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one repetition of a few seconds: does it work?")
    found = parser.parse_args(arguments)
    if found.quick:
        found.repetitions, found.truth_seconds, found.seconds, found.shares = 1, 5.0, 4.0, [10.0]
    found.models = found.models or [subject_of("example:digits")]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write after each decision, and print."""
    asked = _parse(arguments)
    for subject in asked.models:
        part = new_part("experiments.believe.truth", seconds=asked.seconds, precision=0.01, seed=asked.seed)
        with TemporaryDirectory(prefix="truth-") as folder:
            files = make_models(subject, [share / 100 for share in asked.shares], Path(folder))
            part["truth"] = measure_truth(subject, files, seconds=asked.truth_seconds, seed=asked.seed)
            part["decisions"] = []
            limits = {"repetitions": asked.repetitions, "seconds": asked.seconds, "seed": asked.seed}
            for found in decisions(subject, files, **limits):
                part["decisions"].append(found)
                write_part(asked.out, subject.name, part)
        print(f"{subject.name}: measured", file=sys.stderr)
    print(render_truth(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
