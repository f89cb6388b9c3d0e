"""Whether algorithms that change numbers alone leave the latency as it is.

``python -m experiments.accuracy.same_latency OUT.json [MODEL ...] [--scheme u8s8-channel-mse] [--time 40s]`` builds the
uniform recipe of one scheme without any algorithm and with ``experiments.accuracy.algorithms`` that the levels of
accuracy have, and compares their files in interleaved rounds of several processes. The ratio is to the recipe without
any: 1 should lie in its 95 % interval.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import autoquant
from experiments.accuracy.algorithms import ALGORITHMS, PLAIN, setting_of
from experiments.accuracy.decibels import assignments
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.believe.subjects import Subject, subject_of
from experiments.results import seconds_of

__all__ = ["main", "render_same_latency"]

LEVELS: Mapping[str, str] = {
    "fast": "equalised, bias mean",
    "full": "equalised, gptq, bias observed",
}
"""What the uniform recipe of a level of accuracy has."""


def measure(subject: Subject, scheme: str, seconds: float) -> dict[str, Any]:
    """Ratios to the plain recipe and SNR of all against it, as ``autoquant.compare`` says them."""
    with TemporaryDirectory(prefix="same-latency-") as folder:
        setting = setting_of(subject, "default", Path(folder) / "cache", [scheme], list(LEVELS.values()))
        assignment = next(assignments(setting, scheme, 0))
        paths = {name: Path(folder) / f"{name}.onnx" for name in (PLAIN, *LEVELS)}
        for name, path in paths.items():
            ALGORITHMS[LEVELS.get(name, PLAIN)](setting, assignment).save(path)
        found = autoquant.compare(list(paths.values()), subject.evaluation, seconds=seconds)
    rows = [row | {"model": name} for name, row in zip(paths, found.table.to_dict("records"), strict=True)]
    return {
        "n_regions": len(assignment),
        "rows": rows,
        "notes": [note.replace(f"{folder}/", "") for note in found.notes],
    }


def render_same_latency(document: Mapping[str, Any]) -> str:
    """A line for each model: the recipe's milliseconds and the ratio of each level to it."""
    rows = [[model, *_cells(part["rows"])] for model, part in document.get("parts", {}).items()]
    return markdown(["model", "uniform, ms", *LEVELS, "1 in the intervals"], rows)


def _cells(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    plain, *others = rows
    yield f"{plain['median_ms']:.3f}"
    for row in others:
        yield f"{row['ratio']:.3f}" + (
            f" ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})" if _is_known(row) else ""
        )
    if all(map(_is_known, others)):
        yield "yes" if all(row["ratio_low"] <= 1 <= row["ratio_high"] for row in others) else "no"
    else:
        yield "not known"


def _is_known(row: Mapping[str, Any]) -> bool:
    """Whether there were processes enough for an interval."""
    return row["ratio_low"] is not None


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.accuracy.same_latency", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file, with a part for each model")
    parser.add_argument("models", type=subject_of, nargs="*", help="example:digits, or folders of the zoo")
    parser.add_argument("--scheme", default="u8s8-channel-mse", help="of the default space (default: %(default)s)")
    parser.add_argument("--time", type=seconds_of, default="40s", help="for each model (default: %(default)s)")
    found = parser.parse_args(arguments)
    found.models = found.models or [subject_of("example:digits")]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write after each model, and print."""
    asked = _parse(arguments)
    for subject in asked.models:
        part = new_part("experiments.accuracy.same_latency", scheme=asked.scheme, seconds=asked.time)
        write_part(asked.out, subject.name, {**part, **measure(subject, asked.scheme, asked.time)})
        print(f"{subject.name}: measured", file=sys.stderr)
    print(render_same_latency(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
