"""Whether repeated blocks begin as one decision, and part while a search goes on.

``python -m experiments.search.parting OUT.json RUN [RUN ...]`` takes folders that ``autoquant search`` has written, and
says which share of the pairs of regions of one pattern, and of all pairs, took the same scheme, in mixes that the
search tried early and late. A mix has two schemes at least, each in two regions at least, which one-region probes and
uniform recipes have not. Exit code 2: a folder is no finished run, or no pattern of it repeats.
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autoquant.api.folder import read_json
from autoquant.errors import UsageError
from experiments.believe.document import markdown
from experiments.search.recorded import main_of_runs, read_recorded

__all__ = ["ENDS", "main", "measure_parting", "render_parting"]

ENDS = (0, 20, 50, 100, 200)
"""Between which mixes are told apart, by how many came before; the last ones end with the search."""
_LEAST = 2
"""Regions of a scheme that make it one of a mix."""


def measure_parting(folder: Path) -> dict[str, Any]:
    """Of one run: of each part of its mixes, how many there are and which shares of pairs are alike.

    Raises:
        AutoquantError: It is no finished run, or no pattern of it repeats.
    """
    recorded = read_recorded(folder)
    patterns, codes = recorded.layout.patterns, recorded.found.codes
    first, second = np.triu_indices(len(patterns), 1)
    is_repeated = patterns[first] == patterns[second]
    if not is_repeated.any():
        raise UsageError(f"{folder}: no two regions of its model have one pattern; give the run of another model")
    mixes = codes[[_is_mix(row) for row in codes]]
    is_alike = mixes[:, first] == mixes[:, second]
    return {
        "model": recorded.name,
        "n_regions": len(patterns),
        "n_repeated": int(np.isin(patterns, patterns[first[is_repeated]]).sum()),
        "parts": [
            {"n": len(part), "of_a_pattern": _share(part[:, is_repeated]), "of_all": _share(part)}
            for part in (is_alike[low:high] for low, high in pairwise((*ENDS, None)))
        ],
        "environment": read_json(folder / "run.json", "give a finished run")["environment"],
    }


def _is_mix(codes: npt.NDArray[np.integer[Any]]) -> bool:
    counts = np.unique(codes, return_counts=True)[1]
    return int((counts >= _LEAST).sum()) >= _LEAST


def _share(is_alike: npt.NDArray[np.bool_]) -> float | None:
    return float(is_alike.mean()) if is_alike.size else None


def render_parting(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each run."""
    spans = [f"{low} to {high}" for low, high in pairwise(ENDS)] + [f"from {ENDS[-1]}"]
    headings = ("model", "regions", "with a like", *(f"mixes {span}" for span in spans))
    rows = [
        [run["model"], str(run["n_regions"]), str(run["n_repeated"]), *map(_told, run["parts"])]
        for part in document["parts"].values()
        for run in part["runs"]
    ]
    return markdown(headings, rows)


def _told(part: Mapping[str, Any]) -> str:
    return f"{part['of_a_pattern']:.0%}, {part['of_all']:.0%}" if part["n"] else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Read each run, write and print."""
    return main_of_runs("parting", __doc__, measure_parting, render_parting, arguments)


if __name__ == "__main__":
    sys.exit(main())
