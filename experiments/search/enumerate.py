"""Measure every assignment of a small space once.

``python -m experiments.search.enumerate MODEL TABLE.npz [--space FILE] [--regions N] [--samples 12] [--rounds 6]
[--openings 1]`` measures SNR of every output on the same samples, and the latency ratio in rounds interleaved with the
float model, as a search does. MODEL is ``example:digits`` or a folder of the zoo. Assignments that run the same graph
are measured once, and the order is random, so that what changes on the machine meanwhile falls on all alike. The same
graph opened again may take another time: with several ``--openings`` each is opened so often and the mean of their
ratios kept, each of so many rounds. The fastest of thousands is lucky: so what may be on the front is measured again in
``--final-rounds``, until nothing else may be. What is measured is written every minute; the same command goes on after
an interruption. Exit code 2: the arguments do not fit.
"""

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autoquant.api import steps
from autoquant.api.ingredients import Ingredients
from autoquant.domain.measurement import Quality
from autoquant.domain.region import Assignment
from autoquant.errors import AutoquantError, OutputError, UsageError
from autoquant.graph.regions import borders
from autoquant.measurement.bench import Bench
from autoquant.measurement.effective import effective_assignment
from autoquant.measurement.opening import Opened
from autoquant.model.io import sha256_of
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.runtime.environment import describe_environment, differences
from autoquant.space.resolve import resolve
from experiments.believe.document import new_part
from experiments.believe.subjects import Subject, subject_of
from experiments.search.table import FAILED, Problem, Table, load_table, save_table
from experiments.search.yardsticks import CEILING_DB, non_beaten

__all__ = ["Enumeration", "continued", "main", "open_enumeration"]

SMALL_SPACE = Path(__file__).with_name("small.toml")
MOST_ASSIGNMENTS = 20_000
MOST_SAMPLES = 12
"""A bench estimates the SNR from the most telling samples where there are more."""
SNR_LIMIT_DB = 200.0
SAVED_EVERY_S = 60.0
FIXED = ("model", "model_sha256", "space_digest", "regions", "samples", "rounds", "final_rounds", "openings", "seed")
"""What a measurement that goes on shares with its beginning."""
ABSENT = {"openings": 1}
"""What tables have that do not say it."""


@dataclass(frozen=True, slots=True)
class _Graph:
    """A row of the table's arrays."""

    number: int
    snr_db: list[float]
    ratio: list[float]
    effective: list[int]
    rounds: int


