"""What searches of models with many regions reach in few evaluations, with and without knowing what is repeated.

``python -m experiments.search.granularity OUT.json [--regions 40 100 200] [--evaluations 20 60 150 400] [--seeds 10]
[--families NAME ...] [--arms NAME ...]`` searches synthetic problems of repeated blocks
(``experiments.search.blocks``) as ``autoquant search`` would: the same recipes, probes, study and sampler, with the
time for so many evaluations. The mean saving of what was evaluated is that of the true points, without measurement
errors, as a share of what the hull of the true front attains, which an evaluation that is better than it should be
may exceed. Each problem is searched with regions that know their pattern (``told``) and without (``untold``).
OUT.json has a part for each family.
"""

import argparse
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from autoquant.api.evaluator import BenchFacts
from autoquant.api.trial_times import Finish
from autoquant.api.trials import Trials
from autoquant.domain.sampler import SamplerName
from autoquant.domain.target import Target
from autoquant.isolation.process import memory_folder
from autoquant.study.samplers import BaseSampler, make_sampler
from autoquant.study.study import Study, quiet
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.remeasure import mean_saving
from experiments.search.blocks import FAMILIES, Answers, Blocks, Budget, make_blocks
from experiments.search.table import Problem

__all__ = ["main", "measure_family", "render_granularity", "search_blocks", "trials_of"]

ARMS = ("untold", "told")


def search_blocks(blocks: Blocks, *, n_evaluations: int, seed: int) -> Answers:
    """Search with the time for so many evaluations; all are timed, also one-region probes."""
    answers, problem = Answers(blocks, Budget(seconds=n_evaluations + 0.25)), blocks.problem
    with TemporaryDirectory(prefix="blocks-", dir=memory_folder()) as folder, quiet():
        sampler = make_sampler(SamplerName.STRUCTURE, problem.layout, seed=seed, prior=blocks.prior)
        trials_of(answers, problem, sampler, Path(folder)).run(None)
    return answers


def trials_of(answers: Answers, problem: Problem, sampler: BaseSampler, folder: Path) -> Trials:
    """As ``autoquant search`` would run them; ``problem`` is that of the answers, or a part of its space."""
    return Trials(
        study=Study(folder / "study.journal", problem.space, sampler),
        evaluator=answers,
        facts=BenchFacts(float_s={Target().name: 1e-3}, n_samples=1, opening_s=0.0),
        regions=problem.regions,
        space=problem.space,
        deadline=answers.budget,
        on_progress=lambda _: None,
        finish=Finish(n_samples=1, size_bytes=0),
    )


def measure_family(
    name: str, n_regions: int, counts: Sequence[int], *, seeds: int, arms: Sequence[str] = ARMS
) -> dict[str, Any]:
    """Shares of the attainable mean saving by arm, seed and number of evaluations."""
    found: dict[str, Any] = {"regions": n_regions, "attainable": [], "recipes": [], **{arm: [] for arm in arms}}
    for seed in range(seeds):
        for arm in arms:
            blocks = make_blocks(n_regions, FAMILIES[name], seed=seed, is_told=arm == "told")
            best, start = blocks.attainable(), time.perf_counter()
            points = {n: search_blocks(blocks, n_evaluations=n, seed=seed).points for n in counts}
            found[arm].append([mean_saving(points[n]) / best for n in counts])
            shares = " ".join(f"{share:.3f}" for share in found[arm][-1])
            print(f"{name}, {n_regions}, {seed}, {arm}: {shares} {time.perf_counter() - start:.0f} s", file=sys.stderr)
        found["attainable"].append(best)
        found["recipes"].append(mean_saving(points[counts[0]][: 1 + len(blocks.problem.space.schemes)]) / best)
    return found


def render_granularity(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each family, number of regions and arm."""
    rows = []
    for name, part in document["parts"].items():
        for found in part["cases"]:
            for arm in (arm for arm in ARMS if arm in found):
                shares = np.array(found[arm])
                error = shares.std(axis=0, ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else 0 * shares[0]
                cells = [f"{x:.1%} ({e:.1%})" for x, e in zip(shares.mean(axis=0), error, strict=True)]
                rows.append([name, str(found["regions"]), arm, f"{np.mean(found['recipes']):.1%}", *cells])
    counts = next(iter(document["parts"].values()))["settings"]["evaluations"]
    return markdown(("problems", "regions", "patterns", "recipes", *(f"{n} evaluations" for n in counts)), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, write after each case, and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.search.granularity", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("--regions", nargs="+", type=int, default=[40, 100, 200], metavar="N")
    parser.add_argument("--evaluations", nargs="+", type=int, default=[20, 60, 150, 400], metavar="N")
    parser.add_argument("--seeds", type=int, default=10, help="problems of each kind (default: %(default)s)")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="NAME")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM")
    asked = parser.parse_args(arguments)
    for name in asked.families:
        part = new_part("experiments.search.granularity", evaluations=asked.evaluations, seeds=asked.seeds)
        part["cases"] = []
        for n_regions in asked.regions:
            part["cases"].append(measure_family(name, n_regions, asked.evaluations, seeds=asked.seeds, arms=asked.arms))
            write_part(asked.out, name, part)
    print(render_granularity(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # whether the machine is busy has no influence here
    with threadpool_limits(limits=1):  # the matrices are small
        sys.exit(main())
