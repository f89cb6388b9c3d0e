"""What asking the sampler costs, by the number of regions, trials, targets and outputs.

``python -m experiments.search.asking OUT.json [--passes 3]`` fills studies with evaluations of an additive problem made
at random, in which every region may take every scheme of the default space, and takes the processor time of the
proposals after them, which one thread makes: the first one fits all evaluations, the following ones each one more.
Cases take turns, and of the passes of each that with the lowest median counts: what runs beside them makes processor
time longer too.
Exit code 1: with 40 regions and 500 trials a proposal takes 50 ms or more in the median, with 200 regions 500 ms.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, create_trial
from threadpoolctl import threadpool_limits

from autoquant.domain.region import RegionId
from autoquant.space.schema import read_space
from autoquant.study.layout import Codes, Layout
from autoquant.study.sampler import StructureSampler
from experiments.believe.document import markdown, new_part, read_document, write_part

__all__ = ["main", "measure_asking", "render_asking"]

SCHEMES = read_space("default", ep="cpu").schemes
N_SCHEMES = 1 + len(SCHEMES)
N_PROPOSALS = 20
Case = tuple[int, int, int, int, int]
CASES: tuple[Case, ...] = (
    (40, 500, 1, 1, 1),
    (40, 500, 1, 3, 1),
    (40, 500, 3, 3, 1),
    (40, 500, 1, 1, 16),
    (100, 500, 1, 1, 1),
    (200, 500, 1, 1, 1),
    (200, 500, 3, 3, 1),
)
"""Regions, trials, targets, outputs, and how far a region reaches: it touches so many of those before it."""
LIMITS_MS = {40: 50.0, 200: 500.0}


def measure_asking(case: Case, *, n_proposals: int = N_PROPOSALS) -> dict[str, Any]:
    """Milliseconds of processor time of the proposals after a study's trials, ``first`` and ``following``."""
    n_regions, n_trials, n_targets, n_outputs, reach = case
    rng = np.random.default_rng(0)
    layout = _layout(n_regions, reach, rng)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = StructureSampler(layout, seed=0)
    study = optuna.create_study(
        directions=[StudyDirection.MAXIMIZE, *[StudyDirection.MINIMIZE] * n_targets], sampler=sampler
    )
    distributions = {str(region): CategoricalDistribution(layout.schemes) for region in layout.regions}
    noise = 10 ** rng.uniform(-6, -3, (n_outputs, n_regions, N_SCHEMES))
    for _ in range(n_trials):
        codes = rng.integers(0, N_SCHEMES, n_regions) * (rng.random(n_regions) < rng.random())
        study.add_trial(_evaluated(layout, distributions, codes, noise, n_targets, rng))
    seconds = []
    for _ in range(n_proposals):
        start = time.process_time()
        trial = study.ask({**distributions})
        seconds.append(time.process_time() - start)
        codes = layout.encode(trial.params)
        found = _evaluated(layout, distributions, codes, noise, n_targets, rng)
        for key, value in found.user_attrs.items():
            trial.set_user_attr(key, value)
        study.tell(trial, found.values)
    return {"case": list(case), "first_ms": seconds[0] * 1e3, "following_ms": [s * 1e3 for s in seconds[1:]]}


def _layout(n_regions: int, reach: int, rng: np.random.Generator) -> Layout:
    """With a reach of 1 a chain where every third region also touches the one after the next."""
    edges = [(i, i + k) for k in range(1, reach + 1) for i in range(n_regions - k)]
    edges += [(i, i + 2) for i in range(0, n_regions - 2, 3) if reach == 1]
    regions = [RegionId(f"r{i:03d}") for i in range(n_regions)]
    schemes = {scheme.name: scheme for scheme in SCHEMES}
    return Layout.of(
        dict.fromkeys(regions, ("float", *schemes)),
        schemes,
        [(regions[a], regions[b]) for a, b in edges],
        dict(zip(regions, rng.dirichlet(np.ones(n_regions)).tolist(), strict=True)),
        patterns={region: str(i % (n_regions // 5)) for i, region in enumerate(regions)},
    )


def _evaluated(
    layout: Layout,
    distributions: Mapping[str, CategoricalDistribution],
    codes: Codes,
    noise: np.ndarray,
    n_targets: int,
    rng: np.random.Generator,
) -> FrozenTrial:
    rows = np.arange(len(codes))
    snr_db = -10 * np.log10((noise[:, rows, codes] * (codes > 0)).sum(axis=1) + 1e-12)
    ratio = 1 - 0.5 * float((codes > 0) @ layout.work)
    ratios = [ratio + 0.01 * rng.standard_normal() for _ in range(n_targets)]
    return create_trial(
        params=layout.decode(codes),
        distributions=dict(distributions),
        values=[float(snr_db.min()), *ratios],
        user_attrs={"snr_by_output": snr_db.tolist(), "ratio_error": 0.01},
    )


def render_asking(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each case."""
    rows = [
        [*map(str, found["case"]), f"{found['first_ms']:.0f}", f"{_median_ms(found):.0f}"]
        for part in document["parts"].values()
        for found in part["cases"]
    ]
    headings = ("regions", "trials", "targets", "outputs", "reach", "first proposal, ms", "following ones, median ms")
    return markdown(headings, rows)


def holds(part: Mapping[str, Any]) -> bool:
    """Whether proposals take less than is demanded."""
    limited = [case for case in part["cases"] if case["case"][0] in LIMITS_MS]
    return all(_median_ms(found) < LIMITS_MS[found["case"][0]] for found in limited)


def _median_ms(found: Mapping[str, Any]) -> float:
    return float(statistics.median(found["following_ms"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every case, write and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.search.asking", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("--passes", type=int, default=3, help="over all cases (default: %(default)s)")
    asked = parser.parse_args(arguments)
    with threadpool_limits(limits=1):
        passes = [[measure_asking(case) for case in CASES] for _ in range(asked.passes)]
    part = new_part("experiments.search.asking", passes=asked.passes)
    part["cases"] = [min(found, key=_median_ms) for found in zip(*passes, strict=True)]
    write_part(asked.out, "asking", part)
    print(render_asking(read_document(asked.out)), end="")
    return 0 if holds(part) else 1


if __name__ == "__main__":
    sys.exit(main())