@dataclass(slots=True)
class Enumeration:
    """Measures the assignments of a problem in random order.

    Attributes:
        problem: What is searched.
        bench: The float model.
        builder: Of candidates.
        about: For the table.
        seed: Of the order.
        n_rounds: Timed rounds of each opened graph.
        n_final_rounds: Of those that may be on the front.
        n_openings: Of each graph.
    """

    problem: Problem
    bench: Bench
    builder: Builder
    about: dict[str, Any]
    seed: int
    n_rounds: int
    n_final_rounds: int
    n_openings: int
    _graph: list[int] = field(default_factory=list)
    _measured: dict[int, _Graph] = field(default_factory=dict)
    _failures: dict[int, str] = field(default_factory=dict)
    _built: dict[str, int] = field(default_factory=dict)

    def take_over(self, earlier: Table) -> None:
        """Go on where a table ends."""
        arrays = (earlier.snr_db, earlier.ratio, earlier.effective, earlier.rounds)
        columns = [array.tolist() for array in arrays]
        found = zip(earlier.digests.tolist(), *columns, strict=True)
        self._measured = {row[0]: _Graph(number, *row[1:]) for number, row in enumerate(found)}
        self._graph, self._failures = earlier.graph.tolist(), dict(earlier.failures)

    def run(self, on_pause: Callable[[Table], None], *, every_s: float = SAVED_EVERY_S) -> Table:
        """Measure what is missing.

        Args:
            on_pause: Given the table so far every so many seconds, at the end, and where Ctrl-C ends it.
            every_s: Seconds between two.
        """
        codes, last = self._codes(), time.perf_counter()
        try:
            for row in self._missing():
                assignment = self.problem.decode(codes[row])
                if row < len(self._graph):
                    self._measure_again(row, assignment)
                else:
                    self._graph.append(self._graph_of(row, assignment))
                if time.perf_counter() - last > every_s:
                    on_pause(self.table())
                    last = time.perf_counter()
        finally:
            on_pause(self.table())
        return self.table()

    def _missing(self) -> Iterator[int]:
        """Rows of assignments without a measurement, then of those that may be on the front and had few rounds."""
        yield from range(len(self._graph), len(self._codes()))
        while doubtful := self._doubtful():
            yield from doubtful

    def _doubtful(self) -> list[int]:
        """One row for each graph that had few rounds and would be on the front if it was somewhat faster."""
        graphs = list(self._measured.values())
        worst, ratio = np.array([min(g.snr_db) for g in graphs]), np.array([g.ratio for g in graphs])
        luck = float(np.median(ratio[:, 2] - ratio[:, 1])) / 2
        front = non_beaten(zip(worst.tolist(), ratio[:, 0].tolist(), strict=True))
        found = []
        for number, graph in enumerate(graphs):
            faster = [best for snr_db, best in front if snr_db >= min(worst[number], CEILING_DB)]
            if graph.rounds < self.n_final_rounds and ratio[number, 0] - luck < min(faster, default=1.0):
                found.append(self._graph.index(number))
        return found

    def table(self) -> Table:
        """What was measured so far."""
        n_regions, n_outputs = len(self.problem.regions), len(self.problem.outputs)
        graphs = self._measured.values()
        return Table(
            problem=self.problem,
            about={**self.about, "environment_after": describe_environment()},
            failures=dict(self._failures),
            codes=self._codes()[: len(self._graph)],
            graph=np.array(self._graph, np.int32),
            digests=np.array(list(self._measured), np.uint64),
            snr_db=np.array([graph.snr_db for graph in graphs], np.float32).reshape(-1, n_outputs),
            ratio=np.array([graph.ratio for graph in graphs], np.float32).reshape(-1, 3),
            effective=np.array([graph.effective for graph in graphs], np.uint8).reshape(-1, n_regions),
            rounds=np.array([graph.rounds for graph in graphs], np.int32),
        )

    def _codes(self) -> npt.NDArray[np.uint8]:
        return np.random.default_rng(self.seed).permutation(self.problem.every_assignment())

    def _graph_of(self, row: int, assignment: Assignment) -> int:
        """Number of the graph that an assignment runs."""
        candidate = self.builder.build(assignment)
        if candidate.digest not in self._built:
            try:
                self._built[candidate.digest] = self._open(candidate, assignment)
            except Exception as error:  # onnxruntime raises its own types; the reason is kept
                self._failures[row] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
                self._built[candidate.digest] = FAILED
        return self._built[candidate.digest]

    def _open(self, candidate: Candidate, assignment: Assignment) -> int:
        """Measure the graph, unless it is known."""
        opened = self.bench.opener.open(*candidate.parts)
        digest = _number(f"{opened.optimized.digest}-{candidate.variants_digest}")
        if digest not in self._measured:
            quality, ratio = self._measure(candidate, opened, self.n_rounds)
            effective = effective_assignment(
                assignment, self.problem.regions, opened.optimized, candidate.integer_nodes, candidate.float_nodes
            )
            self._measured[digest] = _Graph(
                number=len(self._measured),
                snr_db=[float(np.clip(snr, -SNR_LIMIT_DB, SNR_LIMIT_DB)) for snr in quality.per_output.values()],
                ratio=ratio,
                effective=self.problem.encode(effective).tolist(),
                rounds=self.n_rounds,
            )
        return self._measured[digest].number

    def _measure_again(self, row: int, assignment: Assignment) -> None:
        """In more rounds, which replace the few."""
        digest = list(self._measured)[self._graph[row]]
        candidate = self.builder.build(assignment)
        opened = self.bench.opener.open(*candidate.parts)
        _, ratio = self._measure(candidate, opened, self.n_final_rounds)
        self._measured[digest] = replace(self._measured[digest], ratio=ratio, rounds=self.n_final_rounds)

    def _measure(self, candidate: Candidate, opened: Opened, n_rounds: int) -> tuple[Quality, list[float]]:
        """Quality, and the ratio with the ends of its interval, each the mean over openings that are all in memory."""
        others = [self.bench.opener.open(*candidate.parts) for _ in range(self.n_openings - 1)]
        measured = [self.bench.measure(each.sessions, n_rounds, lambda _: True) for each in (opened, *others)]
        found = [latency for _, latencies, _ in measured for latency in latencies.values()]
        ratios = np.mean([[latency.ratio, latency.ratio_low, latency.ratio_high] for latency in found], axis=0)
        return measured[0][0], ratios.tolist()


