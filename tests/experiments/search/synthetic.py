"""A table as ``experiments.search.enumerate`` would write it, of a problem with additive noise and costly borders."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from autoquant.domain.region import Region, RegionId
from autoquant.domain.scheme import Operators
from autoquant.domain.space import SearchSpace
from experiments.search.table import FAILED, Problem, Table
from tests.records import a_region
from tests.unit.study.layouts import a_scheme

__all__ = ["a_problem", "a_table"]

NAMES = ("a", "b")


def a_problem(n_regions: int) -> Problem:
    """A chain; the last region may take one scheme only."""
    ids = [RegionId(f"r{i}") for i in range(n_regions)]
    regions: list[Region] = [replace(a_region(region), work=1 / n_regions) for region in ids]
    choices = dict.fromkeys(ids[:-1], ("float", *NAMES)) | {ids[-1]: ("float", "a")}
    return Problem(
        regions=tuple(regions),
        space=SearchSpace(choices=choices, schemes={"a": a_scheme("a"), "b": a_scheme("b", Operators.LINEAR)}),
        borders=tuple(pairwise(ids)),
        outputs=("y", "z"),
    )


def a_table(n_regions: int = 6, *, seed: int = 0, error: float = 0.003) -> Table:
    """Every assignment.

    Where the first region takes ``b`` it runs what it runs under ``a``, and ``a`` everywhere cannot be run.

    Args:
        n_regions: Of the chain.
        seed: Of what regions cost and of the measurement errors.
        error: Standard deviation of a ratio.
    """
    rng = np.random.default_rng(seed)
    problem = a_problem(n_regions)
    codes = rng.permutation(problem.every_assignment())
    effective = codes.copy()
    effective[effective[:, 0] == 2, 0] = 1
    graphs, graph = np.unique(effective, axis=0, return_inverse=True)
    graph = graph.reshape(-1)
    noise = 10 ** rng.uniform(-6, -2, (2, n_regions, 3)) * np.array([0, 1, 0.3])
    rows = np.arange(n_regions)
    powers = noise[:, rows, graphs].sum(axis=2).T + 1e-12
    saved = rng.dirichlet(np.ones(n_regions))[:, None] * np.array([0, 0.7, 0.5])
    borders = ((graphs[:, 1:] > 0) != (graphs[:, :-1] > 0)).sum(axis=1)
    ratio = 1 - saved[rows, graphs].sum(axis=1) + 0.02 * borders + error * rng.standard_normal(len(graphs))
    failing = int(np.flatnonzero((codes == 1).all(axis=1))[0])
    return Table(
        problem=problem,
        about={"model": "chain", "environment": {"cpu": "none"}},
        failures={failing: "RuntimeError: no kernel"},
        codes=codes,
        graph=np.where(np.arange(len(codes)) == failing, FAILED, graph).astype(np.int32),
        digests=np.arange(len(graphs), dtype=np.uint64),
        snr_db=(-10 * np.log10(powers)).astype(np.float32),
        ratio=np.stack([ratio, ratio - 2 * error, ratio + 2 * error], axis=1).astype(np.float32),
        effective=graphs,
        rounds=np.full(len(graphs), 6, np.int32),
    )
