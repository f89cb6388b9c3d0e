"""How often intervals of few sessions hold the truth, where sessions disturb all files together and each by itself.

``python -m experiments.believe.coverage [--draws 400] [--files 1 2 5 10 20] [--aa AA.json]`` simulates logarithms of
medians as a common effect of each session plus an own one of each file. In ratios to the float model the common effect
is at least the float model's own, so that a float model as unsteady as the files is the case 1 of common to own. Three
rules are compared: that of ``autoquant.measurement.intervals``, the same as if files were independent (four degrees of
freedom more, whatever they have in common), and each file by itself. Half intervals are in units of one session's
spread. A second table has what ``shown_faster`` says of ten models that are all equally fast. With the AA.json of
``experiments.believe.aa`` a third one has the ratio of common to own effects that copies of a model had.
"""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from autoquant.measurement.differences import shown_faster
from autoquant.measurement.intervals import session_intervals
from autoquant.measurement.latency import REFERENCE, Timings
from experiments.believe.document import markdown

__all__ = ["RULES", "common_to_own", "draw", "main", "render_copies", "render_coverage", "render_shown"]

N_SESSIONS = (2, 3, 5)
N_FILES = (1, 2, 5, 10, 20)
RATIOS = (0.0, 0.5, 1.0, 1.6, 3.3, 100.0)
SPREAD = 0.01
N_COPIES = 4
Floats = npt.NDArray[np.float64]


def draw(rng: np.random.Generator, n_files: int, n_sessions: int, ratio: float) -> Floats:
    """Logarithms of medians, shape (n_files, n_sessions), truth 0 and standard deviation ``SPREAD``.

    Own spreads differ from file to file by a third, more or less.
    """
    own = SPREAD / math.hypot(1.0, ratio)
    spreads = own * np.exp(0.3 * rng.standard_normal((n_files, 1)))
    common = ratio * own * rng.standard_normal(n_sessions)
    return np.asarray(common + spreads * rng.standard_normal((n_files, n_sessions)))


def _now(logs: Floats) -> tuple[Floats, Floats]:
    found = session_intervals(dict(enumerate(np.exp(logs))))
    own = [math.log(each.high / each.value) for each in found.values()]
    return np.array(own), np.array([math.log(each.next_high / each.value) for each in found.values()])


def _as_if_independent(logs: Floats) -> tuple[Floats, Floats]:
    n_files, n = logs.shape
    prior = 4 if n_files > 1 else 0
    own = np.var(logs, axis=1, ddof=1)
    return _student((prior * own.mean() + (n - 1) * own) / (prior + n - 1), prior + n - 1, n)


def _alone(logs: Floats) -> tuple[Floats, Floats]:
    return _student(np.var(logs, axis=1, ddof=1), logs.shape[1] - 1, logs.shape[1])


def _student(variances: Floats, freedom: int, n: int) -> tuple[Floats, Floats]:
    half = float(stdtrit(freedom, 0.975)) * np.sqrt(variances)
    return half / math.sqrt(n), half * math.sqrt(1 + 1 / n)


RULES: Mapping[str, Callable[[Floats], tuple[Floats, Floats]]] = {
    "ours": _now,
    "as if independent": _as_if_independent,
    "each alone": _alone,
}
"""Half the intervals of the mean and of the next session, of 95 %, from logarithms of shape (files, sessions)."""


def render_coverage(n_draws: int, seed: int, n_files: Sequence[int] = N_FILES) -> str:
    """Markdown: coverage of the mean, of the next session, and the median half interval of the mean, by rule."""
    headings = ["sessions", "files", "common / own"]
    headings += [f"{name}: {what}" for name in RULES for what in ("mean", "next", "half")]
    return markdown(headings, _coverage_rows(n_draws, n_files, np.random.default_rng(seed)))


