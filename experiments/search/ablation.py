"""What each part of the search by structure contributes: the whole one, and with one part off at a time.

``python -m experiments.search.ablation replayed OUT.json [--tables TABLE.npz ...] [--families NAME ...] [--regions 40]
[--evaluations 20 40 80] [--seeds 20]`` measures nothing: it searches tables of ``experiments.search.enumerate`` again,
and synthetic problems of repeated blocks (``experiments.search.blocks``), which have what tables of six regions lack:
profiles, likes, several ranges, stages of an evaluation. It compares hypervolume (``experiments.search.yardsticks``) of
what was evaluated with that of the true front; of a synthetic problem that is the lower hull of what adds up, which
misfits may exceed. There an evaluation that is stopped before it is timed takes 0.4 of the time of one, and one for
noise alone 0.5.

``python -m experiments.search.ablation real ZOO OUT MODEL ... [--time 60s] [--seeds 3]`` searches models at equal
wall-clock as ``experiments.search.versus`` does, and measures all files of one seed together.

Differences are paired by seed, with the standard error of their mean. ``experiments.search.parts`` says what is off.
Exit code 1: a search failed; 2: bad input.
"""

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from autoquant.errors import AutoquantError
from autoquant.isolation.process import memory_folder
from autoquant.study.sampler import StructureSampler
from autoquant.study.samplers import least_ratios_of
from autoquant.study.study import quiet
from experiments.believe.document import markdown, new_part, place, read_document, write_part
from experiments.believe.subjects import subject_of
from experiments.results import seconds_of
from experiments.search.blocks import FAMILIES, Answers, Blocks, Budget, make_blocks
from experiments.search.contenders import ABLATED, part_of
from experiments.search.granularity import trials_of
from experiments.search.parts import Part, layout_without, narrowed, one_range_each, prior_without, switch_off
from experiments.search.replay import replay
from experiments.search.table import Table, load_table
from experiments.search.versus import run_seed
from experiments.search.yardsticks import hypervolume

__all__ = ["main", "render_real", "render_replayed", "search_blocks_without", "shares_of_blocks", "shares_of_table"]

WHOLE = "structure"
VARIANTS = (WHOLE, *ABLATED)
OF_TABLES = (None, Part.PROBES, Part.BORDERS)
"""What tables can tell of: they have neither profiles nor stages nor several ranges, and no two regions are alike."""
OF_BLOCKS = (None, *(part for part in Part if part not in (Part.ERRORS, Part.FINENESS)))
"""Nothing in them is quantized, and they have the regions that they are made of."""
Shares = list[list[float]]
"""By seed and number of evaluations."""


def shares_of_table(table: Table, part: Part | None, counts: Sequence[int], *, seeds: int) -> Shares:
    """Hypervolume of the first evaluations of each replay, as a share of that of all assignments."""
    points, found = table.points(), []
    best = hypervolume(points)
    for seed in range(seeds):
        sampler = StructureSampler(layout_without(part, table.problem.layout), seed=seed)
        rows = replay(table, sampler, n_evaluations=max(counts), seed=seed, has_probes=part is not Part.PROBES)
        found.append([hypervolume(points[row] for row in rows[:n]) / best for n in counts])
    return found


def shares_of_blocks(name: str, n_regions: int, part: Part | None, counts: Sequence[int], *, seeds: int) -> Shares:
    """The same of searches with the time for so many evaluations, one problem for each seed."""
    found = []
    for seed in range(seeds):
        blocks = make_blocks(n_regions, FAMILIES[name], seed=seed)
        best = hypervolume(blocks.front())
        searches = [search_blocks_without(blocks, part, n_evaluations=n, seed=seed) for n in counts]
        found.append([hypervolume(answers.points) / best for answers in searches])
    return found


def search_blocks_without(blocks: Blocks, part: Part | None, *, n_evaluations: int, seed: int) -> Answers:
    """Search, in stages; there is as much time as so many evaluations take that are timed to the end."""
    answers, problem = Answers(blocks, Budget(seconds=n_evaluations + 0.25)), blocks.problem
    if part is Part.RANGES:
        problem = replace(problem, space=narrowed(problem.space, one_range_each(problem.space.schemes.values())))
    prior = prior_without(part, blocks.prior)
    sampler = StructureSampler(layout_without(part, problem.layout), seed=seed, prior=prior)
    with TemporaryDirectory(prefix="blocks-", dir=memory_folder()) as folder, quiet():
        trials = trials_of(answers, problem, sampler, Path(folder))
        trials.has_prior, trials.least_ratios = prior is not None, least_ratios_of(sampler)
        switch_off(part, trials)
        trials.run(None)
    return answers


