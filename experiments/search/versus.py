"""Samplers against each other in the same pipeline, at equal wall-clock.

``python -m experiments.search.versus ZOO OUT MODEL [MODEL ...] [--time 60s] [--ours-time 12s] [--seeds 3]
[--samplers NAME ...]`` searches each model with each sampler and seed, everything else alike and nothing calibrated
before; the samplers of one seed follow each other in random order. MODEL is the name of a folder in ZOO, or
``example:digits``. Then ``experiments.remeasure``, which has nothing of autoquant, measures all files of one seed
together in fresh processes: mean saving and hypervolume (``experiments.search.yardsticks``) of the table come from
there. With ``--ours-time`` ours stops sooner than the others, so that its files of a fifth of the time meet theirs of
all of it.

Hypervolume over time comes from what each trial estimated, when the study was told it, in seconds since the process was
started; of many estimates the best are lucky, so the table says how much of the last one the files hold. When ours was
where another one ended is told twice: by the estimates of both; and from the files of both, with what ours had over
time taken for that share of its estimates that its own files hold at the end.

OUT gets ``versus.json`` with a part for each model, ``versus.md``, and the runs. Exit code 1: a search failed; 2: a
model is missing.
"""

import argparse
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from autoquant.domain.sampler import SamplerName
from experiments.believe.document import markdown, new_part, place, read_document, write_part
from experiments.believe.subjects import Subject, subject_of
from experiments.remeasure import FLOAT
from experiments.results import SNR_LIMIT_DB, read_members, remeasure_alone, run_python, seconds_of
from experiments.search.contenders import ABLATED, CONTENDERS
from experiments.search.yardsticks import Point, hypervolume, improvements, mean_saving

__all__ = [
    "growth_of",
    "held_by_files",
    "lead_by_estimates",
    "lead_by_files",
    "main",
    "reached_after",
    "read_trials",
    "render_versus",
    "run_seed",
]

CHECKPOINTS = (0.1, 0.2, 0.5, 1.0)
"""Shares of the time."""


Growth = Sequence[tuple[float, float]]
"""Seconds and hypervolume, wherever it grew."""


