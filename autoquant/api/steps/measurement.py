"""Candidates against the float model."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoquant.api.configuration import check_seed, check_targets
from autoquant.api.steps.models import check_samples_type, model_path, running
from autoquant.domain.arguments import check_seconds, check_several, check_type
from autoquant.domain.feed import Samples
from autoquant.domain.measurement import Failure, Measurement, State
from autoquant.domain.reason import one_line
from autoquant.domain.region import Assignment, Region
from autoquant.domain.scheme import FLOAT
from autoquant.domain.target import Target
from autoquant.errors import AutoquantError, UsageError
from autoquant.measurement.bench import Bench, Observer, Progress
from autoquant.measurement.effective import effective_assignment
from autoquant.model.numbers import number_outputs_of
from autoquant.qdq.candidate import Candidate

__all__ = ["measure", "open_bench"]


def open_bench(
    model: str | os.PathLike[str],
    samples: Samples,
    *,
    targets: Sequence[Target] = (Target("cpu"),),
    seed: int = 0,
    seconds: float = math.inf,
    numbers: frozenset[str] | None = None,
) -> Bench:
    """Open the float model, which candidates are measured against, on every target.

    Args:
        model: The user's own file: latencies are ratios to it, its outputs are the reference.
        samples: Evaluation samples; they are held in memory, as every candidate runs them again.
        targets: Where candidates are timed.
        seed: Of orders and resampling.
        seconds: For running the float model; samples that there is no time for are left out, apart from two.
        numbers: Outputs of integers that are numbers and no labels; None to find out which are.

    Raises:
        DataError: An output of the float model holds NaN or infinity.
        ModelError: The model cannot be opened, or not run on these samples.
        TargetError: An execution provider is not installed.
        UsageError: An argument is of another type.
    """
    check_samples_type(samples)
    check_targets(targets)
    check_seed(seed)
    check_seconds("the seconds of opening", seconds)
    path = model_path(model)
    numbers = number_outputs_of(path) if numbers is None else numbers
    with running(path):
        return Bench(path, targets, tuple(samples.feeds), seed, seconds, samples.names, numbers)


def measure(
    bench: Bench,
    candidate: Candidate,
    assignment: Assignment,
    found: Sequence[Region],
    *,
    n_rounds: int = 8,
    goes_on: Callable[[Progress], bool] = lambda _: True,
    known: Mapping[str, Measurement] | None = None,
    observe: Observer = lambda *_: None,
) -> Measurement | Failure:
    """Open a candidate, read back what really runs, and measure it.

    Args:
        bench: What ``open_bench`` gives.
        candidate: What to measure.
        assignment: What it was built from.
        found: The partition.
        n_rounds: Timed rounds; with 0 the quality is all that is measured.
        goes_on: Asked with the estimate before the first round, after a third of the rounds, and after all of them,
            whether there shall be more.
        known: Measurements by digest of the optimised graph; a candidate that runs the same graph is not run again,
            only its size is its own.
        observe: Told the outputs of each sample.

    Raises:
        UsageError: An argument is of another type, or the candidate quantizes what the assignment does not.
    """
    check_type("the bench", bench, Bench, "what open_bench gives")
    check_type("the candidate", candidate, Candidate, "what build gives")
    check_type("the assignment", assignment, Mapping, "what the candidate was built from")
    check_several("regions", found, Region, "what find_regions(prepared) gives")
    check_type("the number of rounds", n_rounds, (int, np.integer), "a whole number")
    if n_rounds < 0:
        raise UsageError(f"the number of rounds is {n_rounds}, give 0 or more")
    _check_built_from(assignment, candidate, found)
    try:
        opened = bench.opener.open(*candidate.parts)
        digest = f"{opened.optimized.digest}-{candidate.variants_digest}"
        if known is not None and digest in known:
            return replace(known[digest], size_bytes=candidate.size_bytes)
        quality, latency, went_on = bench.measure(opened.sessions, n_rounds, goes_on, observe)
    except AutoquantError as error:
        return Failure(stage="open", reason=str(error))
    except Exception as error:  # onnxruntime raises its own types from run
        return Failure(stage="run", reason=f"{type(error).__name__}: {one_line(error)}")
    timed = State.COMPLETE if n_rounds else State.UNTIMED
    return Measurement(
        quality=quality,
        latency=latency,
        digest=digest,
        effective=effective_assignment(
            assignment, found, opened.optimized, candidate.integer_nodes, candidate.float_nodes
        ),
        state=timed if went_on else State.REJECTED_EARLY,
        size_bytes=candidate.size_bytes,
    )


def _check_built_from(assignment: Assignment, candidate: Candidate, found: Sequence[Region]) -> None:
    for region in found:
        if assignment.get(region.id, FLOAT) == FLOAT and not candidate.integer_nodes.isdisjoint(region.nodes):
            raise UsageError(
                f"the candidate quantizes region '{region.id}', which the assignment leaves float; give the assignment"
                " that it was built from"
            )
