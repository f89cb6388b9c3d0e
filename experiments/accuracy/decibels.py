"""Decibels that algorithms win where the kernels stay the same.

``python -m experiments.accuracy.decibels OUT.json [MODEL ...] [--space default] [--schemes NAME ...] [--mixes 10]``
builds uniform recipes, each scheme wherever it is allowed, and mixes, in which each region takes it or stays float at
random, with and without each algorithm of ``experiments.accuracy.algorithms``, and runs the evaluation samples. A
recipe is one number, which chance may have made good: errors of a few outputs cancel or add up. What an algorithm does
on average say the mixes. A second table has the ceilings of ``experiments.accuracy.ceilings``: what the same candidates
would have with float weights or with float activations, and which share of the former was won.
"""

import argparse
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from autoquant.api import steps
from autoquant.domain.quality import QualityMeter
from autoquant.domain.region import Assignment
from autoquant.domain.target import Target
from autoquant.model.optimized import read_optimized
from autoquant.qdq.candidate import Candidate
from autoquant.runtime.session import open_session, ort_values
from autoquant.space.resolve import resolve
from experiments.accuracy.algorithms import ALGORITHMS, PLAIN, Setting, setting_of
from experiments.accuracy.ceilings import CEILINGS, FLOAT_WEIGHTS, WRITTEN, run_as_written
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.believe.subjects import Subject, subject_of

__all__ = ["assignments", "main", "render_ceilings", "render_decibels"]

Array = npt.NDArray[np.generic]
FLOAT_SHARE = 0.5
BEST = "equalised, gptq, bias observed"
"""The combination that ceilings are compared with."""
_LEAST_ATTAINABLE_DB = 1.0


class Judge:
    """SNR against the user's own model on evaluation samples, and the kernels behind it."""

    def __init__(self, subject: Subject) -> None:
        self.feeds = steps.read_data(subject.model, subject.evaluation, role="evaluation").feeds
        session = open_session(subject.model, Target())
        self.names = [output.name for output in session.get_outputs()]
        self.reference = [session.run(None, feed) for feed in self.feeds]

    def judge(self, candidate: Candidate) -> tuple[float, Counter[str]]:
        """Decibels of the worst output, and how many of each kernel run."""
        with TemporaryDirectory(prefix="decibels-") as folder:
            path = Path(folder) / "optimized.onnx"
            values = ort_values(candidate.constants)
            session = open_session(candidate.skeleton, Target(), initializers=values, optimized_path=path)
            kernels = Counter(read_optimized(path).kernels)
        return self._worst_db(session.run(None, feed) for feed in self.feeds), kernels

    def judge_as_written(self, model: onnx.ModelProto) -> float:
        """Decibels of the worst output without any optimisation."""
        return self._worst_db(run_as_written(model, self.feeds))

    def _worst_db(self, outputs: Iterable[Sequence[Array]]) -> float:
        meter = QualityMeter(self.names)
        for expected, found in zip(self.reference, outputs, strict=True):
            meter.add(expected, found)
        return meter.quality().worst_db


def assignments(setting: Setting, scheme: str, n_mixes: int, seed: int = 0) -> Iterator[Assignment]:
    """A scheme wherever it is allowed, then in random halves of the regions."""
    uniform = resolve(setting.definition, setting.regions).uniform(scheme)
    yield uniform
    rng = random.Random(seed)
    for _ in range(n_mixes):
        yield {region: name for region, name in uniform.items() if rng.random() > FLOAT_SHARE}


def measure(
    setting: Setting, judge: Judge, scheme: str, n_mixes: int, names: Sequence[str] = tuple(ALGORITHMS)
) -> Iterator[dict[str, Any]]:
    """Every algorithm on every assignment; mixes are numbered from 1 on, the uniform recipe is 0."""
    for mix, assignment in enumerate(assignments(setting, scheme, n_mixes)):
        plain: Counter[str] | None = None
        for name in names:
            start = time.perf_counter()
            candidate = ALGORITHMS[name](setting, assignment)
            seconds = time.perf_counter() - start
            snr_db, kernels = judge.judge(candidate)
            plain = plain or kernels
            yield {
                "scheme": scheme,
                "mix": mix,
                "algorithm": name,
                "snr_db": snr_db,
                "same_kernels": kernels == plain,
                "seconds": seconds,
            }


