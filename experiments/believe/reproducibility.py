"""The same search again: how much its result varies, and whether what it says of its files holds in a new process.

``python -m experiments.believe.reproducibility OUT.json FOLDER MODEL [MODEL ...] [--time 60s] [--seeds 5]`` searches
each model with several seeds, each with an empty cache, into FOLDER. The yardstick is the mean latency saving over the
SNR demands 10, 15, ..., 60 dB. Then ``experiments.remeasure``, which has nothing of autoquant, measures every delivered
file in fresh processes: whether its ratio in each of them lies in the interval that the search stated, which is that of
one further process, and its SNR within 0.1 dB. The 95 % interval of the share is as if processes were independent.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.believe.document import markdown, new_part, read_document, share_interval, write_part
from experiments.believe.subjects import Subject, subject_of
from experiments.remeasure import FLOAT, mean_saving
from experiments.results import N_PROCESSES, SNR_LIMIT_DB, read_members, remeasure_alone, run_python, seconds_of

__all__ = ["are_inside", "main", "render_reproducibility"]

SNR_TOLERANCE_DB = 0.1


def search_and_remeasure(subject: Subject, out: Path, *, time_limit: str, seed: int) -> dict[str, Any]:
    """One search, and its files in fresh processes.

    Args:
        subject: The model.
        out: Folder of the run, made anew.
        time_limit: Of the search, such as ``60s``.
        seed: Of the search.

    Returns:
        Raw numbers; ``error`` where the search failed.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    data = ["--calibration", str(subject.calibration), "--evaluation", str(subject.evaluation)]
    asked = ["--out", str(out / "search"), "--time", time_limit, "--threads", "1", "--seed", str(seed), "--quiet"]
    start = time.perf_counter()
    error = run_python(
        ["-m", "autoquant", "search", str(subject.model), *data, *asked],
        out / "search.log",
        timeout_s=3 * seconds_of(time_limit) + 300,
        environment={"AUTOQUANT_CACHE": str(out / "cache")},
    )
    record: dict[str, Any] = {"seed": seed, "seconds": time.perf_counter() - start, "error": error}
    if error:
        return record
    members = [member for member in read_members(out / "search") if member["id"] != FLOAT]
    files = {f"front:{member['id']}": out / "search" / member["path"] for member in members}
    rows = remeasure_alone(subject.model, subject.evaluation, files, threads=1)
    run = json.loads((out / "search" / "run.json").read_text(encoding="utf-8"))
    return record | {
        "n_evaluations": run["n_evaluations"],
        "notes": run["notes"],
        "float_ms": rows[FLOAT].median_ms,
        "members": [_member(member, rows.get(f"front:{member['id']}")) for member in members],
    }


def _member(member: Mapping[str, Any], row: Any) -> dict[str, Any]:
    """What the search said, and what the other process measured; None where the file doesn't run there."""
    latency, worst = next(iter(member["latency"].values())), member["snr_db"]["worst"]
    return {
        "id": member["id"],
        "claimed": {
            "snr_db": SNR_LIMIT_DB if worst is None else worst,
            **{key: latency[key] for key in ("ratio", "ratio_low", "ratio_high", "n_sessions")},
        },
        "measured": None
        if row is None
        else {
            "snr_db": min(max(row.snr_db, -SNR_LIMIT_DB), SNR_LIMIT_DB),
            "ratio": row.ratio,
            "ratio_low": row.ratio_low,
            "ratio_high": row.ratio_high,
            "process_ratios": row.process_ratios,
        },
    }


def are_inside(member: Mapping[str, Any]) -> list[bool]:
    """Whether the ratio of each further process lies in the interval that the search stated for one.

    In reports of before there is no more than the median of three, which varies less.
    """
    claimed, measured = member["claimed"], member["measured"]
    if measured is None:
        return [False] * N_PROCESSES
    ratios = measured.get("process_ratios", [measured["ratio"]])
    return [bool(claimed["ratio_low"] <= ratio <= claimed["ratio_high"]) for ratio in ratios]


def _is_near(member: Mapping[str, Any]) -> bool:
    claimed, measured = member["claimed"], member["measured"]
    return measured is not None and abs(claimed["snr_db"] - measured["snr_db"]) <= SNR_TOLERANCE_DB


def _saving(run: Mapping[str, Any], source: str) -> float:
    found = [member[source] for member in run["members"] if member[source] is not None]
    return mean_saving([(each["snr_db"], each["ratio"]) for each in found])


def render_reproducibility(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model, and one for all."""
    parts = {name: [run for run in part["runs"] if not run["error"]] for name, part in document["parts"].items()}
    rows = [[name, *_cells(runs, len(document["parts"][name]["runs"]))] for name, runs in parts.items()]
    everyone = [member for runs in parts.values() for run in runs for member in run["members"]]
    rows.append(["all", "", "", "", "", "", *_holding(everyone)])
    headings = ("model", "searches", "mean saving claimed", "measured again", "max - min", "standard deviation")
    return markdown((*headings, "members", "ratios of processes in their interval", "95 %", "SNR within 0.1 dB"), rows)


def _cells(runs: Sequence[Mapping[str, Any]], n_asked: int) -> list[str]:
    claimed, measured = ([_saving(run, source) for run in runs] for source in ("claimed", "measured"))
    members = [member for run in runs for member in run["members"]]
    if not runs:
        return [f"0 of {n_asked}", "", "", "", "", *_holding(members)]
    return [
        f"{len(runs)} of {n_asked}",
        f"{np.mean(claimed):.3f}",
        f"{np.mean(measured):.3f}",
        f"{max(measured) - min(measured):.3f}",
        f"{np.std(measured, ddof=1):.3f}" if len(runs) > 1 else "",
        *_holding(members),
    ]


def _holding(members: Sequence[Mapping[str, Any]]) -> list[str]:
    if not members:
        return ["0", "", "", ""]
    inside = [is_inside for member in members for is_inside in are_inside(member)]
    n, n_inside = len(inside), sum(inside)
    low, high = share_interval(n_inside, n)
    near = f"{sum(map(_is_near, members)) / len(members):.0%}"
    return [str(len(members)), f"{n_inside / n:.0%}", f"{low:.0%} to {high:.0%}", near]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.believe.reproducibility", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file, with a part for each model")
    parser.add_argument("folder", type=Path, help="for the runs")
    parser.add_argument("models", type=subject_of, nargs="+", help="example:digits, or folders of the zoo")
    parser.add_argument("--time", default="60s", help="of each search (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="searches of each model (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="two searches of a few seconds: does it work?")
    found = parser.parse_args(arguments)
    if found.quick:
        found.time, found.seeds = "8s", 2
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, measure, write after each run, and print; 1 where a search failed."""
    asked = _parse(arguments)
    folder = asked.folder.expanduser().resolve()
    has_failed = False
    for subject in asked.models:
        part = new_part("experiments.believe.reproducibility", time=asked.time, seeds=asked.seeds) | {"runs": []}
        for seed in range(asked.seeds):
            out = folder / subject.name / f"seed{seed}"
            part["runs"].append(search_and_remeasure(subject, out, time_limit=asked.time, seed=seed))
            write_part(asked.out, subject.name, part)
            error = part["runs"][-1]["error"]
            has_failed |= bool(error)
            print(f"{subject.name}, seed {seed}: {error or 'measured'}", file=sys.stderr)
    print(render_reproducibility(read_document(asked.out)), end="")
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
