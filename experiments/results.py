"""What autoquant finds on the models of the zoo, against onnxruntime's own recipes, measured independently.

``python -m experiments.results ZOO_DIR OUT_DIR [--only NAME ...] [--time 120s] [--threads 1] [--regions 100]`` searches
each model, nothing calibrated before, builds the recipes, measures both in the same interleaved rounds of fresh
processes, and writes ``results.json`` and ``results.md`` into OUT_DIR. Models that have a result already are kept,
unless they are named.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.environment import read_environment
from experiments.remeasure import FLOAT, Row, mean_saving, row_from, together
from experiments.results_table import render_results

__all__ = [
    "N_PROCESSES",
    "SNR_LIMIT_DB",
    "Search",
    "measure_model",
    "read_members",
    "remeasure_alone",
    "run_python",
    "run_search",
    "seconds_of",
]

ROOT = Path(__file__).resolve().parent.parent
N_PROCESSES = 3
N_REGIONS = 100
SNR_LIMIT_DB = 200.0  # stands for equal outputs, as in front.json
SECONDS_OF_UNIT = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How one run of ``autoquant search`` went.

    Attributes:
        command: With ``ZOO`` and ``OUT`` for the model's folder and that of its results.
        seconds: Wall-clock.
        error: The sentence of a search that failed, or empty.
    """

    command: str
    seconds: float
    error: str


def measure_model(zoo: Path, out: Path, *, time_limit: str, threads: int, n_regions: int) -> dict[str, Any]:
    """Search a model, build its recipes and measure both.

    Args:
        zoo: Folder of the model: ``model.onnx``, ``calib.npz``, ``eval.npz``.
        out: Folder for ``search`` and ``recipes``.
        time_limit: Of the search, such as ``120s``.
        threads: Threads inside an operator.
        n_regions: Of the search, at most.

    Returns:
        The model's record in ``results.json``; the rows of a front that is missing are.
    """
    search = run_search(zoo, out / "search", time_limit, threads, n_regions=n_regions)
    recipes = _recipes(zoo, out)
    front = [] if search.error else read_members(out / "search")
    files = {f"front:{member['id']}": out / "search" / member["path"] for member in front if member["id"] != FLOAT}
    files |= {f"recipe:{path.stem}": path for path in recipes}
    rows = remeasure_alone(zoo / "model.onnx", zoo / "eval.npz", files, threads=threads)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "threads": threads,
        "time": time_limit,
        "search": asdict(search) | _read_run(out / "search"),
        "float_ms": rows[FLOAT].median_ms,
        "members": [_member_record(m, rows[f"front:{m['id']}"]) for m in front if f"front:{m['id']}" in rows],
        "recipes": [
            _row_record(row, name.partition(":")[2]) for name, row in rows.items() if name.startswith("recipe:")
        ],
        "unmeasured": [name for name in files if name not in rows],
    }


