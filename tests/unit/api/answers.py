"""Trials whose answers are made up."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from optuna.samplers import BaseSampler, RandomSampler

from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import BenchFacts
from autoquant.api.trial_times import Finish
from autoquant.api.trials import Trials
from autoquant.domain.measurement import Failure, Measurement
from autoquant.domain.region import Assignment, RegionId
from autoquant.domain.space import SearchSpace
from autoquant.study.study import Study
from tests.records import a_measured, a_region
from tests.unit.study.layouts import SCHEMES

IDS = tuple(RegionId(f"r{i}") for i in range(3))
SPACE = SearchSpace(choices=dict.fromkeys(IDS, ("float", "a", "b")), schemes=SCHEMES)


class Answers:
    """Answers at once, so often; assignments with as many quantized regions run the same graph if ``is_coarse``."""

    opening_s = 0.0

    def __init__(self, *, is_coarse: bool = False, n_most: float = math.inf) -> None:
        self.is_coarse = is_coarse
        self.n_most = n_most
        self.seen: list[dict[RegionId, str]] = []
        self.n_rounds: list[int] = []
        self.least_ratios: list[Mapping[str, float]] = []

    def evaluate(
        self,
        assignment: Assignment,
        n_rounds: int,
        least_ratios: Mapping[str, float],
        *,
        left_s: float,  # noqa: ARG002 - of the port
    ) -> Measurement | Failure | None:
        if len(self.seen) >= self.n_most:
            return None
        self.seen.append(dict(assignment))
        self.n_rounds.append(n_rounds)
        self.least_ratios.append(least_ratios)
        n = sum(name != "float" for name in assignment.values())
        text = str(n) if self.is_coarse else json.dumps(assignment, sort_keys=True)
        found = a_measured(snr_db=60 - 10.0 * n, ratio=1 - 0.1 * n if n_rounds else None).outcome
        assert isinstance(found, Measurement)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return replace(found, digest=digest, effective=assignment)


def some_trials(
    folder: Path,
    answers: Answers,
    *,
    is_structured: bool,
    sampler: BaseSampler | None = None,
    first: Sequence[Assignment] = (),
    has_prior: bool = False,
    space: SearchSpace = SPACE,
) -> Trials:
    return Trials(
        study=Study(folder / "study.journal", space, sampler or RandomSampler(seed=0)),
        evaluator=answers,
        facts=BenchFacts(float_s={"cpu-1t": 1e-3}, n_samples=4, opening_s=0.0),
        regions=[a_region(region) for region in space.choices],
        space=space,
        deadline=Deadline(None),
        on_progress=lambda _: None,
        finish=Finish(n_samples=4, size_bytes=1),
        is_structured=is_structured,
        first=first,
        has_prior=has_prior,
    )
