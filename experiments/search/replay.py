"""A search that measures nothing: a table answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import BenchFacts
from autoquant.api.trial_times import Finish
from autoquant.api.trials import Trials
from autoquant.domain.measurement import Failure, Latency, Measurement, Quality, State
from autoquant.domain.region import Assignment
from autoquant.domain.target import Target
from autoquant.errors import UsageError
from autoquant.isolation.process import memory_folder
from autoquant.study.samplers import SamplerChoice, is_structured, make_sampler
from autoquant.study.study import Study, quiet
from experiments.search.table import Table

__all__ = ["Replay", "replay"]

MOST_REPEATED = 20
"""Trials by assignment that is to be evaluated: a sampler that repeats itself more often than that ends there."""


@dataclass(slots=True)
class Replay:
    """Answers trials from a table, which knows no sizes.

    Attributes:
        table: With every assignment.
        n_most: Different assignments that are answered; there is no time for more.
        rows: Of the table, in the order in which they were asked for, each once: a repeated one costs a search nothing,
            its evaluator remembers it.
        opening_s: Of the port.
    """

    table: Table
    n_most: int
    rows: list[int] = field(default_factory=list)
    opening_s: float = 0.0
    _row: dict[bytes, int] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not self.table.is_complete:
            raise UsageError(
                f"the table has {len(self.table.codes)} of {self.table.problem.n_assignments} assignments; finish it"
                " with python -m experiments.search.enumerate"
            )
        self._row = {codes.tobytes(): row for row, codes in enumerate(self.table.codes)}

    def evaluate(
        self,
        assignment: Assignment,
        n_rounds: int,  # noqa: ARG002 - of the port
        least_ratios: Mapping[str, float],  # noqa: ARG002 - of the port
        *,
        left_s: float,  # noqa: ARG002 - of the port
    ) -> Measurement | Failure | None:
        """What was measured; None where ``n_most`` were answered."""
        row = self._row[self.table.problem.encode(assignment).tobytes()]
        if row not in self._seen:
            if len(self.rows) == self.n_most:
                return None
            self._seen.add(row)
            self.rows.append(row)
        return self._outcome(row)

    def _outcome(self, row: int) -> Measurement | Failure:
        table, graph = self.table, int(self.table.graph[row])
        if graph < 0:
            return Failure(stage="table", reason=table.failures.get(row, "its graph failed"))
        ratio, low, high = (float(x) for x in table.ratio[graph])
        latency = Latency(
            median_ms=ratio, low_ms=low, high_ms=high, ratio=ratio, ratio_low=low, ratio_high=high, n_rounds=1
        )
        snr_db = (float(x) for x in table.snr_db[graph])
        return Measurement(
            quality=Quality(
                per_output=dict(zip(table.problem.outputs, snr_db, strict=True)), agreement={}, n_samples=1
            ),
            latency={Target().name: latency},
            digest=str(table.digests[graph]),
            effective=table.problem.decode(table.effective[graph]),
            state=State.COMPLETE,
            size_bytes=0,
        )


def replay(
    table: Table, sampler: SamplerChoice, *, n_evaluations: int, seed: int, has_probes: bool = True
) -> list[int]:
    """Search a table as ``autoquant search`` would without a limit of time: the same recipes, probes, study, sampler.

    What differs: every evaluation is complete, no candidate is rejected early.

    Args:
        table: With every assignment.
        sampler: What proposes.
        n_evaluations: Different assignments.
        seed: Of the sampler.
        has_probes: Whether the structure sampler has one-region probes.

    Returns:
        Rows of the table in the order in which they were evaluated, fewer where the search ends before.

    Raises:
        UsageError: The table is not complete.
    """
    problem, answers = table.problem, Replay(table, n_evaluations)
    with TemporaryDirectory(prefix="replay-", dir=memory_folder()) as folder, quiet():
        made = make_sampler(sampler, problem.layout, seed=seed)
        Trials(
            study=Study(Path(folder) / "study.journal", problem.space, made),
            evaluator=answers,
            facts=BenchFacts(float_s={Target().name: 1e-3}, n_samples=1, opening_s=0.0),
            regions=problem.regions,
            space=problem.space,
            deadline=Deadline(None),
            on_progress=lambda _: None,
            finish=Finish(n_samples=1, size_bytes=0),
            is_structured=is_structured(sampler),
            has_probes=has_probes,
        ).run(MOST_REPEATED * n_evaluations)
    return answers.rows