def measure_ceilings(setting: Setting, judge: Judge, scheme: str, n_mixes: int) -> Iterator[dict[str, Any]]:
    """Every ceiling of every assignment."""
    for mix, assignment in enumerate(assignments(setting, scheme, n_mixes)):
        for name, make in CEILINGS.items():
            snr_db = judge.judge_as_written(make(setting, assignment))
            yield {"scheme": scheme, "mix": mix, "algorithm": name, "snr_db": snr_db}


def render_decibels(document: Mapping[str, Any]) -> str:
    """A line for each uniform recipe, and one for the mixes of each model."""
    parts = document.get("parts", {})
    others = _others(document)
    rows = [
        row
        for model, part in parts.items()
        for row in (*_uniform_rows(model, part, others), *_mix_rows(model, part, others))
    ]
    return markdown(["model", "assignment", PLAIN, *others, "same kernels"], rows)


def render_ceilings(document: Mapping[str, Any]) -> str:
    """For each uniform recipe its ceilings, and what ``BEST`` won of what float weights would; then the medians.

    The attainable is the better of both forms with float weights, less the plain recipe run as it is written, as they
    are; below a decibel there is no share of it.
    """
    found = [row for model, part in document.get("parts", {}).items() for row in _ceiling_rows(model, part)]
    if not found:
        return ""
    columns = [[row[name] for row in found if row[name] is not None] for name in ("won", "attainable", "share")]
    medians = dict(
        zip(("won", "attainable", "share"), (float(np.median(c)) if c else None for c in columns), strict=True)
    )
    blank = {"model": f"median of {len(columns[1])}", "assignment": "", **dict.fromkeys((PLAIN, *CEILINGS))}
    headings = ["model", "assignment", PLAIN, *CEILINGS, f"won by {BEST}", "attainable", "share"]
    return markdown(headings, [_ceiling_texts(row) for row in (*found, {**blank, **medians})])


