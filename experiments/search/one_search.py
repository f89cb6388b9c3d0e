"""One search with a sampler of ``experiments.search.contenders``.

``python -m experiments.search.one_search MODEL CALIBRATION EVALUATION OUT SAMPLER [--time 60] [--seed 0]``.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from autoquant import AutoquantError, Budget, search
from experiments.search.ablated import without
from experiments.search.contenders import ABLATED, CONTENDERS, contender, part_of

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Search; 2 on bad input."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(prog="python -m experiments.search.one_search", description=__doc__)
    for name in ("model", "calibration", "evaluation", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("sampler", choices=(*CONTENDERS, *ABLATED))
    parser.add_argument("--time", type=float, default=60, metavar="SECONDS", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    a = parser.parse_args(arguments)
    try:
        with without(part_of(a.sampler)):
            search(
                a.model,
                calibration=a.calibration,
                evaluation=a.evaluation,
                budget=Budget(seconds=a.time),
                out=a.out,
                seed=a.seed,
                sampler=contender(a.sampler, a.seed),
                spent_s=time.perf_counter() - started,
            )
    except AutoquantError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