def open_enumeration(
    subject: Subject,
    *,
    space: str,
    n_regions: int,
    n_samples: int,
    n_rounds: tuple[int, int],
    n_openings: int,
    seed: int,
) -> Enumeration:
    """Prepare, partition, calibrate, open.

    Args:
        subject: Model and samples.
        space: Name or path.
        n_regions: At most.
        n_samples: Of the evaluation samples.
        n_rounds: Of each opened graph, and of those that may be on the front.
        n_openings: Of each graph.
        seed: Of the order.

    Raises:
        UsageError: There are too many assignments or samples.
    """
    if not 0 < n_samples <= MOST_SAMPLES:
        raise UsageError(f"--samples {n_samples}: it must lie in 1 to {MOST_SAMPLES}")
    definition = steps.definition_of(space, "cpu")
    calibration = steps.read_data(subject.model, subject.calibration)
    evaluation = steps.read_data(subject.model, subject.evaluation, role="evaluation")
    prepared = steps.prepare(subject.model, calibration)
    regions = steps.find_regions(prepared, space=definition, n_regions=n_regions)
    chosen = resolve(definition, regions)
    some = replace(evaluation, feeds=tuple(evaluation.feeds[:n_samples]))
    bench = steps.open_bench(subject.model, some, seed=seed)
    problem = Problem(
        regions=regions, space=chosen, borders=tuple(borders(prepared.graph, regions)), outputs=_float_outputs(bench)
    )
    if problem.n_assignments > MOST_ASSIGNMENTS:
        raise UsageError(
            f"{subject.name}: {len(regions)} regions have {problem.n_assignments} assignments, at most"
            f" {MOST_ASSIGNMENTS} are measured; take fewer --regions or a smaller --space"
        )
    statistics = steps.calibrate(prepared, calibration, space=definition)
    ingredients = Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=definition)
    settings = {
        "regions": n_regions,
        "samples": n_samples,
        "rounds": n_rounds[0],
        "final_rounds": n_rounds[1],
        "openings": n_openings,
    }
    about = new_part("experiments.search.enumerate") | {
        "model": subject.name,
        "model_sha256": sha256_of(subject.model),
        "space": definition.name,
        "space_digest": definition.digest,
        "float_ms": {name: seconds * 1e3 for name, seconds in bench.float_s.items()},
        **settings,
        "seed": seed,
    }
    return Enumeration(problem, bench, ingredients.builder(), about, seed, *n_rounds, n_openings)


def _float_outputs(bench: Bench) -> tuple[str, ...]:
    pairs = zip(bench.names, bench.reference[0], strict=True)
    return tuple(name for name, values in pairs if values.dtype.kind == "f")


def _number(digest: str) -> int:
    return int(hashlib.sha256(digest.encode()).hexdigest()[:16], 16)


def continued(enumeration: Enumeration, path: Path) -> Enumeration:
    """Take over what is at the path.

    Raises:
        OutputError: It is of another problem or another environment.
    """
    if not path.exists():
        return enumeration
    earlier, about = load_table(path), enumeration.about
    changed = [key for key in FIXED if earlier.about.get(key, ABSENT.get(key)) != about[key]]
    changed += differences(earlier.about["environment"], about["environment"])
    if changed:
        raise OutputError(f"{path}: it was measured otherwise ({'; '.join(changed)}); choose another file")
    enumeration.take_over(earlier)
    return enumeration


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.search.enumerate", description=__doc__)
    parser.add_argument("model", type=subject_of, help="example:digits, or a folder of the zoo")
    parser.add_argument("out", type=Path, help=".npz file")
    parser.add_argument("--space", default=str(SMALL_SPACE), help="default: small.toml beside this module")
    parser.add_argument("--regions", type=int, default=6, help="at most (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=MOST_SAMPLES, help="evaluation samples (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=6, help="timed, of each opened graph (default: %(default)s)")
    parser.add_argument("--openings", type=int, default=1, help="of each graph (default: %(default)s)")
    parser.add_argument(
        "--final-rounds", type=int, default=40, help="of what may be on the front (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or go on."""
    asked = _parse(arguments)

    def on_pause(table: Table) -> None:
        save_table(asked.out, table)
        print(f"{len(table.codes)} of {table.problem.n_assignments}, {len(table.ratio)} graphs", file=sys.stderr)

    try:
        found = open_enumeration(
            asked.model,
            space=asked.space,
            n_regions=asked.regions,
            n_samples=asked.samples,
            n_rounds=(asked.rounds, asked.final_rounds),
            n_openings=asked.openings,
            seed=asked.seed,
        )
        table = continued(found, asked.out).run(on_pause)
    except AutoquantError as error:
        print(f"experiments.search.enumerate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("experiments.search.enumerate: interrupted; the same command goes on", file=sys.stderr)
        return 130
    counts = f"{len(table.codes)} assignments, {len(table.ratio)} graphs, {len(table.failures)} failures"
    print(f"{counts}, {len(non_beaten(table.points()))} on the front")
    return 0


if __name__ == "__main__":
    sys.exit(main())