def _ceiling_rows(model: str, part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    uniform = [record for record in (*part["decibels"], *part.get("ceilings", ())) if record["mix"] == 0]
    for scheme in dict.fromkeys(record["scheme"] for record in part.get("ceilings", ())):
        db = {record["algorithm"]: record["snr_db"] for record in uniform if record["scheme"] == scheme}
        row = {name: db[name] for name in (PLAIN, *CEILINGS)}
        if None in row.values() or db.get(BEST, 0.0) is None:  # something is equal to float, or useless
            yield {"model": model, "assignment": scheme, **row, **dict.fromkeys(("won", "attainable", "share"))}
            continue
        attainable = max(db[name] for name in FLOAT_WEIGHTS) - db[WRITTEN]
        won = db[BEST] - db[PLAIN] if BEST in db else None
        share = won / attainable if won is not None and attainable >= _LEAST_ATTAINABLE_DB else None
        yield {"model": model, "assignment": scheme, **row, "won": won, "attainable": attainable, "share": share}


def _ceiling_texts(row: Mapping[str, Any]) -> list[str]:
    decibels = ["" if row[name] is None else f"{row[name]:.1f}" for name in (PLAIN, *CEILINGS)]
    gains = ["" if row[name] is None else f"{row[name]:+.1f}" for name in ("won", "attainable")]
    return [row["model"], row["assignment"], *decibels, *gains, "" if row["share"] is None else f"{row['share']:.0%}"]


def _others(document: Mapping[str, Any]) -> list[str]:
    """Algorithms that were measured, beside none."""
    records = [record for part in document.get("parts", {}).values() for record in part["decibels"]]
    found = {record["algorithm"] for record in records if record["snr_db"] is not None}
    return [name for name in ALGORITHMS if name in found and name != PLAIN]


def _uniform_rows(model: str, part: Mapping[str, Any], names: Sequence[str]) -> Iterator[list[str]]:
    """Gains; blank where an algorithm was not measured."""
    found = [record for record in part["decibels"] if record["mix"] == 0]
    for scheme in dict.fromkeys(record["scheme"] for record in found):
        by_name = {record["algorithm"]: record for record in found if record["scheme"] == scheme}
        plain, found_db = by_name[PLAIN]["snr_db"], {name: by_name[name]["snr_db"] for name in names if name in by_name}
        gains = [
            "" if plain is None or found_db.get(name) is None else f"{found_db[name] - plain:+.1f}" for name in names
        ]
        yield [
            model,
            scheme,
            "" if plain is None else f"{plain:.1f}",
            *gains,
            _yes(all(r["same_kernels"] for r in by_name.values())),
        ]


def _mix_rows(model: str, part: Mapping[str, Any], names: Sequence[str]) -> Iterator[list[str]]:
    """Mean gains over all mixes, and their 95 % interval as if mixes were independent."""
    found = [record for record in part["decibels"] if record["mix"] and record["snr_db"] is not None]
    plain = {(r["scheme"], r["mix"]): r["snr_db"] for r in found if r["algorithm"] == PLAIN}
    if not plain:
        return
    gains = [
        [r["snr_db"] - plain[r["scheme"], r["mix"]] for r in found if r["algorithm"] == name and _key(r) in plain]
        for name in names
    ]
    texts = [_with_interval(gain) if gain else "" for gain in gains]
    same = _yes(all(record["same_kernels"] for record in found))
    yield [model, f"{len(plain)} mixes", f"{np.mean(list(plain.values())):.1f}", *texts, same]


def _with_interval(gain: Sequence[float]) -> str:
    if len(gain) < 2:
        return f"{gain[0]:+.1f}"
    return f"{np.mean(gain):+.1f} ± {1.96 * np.std(gain, ddof=1) / math.sqrt(len(gain)):.1f}"


def _key(record: Mapping[str, Any]) -> tuple[str, int]:
    return record["scheme"], record["mix"]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.accuracy.decibels", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file, with a part for each model")
    parser.add_argument("models", type=subject_of, nargs="*", help="example:digits, or folders of the zoo")
    parser.add_argument("--space", default="default", help="by name or path (default: %(default)s)")
    parser.add_argument("--schemes", nargs="+", help="of the space (default: all)")
    parser.add_argument("--mixes", type=int, default=10, help="of each scheme (default: %(default)s)")
    parser.add_argument(
        "--algorithms", nargs="+", default=list(ALGORITHMS), choices=ALGORITHMS, help="none among them (default: all)"
    )
    found = parser.parse_args(arguments)
    found.models = found.models or [subject_of("example:digits")]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write after each scheme, and print."""
    asked = _parse(arguments)
    for subject in asked.models:
        part = new_part("experiments.accuracy.decibels", space=asked.space, mixes=asked.mixes, float_share=FLOAT_SHARE)
        part["decibels"], part["ceilings"] = [], []
        with TemporaryDirectory(prefix="decibels-") as cache:
            setting, judge = (
                setting_of(subject, asked.space, Path(cache), asked.schemes, asked.algorithms),
                Judge(subject),
            )
            for scheme in asked.schemes or [scheme.name for scheme in setting.definition.schemes]:
                part["ceilings"] += measure_ceilings(setting, judge, scheme, asked.mixes)
                part["decibels"] += measure(setting, judge, scheme, asked.mixes, asked.algorithms)
                write_part(asked.out, subject.name, part)
        print(f"{subject.name}: measured", file=sys.stderr)
    document = read_document(asked.out)
    print(render_decibels(document), render_ceilings(document), sep="\n", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
