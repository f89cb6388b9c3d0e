"""How near to the true front samplers come after few evaluations.

``python -m experiments.search.optimum TABLE.npz OUT.json [--seeds 20] [--samplers NAME ...] [--fitted]`` replays on a
table that ``experiments.search.enumerate`` made, and compares hypervolume (``experiments.search.yardsticks``) and mean
saving of what they evaluated with those of all assignments, after 0.5, 1, 2 and 5 % of the assignments. An assignment
that is proposed again is not counted again. *Without luck* the same evaluations are judged by ratios that are fitted to
the whole table (``experiments.search.luck``); with ``--fitted`` these are what is searched. OUT.json has a part for
each table, and for each that is fitted. Exit code 1: the structure sampler has less than 99 % of the hypervolume after
2 %, in the median over seeds; 2: the table is missing or not complete.
"""

import argparse
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from autoquant.domain.sampler import SamplerName
from autoquant.errors import AutoquantError
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.search.contenders import CONTENDERS, contender
from experiments.search.luck import without_luck
from experiments.search.replay import replay
from experiments.search.table import Table, load_table
from experiments.search.yardsticks import CEILING_DB, FLOOR_DB, hypervolume, improvements, mean_saving

__all__ = ["SHARES", "holds", "main", "measure_sampler", "render_optimum"]

SHARES = (0.005, 0.01, 0.02, 0.05)
DEMANDED_SHARE, DEMANDED_HYPERVOLUME = 0.02, 0.99


def measure_sampler(table: Table, name: str, *, seeds: int) -> dict[str, Any]:
    """Replay with one sampler.

    Returns:
        Of each seed ``hypervolume``, that ``without_luck`` and ``saving`` by share of the assignments, as shares of
        what is attainable;
        ``n_to_99``: evaluations after which 99 % of the hypervolume was there, None where that took more than 5 %;
        ``seconds``: of all replays.
    """
    points = table.points()
    expected = without_luck(table)[0].points()
    best = hypervolume(points), hypervolume(expected), mean_saving(points)
    counts = [max(1, int(share * len(points))) for share in SHARES]
    found: dict[str, Any] = {"hypervolume": [], "without_luck": [], "saving": [], "n_evaluated": [], "n_to_99": []}
    start = time.perf_counter()
    for seed in range(seeds):
        rows = replay(table, contender(name, seed), n_evaluations=counts[-1], seed=seed)
        own = [points[row] for row in rows]
        found["hypervolume"].append([_share(hypervolume(own[:n]), best[0]) for n in counts])
        found["without_luck"].append([_share(hypervolume(expected[row] for row in rows[:n]), best[1]) for n in counts])
        found["saving"].append([_share(mean_saving(own[:n]), best[2]) for n in counts])
        found["n_evaluated"].append(len(rows))
        near = (i + 1 for i, area in improvements(own) if area >= DEMANDED_HYPERVOLUME * best[0])
        found["n_to_99"].append(next(near, None))
    return found | {"seconds": time.perf_counter() - start}


def _share(value: float, best: float) -> float:
    return value / best if best > 0 else 1.0


def holds(part: Mapping[str, Any]) -> bool:
    """Whether ours has 99 % of the hypervolume after 2 % of the assignments, in the median over seeds."""
    ours = part["samplers"].get(SamplerName.STRUCTURE)
    if ours is None:
        return True
    column = SHARES.index(DEMANDED_SHARE)
    return bool(np.median([row[column] for row in ours["hypervolume"]]) >= DEMANDED_HYPERVOLUME)


def render_optimum(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each table and sampler."""
    rows = [
        [name, sampler, *_cells(found), _luck_cell(part["luck"])]
        for name, part in document["parts"].items()
        for sampler, found in part["samplers"].items()
    ]
    headings = [f"hypervolume after {share:.1%}" for share in SHARES]
    headings += [f"without luck after {DEMANDED_SHARE:.1%}", f"mean saving after {DEMANDED_SHARE:.1%}"]
    last = "error of a ratio, and as its rounds say"
    return markdown(("table", "sampler", *headings, "evaluations to 99 %", "seconds a replay", last), rows)


def _luck_cell(luck: Mapping[str, float]) -> str:
    return f"{luck['error']:.4f}, {luck['said']:.4f}"


def _cells(found: Mapping[str, Any]) -> list[str]:
    areas, column = np.array(found["hypervolume"]), SHARES.index(DEMANDED_SHARE)
    to_99 = float(np.median([np.inf if n is None else n for n in found["n_to_99"]]))
    return [
        *(_quartiles(areas[:, i]) for i in range(areas.shape[1])),
        *(_quartiles(np.array(found[key])[:, column]) for key in ("without_luck", "saving")),
        f"{to_99:.0f}" if np.isfinite(to_99) else f"more than {max(found['n_evaluated'])}",
        f"{found['seconds'] / len(areas):.1f}",
    ]


def _quartiles(values: npt.NDArray[np.float64]) -> str:
    """Median, and the quartiles."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{median:.1%} ({low:.1%} to {high:.1%})"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.search.optimum", description=__doc__)
    parser.add_argument("table", type=Path, help=".npz file of experiments.search.enumerate")
    parser.add_argument("out", type=Path, help="JSON file, with a part for each table")
    parser.add_argument("--seeds", type=int, default=20, help="replays of each sampler (default: %(default)s)")
    parser.add_argument("--samplers", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), metavar="NAME")
    parser.add_argument("--fitted", action="store_true", help="search the table without the luck of its ratios")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, write after each sampler, and print."""
    asked = _parse(arguments)
    try:
        table, title = load_table(asked.table), asked.table.stem
        if asked.fitted:
            table, title = without_luck(table)[0], f"{title}, fitted"
        part = _new_part(table, asked.seeds)
        for name in asked.samplers:
            part["samplers"][name] = measure_sampler(table, name, seeds=asked.seeds)
            write_part(asked.out, title, part)
            print(f"{title}, {name}: {part['samplers'][name]['seconds']:.0f} s", file=sys.stderr)
    except AutoquantError as error:
        print(f"experiments.search.optimum: {error}", file=sys.stderr)
        return 2
    print(render_optimum(read_document(asked.out)), end="")
    return 0 if holds(part) else 1


def _new_part(table: Table, seeds: int) -> dict[str, Any]:
    points = table.points()
    return new_part("experiments.search.optimum", seeds=seeds, shares=list(SHARES)) | {
        "table": dict(table.about),
        "reference": {"snr_db": FLOOR_DB, "ratio": 1.0, "snr_ceiling_db": CEILING_DB},
        "n_assignments": len(points),
        "n_graphs": len(table.ratio),
        "attainable": {"hypervolume": hypervolume(points), "saving": mean_saving(points)},
        "luck": asdict(without_luck(table)[1]),
        "samplers": {},
    }


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # whether the machine is busy has no influence on a replay
    with threadpool_limits(limits=1):  # the matrices are small
        sys.exit(main())