def run_search(subject: Subject, out: Path, *, sampler: str, seconds: float, seed: int) -> dict[str, Any]:
    """One search.

    Returns:
        ``error`` where it failed, otherwise also ``n_trials`` and ``growth``: seconds and hypervolume wherever it grew.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    files = [str(subject.model), str(subject.calibration), str(subject.evaluation), str(out / "search")]
    options = ["--time", str(seconds), "--seed", str(seed)]
    start = datetime.now()  # as Optuna has it: local time, without a zone
    error = run_python(
        ["-m", "experiments.search.one_search", *files, sampler, *options],
        out / "search.log",
        timeout_s=3 * seconds + 300,
        environment={"AUTOQUANT_CACHE": str(out / "cache")},
    )
    shutil.rmtree(out / "cache", ignore_errors=True)
    record: dict[str, Any] = {"sampler": sampler, "seed": seed, "error": error}
    if error:
        return record
    return record | read_trials(out / "search" / "study.journal", start)


def read_trials(journal: Path, start: datetime) -> dict[str, Any]:
    """``n_trials``, and ``growth`` by those that were measured to the end."""
    study = optuna.load_study(study_name="autoquant", storage=JournalStorage(JournalFileBackend(str(journal))))
    trials = study.get_trials(deepcopy=False)
    points = [
        ((trial.datetime_complete - start).total_seconds(), (trial.values[0], max(trial.values[1:])))
        for trial in trials
        if trial.state is TrialState.COMPLETE and trial.datetime_complete and trial.user_attrs["state"] == "complete"
    ]
    return {"n_trials": len(trials), "growth": growth_of(points)}


def growth_of(points: Sequence[tuple[float, Point]]) -> Growth:
    """Seconds and hypervolume wherever it grew."""
    return [(points[i][0], area) for i, area in improvements([point for _, point in points])]


def remeasured(subject: Subject, folders: Mapping[str, Path]) -> dict[str, list[Point]]:
    """SNR and ratio of the files of several searches, measured together; by search."""
    files = {
        f"{name}:{member['id']}": folder / member["path"]
        for name, folder in folders.items()
        for member in read_members(folder)
        if member["id"] != FLOAT
    }
    rows = remeasure_alone(subject.model, subject.evaluation, files, threads=1)
    return {
        name: [
            (min(max(row.snr_db, -SNR_LIMIT_DB), SNR_LIMIT_DB), row.ratio)
            for key, row in rows.items()
            if key.partition(":")[0] == name and key in files
        ]
        for name in folders
    }


def run_seed(
    subject: Subject, out: Path, samplers: Sequence[str], *, seconds: Mapping[str, float], seed: int
) -> list[dict[str, Any]]:
    """All samplers in random order, each for its seconds, and their files together."""
    order = random.Random(f"{subject.name} {seed}").sample(samplers, len(samplers))
    runs = {}
    for name in order:
        folder = out / f"seed{seed}" / name
        runs[name] = run_search(subject, folder, sampler=name, seconds=seconds[name], seed=seed)
        print(f"{subject.name}, seed {seed}, {name}: {runs[name]['error'] or 'searched'}", file=sys.stderr)
    folders = {name: out / f"seed{seed}" / name / "search" for name, run in runs.items() if not run["error"]}
    measured = remeasured(subject, folders) if folders else {}
    for name, points in measured.items():
        runs[name] |= {"members": points, "saving": mean_saving(points), "hypervolume": hypervolume(points)}
    return list(runs.values())


def reached_after(growth: Growth, area: float) -> float | None:
    """Seconds after which a search had this hypervolume."""
    return next((seconds for seconds, reached in growth if reached >= area), None)


def held_by_files(run: Mapping[str, Any]) -> float | None:
    """Hypervolume of a search's files as a share of what its trials estimated at the end; None where that is none."""
    last = run["growth"][-1][1] if run["growth"] else 0.0
    return float(run["hypervolume"] / last) if last else None