def render_replayed(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each problem and part that is off."""
    counts = sorted({n for part in document["parts"].values() for n in part["settings"]["evaluations"]})
    rows = []
    for name, part in document["parts"].items():
        for variant, shares in part["shares"].items():
            means = dict(zip(part["settings"]["evaluations"], np.mean(shares, axis=0), strict=True))
            loss = "" if variant == WHOLE else _mean(np.subtract(shares, part["shares"][WHOLE])[:, -1])
            rows.append([name, variant, *(f"{means[n]:.1%}" if n in means else "" for n in counts), loss])
    headings = [f"hypervolume after {n}" for n in counts]
    return markdown(("problem", "search", *headings, "difference after the last"), rows)


def render_real(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model and search, those of all models together, and where it was measured."""
    rows, differences = [], dict[str, list[tuple[float, float]]]()
    for model, part in document["parts"].items():
        runs = {(run["sampler"], run["seed"]): run for run in part["runs"] if not run["error"]}
        for variant in part["settings"]["samplers"]:
            own = [run for (sampler, _), run in runs.items() if sampler == variant]
            pairs = [(run, runs[WHOLE, run["seed"]]) for run in own if (WHOLE, run["seed"]) in runs]
            found = [_difference(*pair) for pair in pairs] if variant != WHOLE else []
            differences.setdefault(variant, []).extend(found)
            rows.append([model, variant, *_cells(own), *_differences(found)])
    rows += [["all", variant, "", "", "", *_differences(found)] for variant, found in differences.items() if found]
    headings = ("model", "search", "trials", "mean saving", "hypervolume of the files")
    places = {place(part["environment"]) for part in document["parts"].values()}
    table = markdown((*headings, "difference of the saving", "of the hypervolume"), rows)
    return table + "\n" + "\n".join(sorted(places)) + "\n"


def _difference(run: Mapping[str, Any], whole: Mapping[str, Any]) -> tuple[float, float]:
    """Of the saving, and of the hypervolume as a share of that of the whole, NaN where the whole has none."""
    area = run["hypervolume"] / whole["hypervolume"] - 1 if whole["hypervolume"] else float("nan")
    return run["saving"] - whole["saving"], area


def _cells(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    if not runs:
        return ["", "", ""]
    n_trials, saving, area = (np.mean([run[key] for run in runs]) for key in ("n_trials", "saving", "hypervolume"))
    return [f"{n_trials:.0f}", f"{saving:.3f}", f"{area:.1f}"]


def _differences(found: Sequence[tuple[float, float]]) -> list[str]:
    return [_mean(np.array(column)) for column in zip(*found, strict=True)] or ["", ""]


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    """Mean of what is known and its standard error, in percent; of one value no error is known."""
    values = values[np.isfinite(values)]
    if not len(values):
        return ""
    error = f" ({values.std(ddof=1) / np.sqrt(len(values)):.1%})" if len(values) > 1 else ""
    return f"{values.mean():+.1%}{error}"


def measure_replayed(asked: argparse.Namespace) -> int:
    """Search tables and problems, write after each variant, and print."""
    settings = {"evaluations": asked.evaluations, "seeds": asked.seeds}
    for path in asked.tables:
        table = load_table(path)
        part = new_part("experiments.search.ablation", **settings) | {"shares": {}}
        for off in OF_TABLES:
            part["shares"][_variant(off)] = shares_of_table(table, off, asked.evaluations, seeds=asked.seeds)
            write_part(asked.out, path.stem, part)
    for name in asked.families:
        for n_regions in asked.regions:
            part = new_part("experiments.search.ablation", **settings) | {"shares": {}}
            for off in OF_BLOCKS:
                shares = shares_of_blocks(name, n_regions, off, asked.evaluations, seeds=asked.seeds)
                part["shares"][_variant(off)] = shares
                write_part(asked.out, f"{name}, {n_regions} regions", part)
                print(f"{name}, {n_regions}, {_variant(off)}: {np.mean(shares, axis=0)}", file=sys.stderr)
    print(render_replayed(read_document(asked.out)), end="")
    return 0


def _variant(off: Part | None) -> str:
    return next(name for name in VARIANTS if part_of(name) is off)


def measure_real(asked: argparse.Namespace) -> int:
    """Search and measure models, write after each seed, and print."""
    subjects = [subject_of(name if ":" in name else str(asked.zoo / name)) for name in asked.models]
    seconds, out, has_failed = seconds_of(asked.time), asked.out.expanduser().resolve(), False
    settings = {"seconds": seconds, "seeds": asked.seeds, "samplers": [WHOLE, *asked.searches]}
    for subject in subjects:
        part = new_part("experiments.search.ablation", **settings) | {"runs": []}
        lasting = dict.fromkeys(settings["samplers"], seconds)
        for seed in range(asked.seeds):
            part["runs"] += run_seed(subject, out / subject.name, list(lasting), seconds=lasting, seed=seed)
            write_part(out / "ablation.json", subject.name, part)
        has_failed |= any(run["error"] for run in part["runs"])
    text = render_real(read_document(out / "ablation.json"))
    (out / "ablation.md").write_text(text, encoding="utf-8")
    print(text, end="")
    return 1 if has_failed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.search.ablation", description=__doc__)
    layers = parser.add_subparsers(required=True)
    replayed = layers.add_parser("replayed", help="without measuring")
    replayed.set_defaults(measure=measure_replayed)
    replayed.add_argument("out", type=Path, help="JSON file")
    replayed.add_argument("--tables", nargs="+", type=Path, default=[], metavar="TABLE.npz")
    replayed.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="NAME")
    replayed.add_argument("--regions", nargs="+", type=int, default=[40], metavar="N")
    replayed.add_argument("--evaluations", nargs="+", type=int, default=[20, 40, 80], metavar="N")
    replayed.add_argument("--seeds", type=int, default=20, help="default: %(default)s")
    real = layers.add_parser("real", help="on models, at equal wall-clock")
    real.set_defaults(measure=measure_real)
    real.add_argument("zoo", type=Path, help="folder that experiments.zoo made")
    real.add_argument("out", type=Path, help="folder for the results")
    real.add_argument("models", nargs="+", metavar="MODEL", help="folders in ZOO, or example:digits")
    real.add_argument("--time", default="60s", help="of each search (default: %(default)s)")
    real.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
    real.add_argument("--searches", nargs="+", choices=ABLATED, default=list(ABLATED), metavar="NAME")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one layer."""
    asked = _parse(arguments)
    try:
        measured: int = asked.measure(asked)
    except (AutoquantError, argparse.ArgumentTypeError, ValueError) as error:
        print(f"experiments.search.ablation: {error}", file=sys.stderr)
        return 2
    return measured


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # whether the machine is busy has no influence on what is replayed
    with threadpool_limits(limits=1):  # the matrices are small
        sys.exit(main())