def _coverage_rows(n_draws: int, n_files: Sequence[int], rng: np.random.Generator) -> Iterator[list[str]]:
    for n_sessions, n in itertools.product(N_SESSIONS, n_files):
        for ratio in RATIOS if n > 1 else RATIOS[:1]:  # alone a file cannot tell them apart
            drawn = [draw(rng, n, n_sessions + 1, ratio) for _ in range(n_draws)]
            cells = [cell for rule in RULES.values() for cell in _cells(drawn, rule)]
            yield [str(n_sessions), str(n), f"{ratio:g}" if n > 1 else "", *cells]


def _cells(drawn: Sequence[Floats], rule: Callable[[Floats], tuple[Floats, Floats]]) -> list[str]:
    found = [rule(logs[:, :-1]) for logs in drawn]
    means = [logs[:, :-1].mean(axis=1) for logs in drawn]
    half = np.array([own for own, _ in found])
    is_inside = np.abs(means) <= half
    is_next = [np.abs(logs[:, -1] - m) <= n for logs, m, (_, n) in zip(drawn, means, found, strict=True)]
    return [f"{np.mean(is_inside):.3f}", f"{np.mean(is_next):.3f}", f"{np.median(half) / SPREAD:.1f}"]


def render_shown(n_draws: int, seed: int, n_files: int = 10) -> str:
    """Markdown: the share of pairs of equal models of which one is shown to be faster."""
    rng, rows = np.random.default_rng(seed), []
    for n_sessions in N_SESSIONS:
        for ratio in RATIOS:
            counts = np.sum([_shown(draw(rng, n_files, n_sessions, ratio)) for _ in range(n_draws)], axis=0) / n_draws
            shares = counts / (n_files * (n_files - 1) / 2, n_files, 1)
            rows.append([str(n_sessions), f"{ratio:g}", *(f"{share:.1%}" for share in shares)])
    return markdown(("sessions", "common / own", "two files", "file and float", "any file and float"), rows)


def _shown(logs: Floats) -> tuple[int, int, bool]:
    """Pairs of files, files against the float model, and whether there is one of those."""
    names = [*map(str, range(len(logs))), REFERENCE]
    timings = {name: Timings() for name in names}
    for session, values in enumerate(np.exp(logs).T):
        for name, value in zip(names, [*values, 1.0], strict=True):
            timings[name].add([value], [1.0], session)
    found = shown_faster(timings, seed=0)
    n_float = len(found[REFERENCE]) + sum(REFERENCE in others for others in found.values())
    return sum(map(len, found.values())) - n_float, n_float, n_float > 0


def render_copies(document: Mapping[str, Any]) -> str:
    """Markdown: what sessions did to all copies of a model and to each by itself, as standard deviations."""
    rows = []
    for condition, part in document["parts"].items():
        for name in dict.fromkeys(each["model"] for each in part["measurements"]):
            found = [each for each in part["measurements"] if each["model"] == name]
            common, own = common_to_own(found)
            rows.append([condition, name, str(len(found)), f"{common:.2%}", f"{own:.2%}", f"{common / own:.2f}"])
    return markdown(("condition", "model", "measurements", "common", "own", "common / own"), rows)


def common_to_own(measurements: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Standard deviations of both effects on a ratio in one session, where every true ratio is 1."""
    found = [
        math.sqrt(each["n_sessions"]) * np.log([comparison["ratio"] for comparison in each["comparisons"]])
        for each in measurements
        if len(each["comparisons"]) == N_COPIES and each["n_sessions"] > 1
    ]
    own = float(np.mean([np.var(values, ddof=1) for values in found]))
    common = float(np.mean([np.mean(values) ** 2 for values in found])) - own / N_COPIES
    return math.sqrt(max(common, 0.0)), math.sqrt(own)


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.believe.coverage", description=__doc__)
    parser.add_argument("--draws", type=int, default=400, help="of each case (default: %(default)s)")
    parser.add_argument("--files", type=int, nargs="+", default=N_FILES, help="of the first table (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--aa", type=Path, help="JSON file of experiments.believe.aa")
    asked = parser.parse_args(arguments)
    print(render_coverage(asked.draws, asked.seed, asked.files))
    print(render_shown(asked.draws, asked.seed), end="")
    if asked.aa is not None:
        print("\n" + render_copies(json.loads(asked.aa.read_text(encoding="utf-8"))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