def lead_by_estimates(ours: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Seconds after which trials of ours estimated the hypervolume that the other's did at its end; inf for never."""
    return _seconds(reached_after(ours["growth"], other["growth"][-1][1] if other["growth"] else 0.0))


def lead_by_files(ours: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Seconds after which ours had the hypervolume of the other's files; inf for never.

    What ours had is what its trials estimated, times the share of it that its files hold at the end. So it is never
    there exactly where its own files are behind.
    """
    share = held_by_files(ours) or 0.0
    scaled = [(seconds, share * area) for seconds, area in ours["growth"]]
    tolerated = (1 - 1e-9) * other["hypervolume"]  # the last one is the hypervolume of the files but for rounding
    return _seconds(reached_after(scaled, tolerated))


def _seconds(found: float | None) -> float:
    return float("inf") if found is None else found


def render_versus(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model and sampler, then where it was measured."""
    rows = [
        [model, name, *cells]
        for model, part in document["parts"].items()
        for name, cells in _rows(part["settings"], [run for run in part["runs"] if not run["error"]])
    ]
    times = [f"hypervolume at {share:.0%} of the time" for share in CHECKPOINTS]
    headings = ("model", "sampler", "seconds", "searches", "trials", "mean saving", "hypervolume of the files")
    leads = ("ours is there after, by estimates", "by files")
    places = {place(part["environment"]) for part in document["parts"].values()}
    table = markdown((*headings, *times, "of that in the files", *leads), rows)
    return f"{table}\n{_REMARK}\n\n" + "\n".join(sorted(places)) + "\n"


_REMARK = """\
Hypervolume over time is that of what trials estimated, and *of that in the files* is the hypervolume of the files as a
share of the last one. *Ours is there after*: share of the sampler's time after which ours had the sampler's last
hypervolume; *by files*: after which ours had that of the sampler's files, if at any time the same share of what trials
of ours estimated was in files as at its end."""


def _rows(settings: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Cells by sampler."""
    ours = {run["seed"]: run for run in runs if run["sampler"] == SamplerName.STRUCTURE}
    for name in settings["samplers"]:
        own = [run for run in runs if run["sampler"] == name]
        seconds = (
            settings.get("ours_seconds", settings["seconds"]) if name == SamplerName.STRUCTURE else settings["seconds"]
        )
        pairs = [(ours[run["seed"]], run) for run in own if run["seed"] in ours and name != SamplerName.STRUCTURE]
        leads = [_lead([lead(*pair) / seconds for pair in pairs]) for lead in (lead_by_estimates, lead_by_files)]
        yield name, [f"{seconds:.0f}", *_cells(own, seconds), *leads]


def _cells(runs: Sequence[Mapping[str, Any]], seconds: float) -> list[str]:
    if not runs:
        return ["0", *[""] * (4 + len(CHECKPOINTS))]
    over_time = np.array([[_area_at(run["growth"], share * seconds) for share in CHECKPOINTS] for run in runs])
    held = [share for run in runs if (share := held_by_files(run)) is not None]
    return [
        str(len(runs)),
        f"{np.median([run['n_trials'] for run in runs]):.0f}",
        _spread([run["saving"] for run in runs], 3),
        _spread([run["hypervolume"] for run in runs], 1),
        *(f"{value:.1f}" for value in np.median(over_time, axis=0)),
        f"{np.median(held):.0%}" if held else "",
    ]


def _area_at(growth: Growth, seconds: float) -> float:
    return max((area for when, area in growth if when <= seconds), default=0.0)


def _spread(values: Sequence[float], digits: int) -> str:
    """Median, lowest and highest."""
    return f"{np.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _lead(shares: Sequence[float]) -> str:
    """The median over seeds."""
    if not shares:
        return ""
    median = float(np.median(shares))
    return f"{median:.0%}" if np.isfinite(median) else "never"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.search.versus", description=__doc__)
    parser.add_argument("zoo", type=Path, help="folder that experiments.zoo made")
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="folders in ZOO, or example:digits")
    parser.add_argument("--time", default="60s", help="of each search (default: %(default)s)")
    parser.add_argument("--ours-time", help="of those of ours (default: as the others)")
    parser.add_argument("--seeds", type=int, default=3, help="searches by sampler and model (default: %(default)s)")
    choices = (*CONTENDERS, *ABLATED)
    parser.add_argument("--samplers", nargs="+", choices=choices, default=list(CONTENDERS), metavar="NAME")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search and measure, write after each seed, and print."""
    asked = _parse(arguments)
    try:
        subjects = [subject_of(name if ":" in name else str(asked.zoo / name)) for name in asked.models]
        seconds, ours_seconds = (seconds_of(text) for text in (asked.time, asked.ours_time or asked.time))
    except (argparse.ArgumentTypeError, ValueError) as error:
        print(f"experiments.search.versus: {error}", file=sys.stderr)
        return 2
    out, has_failed = asked.out.expanduser().resolve(), False
    lasting = {name: ours_seconds if name == SamplerName.STRUCTURE else seconds for name in asked.samplers}
    settings = {"seconds": seconds, "ours_seconds": ours_seconds, "seeds": asked.seeds, "samplers": asked.samplers}
    for subject in subjects:
        part = new_part("experiments.search.versus", **settings) | {"runs": []}
        for seed in range(asked.seeds):
            part["runs"] += run_seed(subject, out / subject.name, asked.samplers, seconds=lasting, seed=seed)
            write_part(out / "versus.json", subject.name, part)
        has_failed |= any(run["error"] for run in part["runs"])
    text = render_versus(read_document(out / "versus.json"))
    (out / "versus.md").write_text(text, encoding="utf-8")
    print(text, end="")
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