def run_search(zoo: Path, out: Path, time_limit: str, threads: int, *, n_regions: int = N_REGIONS) -> Search:
    """``autoquant search`` of a model in a process of its own, nothing calibrated before; replaces a run in ``out``."""
    cache = out.parent / "cache"
    for folder in (out, cache):
        shutil.rmtree(folder, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    data = ["--calibration", str(zoo / "calib.npz"), "--evaluation", str(zoo / "eval.npz"), "--out", str(out)]
    limits = ["--time", time_limit, "--threads", str(threads), "--regions", str(n_regions), "--json"]
    command = ["-m", "autoquant", "search", str(zoo / "model.onnx"), *data, *limits]
    start = time.perf_counter()
    timeout_s = 3 * seconds_of(time_limit) + 300
    environment = {"AUTOQUANT_CACHE": str(cache)}
    error = run_python(command, out.parent / "search.log", timeout_s=timeout_s, environment=environment)
    seconds = time.perf_counter() - start
    shutil.rmtree(cache, ignore_errors=True)
    typed = " ".join(["python", *command]).replace(str(zoo), "ZOO").replace(str(out.parent), "OUT")
    return Search(command=typed, seconds=seconds, error=error)


def _recipes(zoo: Path, out: Path) -> list[Path]:
    """Files of the recipes; those of the same model, data and onnxruntime are built once."""
    folder, marker = out / "recipes", out / "recipes.json"
    inputs = {name: hashlib.sha256((zoo / name).read_bytes()).hexdigest() for name in ("model.onnx", "calib.npz")}
    origin = {"sha256": inputs, "versions": read_environment()["versions"]}
    if not marker.exists() or json.loads(marker.read_text(encoding="utf-8")) != origin:
        shutil.rmtree(folder, ignore_errors=True)
        files = [str(zoo / "model.onnx"), str(zoo / "calib.npz"), str(folder)]
        failure = run_python(["-m", "experiments.recipes", *files], out / "recipes.log", timeout_s=3600)
        if failure:
            raise RuntimeError(f"the recipes could not be built: {failure}")
        _write(marker, json.dumps(origin, indent=1))
    return sorted(folder.glob("*.onnx"))


def run_python(
    command: Sequence[str],
    log: Path,
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> str:
    """Run Python from the root of the repository, what it prints into a file; the sentence of a failure, or empty."""
    with log.open("w", encoding="utf-8") as file:
        try:
            run = subprocess.run(
                [python, *command],
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                env=None if environment is None else {**os.environ, **environment},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"It was stopped after {timeout_s:.0f} s."
    if run.returncode == 0:
        return ""
    return _ending(run.returncode, log.read_text(encoding="utf-8", errors="replace"))


def _ending(code: int, said: str) -> str:
    """How a process ended, and the last line that it said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"exit code {code}: {lines[-1][:300] if lines else 'it said nothing'}"


def remeasure_alone(
    model: Path, evaluation: Path, files: Mapping[str, Path], *, threads: int, rounds: int = 25
) -> dict[str, Row]:
    """``remeasure`` in processes of their own, one after the other, which share the rounds; the first gives the SNR.

    Raises:
        ValueError: As ``remeasure`` does.
        RuntimeError: A process ended otherwise.
    """
    found: dict[str, list[Row]] = {}
    asked = {
        "model": str(model.absolute()),
        "evaluation": str(evaluation.absolute()),
        "files": {name: str(path.absolute()) for name, path in files.items()},
    }
    settings = {"threads": threads, "rounds": -(-rounds // N_PROCESSES)}
    for seed in range(N_PROCESSES):
        for row in _measured(asked | {"settings": {**settings, "seed": seed, "has_snr": seed == 0}}):
            found.setdefault(row.name, []).append(row)
    return {name: together(rows) for name, rows in found.items()}


def _measured(asked: Mapping[str, Any]) -> list[Row]:
    """What a fresh process measures; one made by multiprocessing would import what our main module does."""
    run = subprocess.run(
        [sys.executable, "-m", "experiments.remeasure"],
        input=json.dumps(asked),
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if run.returncode != 0:
        how = _ending(run.returncode, run.stderr)
        error = ValueError if run.returncode == 2 else RuntimeError
        raise error(f"the process that measures {asked['model']} ended with {how}")
    print(run.stderr, end="", file=sys.stderr)  # files that do not run
    return [row_from(record) for record in json.loads(run.stdout)]


def read_members(run: Path) -> list[dict[str, Any]]:
    """The members of ``front.json``."""
    members: list[dict[str, Any]] = json.loads((run / "front.json").read_text(encoding="utf-8"))["members"]
    return members


def _read_run(run: Path) -> dict[str, int]:
    """Counts that ``run.json`` tells."""
    file = run / "run.json"
    document = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    counts = {
        key: document[key] for key in ("n_evaluations", "n_regions", "n_nodes") if isinstance(document.get(key), int)
    }
    if isinstance(document.get("regions"), (list, dict)):
        counts["n_regions"] = len(document["regions"])
    return counts


def _member_record(member: Mapping[str, Any], row: Row) -> dict[str, Any]:
    latency = next(iter(member["latency"].values()))
    claims = {"claimed_snr_db": member["snr_db"]["worst"], "claimed_ratio": latency["ratio"]}
    schemes = Counter(scheme for scheme in member["assignment"].values() if scheme != FLOAT)
    return _row_record(row, member["id"]) | claims | {"is_float": not schemes, "regions_by_scheme": dict(schemes)}


def _row_record(row: Row, name: str) -> dict[str, Any]:
    return asdict(row) | {"name": name, "snr_db": min(max(row.snr_db, -SNR_LIMIT_DB), SNR_LIMIT_DB)}


def seconds_of(text: str) -> float:
    """A duration such as ``120s``.

    Raises:
        ValueError: It is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if match is None or match[2] not in SECONDS_OF_UNIT:
        raise ValueError(f"--time {text!r} isn't a duration such as 120s or 2m.")
    return float(match[1]) * SECONDS_OF_UNIT[match[2]]


def _write(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)


def _read_results(out: Path) -> dict[str, Any]:
    file = out / "results.json"
    empty: dict[str, Any] = {"schema_version": 1, "environments": {}, "models": {}}
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else empty


def _names(zoo: Path, only: Sequence[str], results: Mapping[str, Any]) -> list[str]:
    """Models to measure: those that are named, else those without a result.

    Raises:
        ValueError: The folder has no model, or lacks one that is named.
    """
    present = sorted(path.parent.name for path in zoo.glob("*/model.onnx"))
    if missing := sorted(set(only) - set(present)):
        raise ValueError(f"{zoo} has no model {', '.join(missing)}; it has {', '.join(present) or 'none at all'}.")
    if not present:
        raise ValueError(f"{zoo} has no models: make them with python -m experiments.zoo {zoo}.")
    done = {name for name, record in results["models"].items() if not _has_failed(record)}
    return list(only) or [name for name in present if name not in done]


def _has_failed(record: Mapping[str, Any]) -> bool:
    return "error" in record or bool(record["search"]["error"])


def _measure_safely(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    try:
        folders = (arguments.zoo / name, arguments.out / name)
        limits = {"time_limit": arguments.time, "threads": arguments.threads, "n_regions": arguments.regions}
        return measure_model(*folders, **limits)
    except Exception as error:  # one model must not stop the others
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.results", description=__doc__)
    parser.add_argument("zoo", type=Path, help="folder that experiments.zoo made")
    parser.add_argument("out", type=Path, help="folder for results, runs and recipes")
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="NAME", help="measure these again")
    parser.add_argument("--time", default="120s", help="of each search (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--regions", type=int, default=N_REGIONS, help="of each search (default: %(default)s)")
    arguments = parser.parse_args()
    arguments.zoo, arguments.out = arguments.zoo.expanduser().resolve(), arguments.out.expanduser().resolve()
    return arguments


def main() -> int:
    """Measure and write; 1 where a model has no result, 2 on bad input."""
    arguments = _parse()
    results = _read_results(arguments.out)
    try:
        seconds_of(arguments.time)
        names = _names(arguments.zoo, arguments.only, results)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    arguments.out.mkdir(parents=True, exist_ok=True)
    environment = read_environment()
    for name in names:
        record = _measure_safely(name, arguments) | {"environment": environment["id"]}
        results["environments"][environment["id"]] = environment
        results["models"][name] = record
        _write(arguments.out / "results.json", json.dumps(results, indent=1, allow_nan=False))
        _write(arguments.out / "results.md", render_results(results))
        print(f"{name:20} {_summary(record)}", flush=True)
    _write(arguments.out / "results.md", render_results(results))
    return 1 if any(_has_failed(record) for record in results["models"].values()) else 0


def _summary(record: Mapping[str, Any]) -> str:
    if _has_failed(record):
        return str(record.get("error") or record["search"]["error"])
    front, recipes = (mean_saving([(r["snr_db"], r["ratio"]) for r in record[key]]) for key in ("members", "recipes"))
    return f"mean saving {front:.3f} (recipes {recipes:.3f}), float {record['float_ms']:.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
