"""autoquant against what other tools made of the same models.

``python -m experiments.peers.versus ZOO OUT MODEL [MODEL ...] [--time 180s]`` takes the models that
``experiments.peers.make`` left in OUT, measures them quickly to leave out what another model of the same tool beats
by far, searches with autoquant, nothing calibrated before, and measures all that is left together with our front in
fresh processes by ``experiments.remeasure``, which has nothing of autoquant. OUT gets ``versus.json`` with a part
for each model, and ``versus.md``. Exit code 1: a search failed; 2: a model or what others made of it is missing.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.believe.document import new_part, read_document, write_part
from experiments.believe.subjects import Subject, subject_of
from experiments.peers.fronts import left_undominated, point_of, within_reach
from experiments.peers.manifest import RUN, read_entries
from experiments.peers.table import render_versus
from experiments.remeasure import FLOAT, Row, mean_saving
from experiments.results import SNR_LIMIT_DB, read_members, remeasure_alone, run_search, seconds_of
from experiments.search.yardsticks import Point

__all__ = ["main", "read_peers"]

OURS = "autoquant"
QUICK_ROUNDS = 5
QUICK_FILES = 16
"""Sessions that are open at once in the quick measurement."""


def read_peers(folder: Path) -> dict[str, dict[str, Any]]:
    """What each tool made of a model, by tool.

    Args:
        folder: Of the model, with a folder for each tool.

    Returns:
        What ``run.json`` says, ``files``: path by variant, equal contents once, ``n_different`` of them, ``n_files`` in
        all, and ``failures``: error by variant.
    """
    peers = {}
    for file in sorted(folder.glob(f"*/{RUN}")):
        run, entries = json.loads(file.read_text(encoding="utf-8")), read_entries(file.parent)
        found = {entry.variant: file.parent / entry.file for entry in entries if entry.file}
        different = _different(found)
        peers[run["tool"]] = run | {
            "n_files": len(found),
            "n_different": len(different),
            "files": different,
            "failures": {entry.variant: entry.error for entry in entries if entry.error},
        }
    return peers


def _different(files: Mapping[str, Path]) -> dict[str, Path]:
    first: dict[str, str] = {}
    for variant, path in files.items():
        first.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), variant)
    return {variant: files[variant] for variant in first.values()}


def compare(subject: Subject, out: Path, *, time_limit: str) -> dict[str, Any]:
    """Search a model and measure its front with what others made of it.

    Returns:
        ``search``, ``rows`` by tool with ours as ``autoquant``, ``savings`` by tool and of the ``union`` of the
        others, ``left``: rows of theirs that ours does not dominate, and ``peers``: what each tool made.
    """
    peers = read_peers(out / subject.name)
    kept, broken = _kept(subject, peers)
    own = out / subject.name / "ours"
    search = run_search(subject.model.parent, own / "search", time_limit, 1)
    members = [] if search.error else read_members(own / "search")
    files = {f"{OURS}:{m['id']}": own / "search" / m["path"] for m in members if m["id"] != FLOAT} | kept
    found = remeasure_alone(subject.model, subject.evaluation, files, threads=1)
    rows = {tool: [row for name, row in found.items() if name.partition(":")[0] == tool] for tool in (OURS, *peers)}
    theirs = [row for tool in peers for row in rows[tool]]
    return {
        "search": asdict(search),
        "float_ms": found[FLOAT].median_ms,
        "rows": {tool: [_plain(row) for row in of_tool] for tool, of_tool in rows.items()},
        "savings": {tool: mean_saving(map(point_of, of_tool)) for tool, of_tool in rows.items()}
        | {"union": mean_saving(map(point_of, theirs))},
        "left": [_plain(row) for row in left_undominated(theirs, rows[OURS])],
        "peers": {
            tool: {key: value for key, value in run.items() if key != "files"} | {"unmeasured": broken[tool]}
            for tool, run in peers.items()
        },
    }


def _kept(subject: Subject, peers: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Path], dict[str, list[str]]]:
    """Files within reach of their tool's front, by ``tool:variant``, and variants that do not run, by tool."""
    kept: dict[str, Path] = {}
    broken: dict[str, list[str]] = {}
    for tool, run in peers.items():
        files: dict[str, Path] = run["files"]
        names, points = list(files), dict[str, Point]()
        for i in range(0, len(names), QUICK_FILES):
            some = {name: files[name] for name in names[i : i + QUICK_FILES]}
            rows = remeasure_alone(subject.model, subject.evaluation, some, threads=1, rounds=QUICK_ROUNDS)
            points |= {name: point_of(rows[name]) for name in some if name in rows}
        kept |= {f"{tool}:{name}": files[name] for name in within_reach(points)}
        broken[tool] = [name for name in names if name not in points]
        print(f"{subject.name}, {tool}: {len(names)} models, {len(points)} run", file=sys.stderr)
    return kept, broken


def _plain(row: Row) -> dict[str, Any]:
    return asdict(row) | {"snr_db": min(max(row.snr_db, -SNR_LIMIT_DB), SNR_LIMIT_DB)}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.peers.versus", description=__doc__)
    parser.add_argument("zoo", type=Path, help="folder that experiments.zoo made")
    parser.add_argument("out", type=Path, help="folder that experiments.peers.make filled")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="folders in ZOO")
    parser.add_argument("--time", default="180s", help="of our search (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search and measure, write after each model, and print."""
    asked, has_failed = _parse(arguments), False
    out = asked.out.expanduser().resolve()
    try:
        subjects = [subject_of(str(asked.zoo / name)) for name in asked.models]
        seconds = seconds_of(asked.time)
        if missing := [subject.name for subject in subjects if not any((out / subject.name).glob(f"*/{RUN}"))]:
            raise ValueError(f"{out} has nothing for {', '.join(missing)}: make it with experiments.peers.make.")
    except (argparse.ArgumentTypeError, ValueError) as error:
        print(f"experiments.peers.versus: {error}", file=sys.stderr)
        return 2
    for subject in subjects:
        part = new_part("experiments.peers.versus", seconds=seconds)
        part |= compare(subject, out, time_limit=asked.time)
        write_part(out / "versus.json", subject.name, part)
        has_failed |= bool(part["search"]["error"])
    text = render_versus(read_document(out / "versus.json"))
    (out / "versus.md").write_text(text, encoding="utf-8")
    print(text, end="")
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
