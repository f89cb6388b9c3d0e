"""What channels that are filled up to whole blocks win, in float and in 8 bits.

``python -m experiments.bench.filled OUT.json ZOO/MODEL [...] [--time 20s]`` fills up the channels of preprocessed
models as a search may, see ``autoquant.rewrites.filled``, and measures each beside the preprocessed model, in float
and in 8 bits throughout, one thread, in rounds that all of them share. OUT.json has a part for each model.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autoquant import compare
from autoquant.api import steps
from autoquant.api.filling import fillings_of
from autoquant.api.ingredients import Ingredients
from autoquant.domain.region import N_REGIONS
from autoquant.rewrites.filled import Filling
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.bench.beside import ratio_text
from experiments.results import seconds_of

__all__ = ["main", "measure_filled", "render_filled"]

RECIPE = "u8s8-channel-minmax"
PLAIN = "as it is"
FORMS = ("float", "u8")


def measure_filled(given: Path, seconds: float) -> Mapping[str, Any]:
    """Latency ratios against the given model by form and filling, with the interval of a further process.

    Args:
        given: A folder with ``model.onnx``, ``calib.npz`` and ``eval.npz``.
        seconds: Of the comparison.
    """
    model, calibration, evaluation = (given / name for name in ("model.onnx", "calib.npz", "eval.npz"))
    samples = steps.read_data(model, calibration)
    prepared, space = steps.prepare(model, samples), steps.definition_of("default", "cpu")
    regions, statistics = steps.find_regions(prepared), steps.calibrate(prepared, samples)
    plain = Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=space)
    with TemporaryDirectory() as folder:
        files = dict(_files(plain, Path(folder)))
        table = compare([model, *files.values()], evaluation, seconds=seconds).table
    rows = {Path(str(row.model)).name: row for row in table.itertuples()}
    return {
        name: {"ratio": row.ratio, "low": row.ratio_low, "high": row.ratio_high}
        for name, row in ((name, rows[path.name]) for name, path in files.items())
    }


def _files(plain: Ingredients, folder: Path) -> Iterator[tuple[str, Path]]:
    for name, found in ((PLAIN, plain), *((_name(f), other) for f, other in fillings_of(plain, N_REGIONS).items())):
        for form in FORMS:
            path = folder / f"{name} {form}.onnx".replace(" ", "-")
            assignment = {region.id: RECIPE for region in found.regions} if form == "u8" else {}
            found.builder().build(assignment).save(path)
            yield f"{form}, {name}", path


def _name(filling: Filling) -> str:
    return f"{filling.multiple}" + (" tight" if filling.is_tight else "")


def render_filled(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model and filling."""
    rows: list[list[str]] = []
    for part in document["parts"].values():
        names = dict.fromkeys(key.partition(", ")[2] for key in part["found"])
        for name in names:
            found = [part["found"][f"{form}, {name}"] for form in FORMS]
            rows.append([part["model"], name, *(ratio_text(f["ratio"], f["low"], f["high"], digits=3) for f in found)])
    return markdown(("model", "channels to multiples of", *FORMS), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    arguments_of = argparse.ArgumentParser(prog="python -m experiments.bench.filled", description=__doc__)
    arguments_of.add_argument("out", type=Path, help="JSON file")
    arguments_of.add_argument("models", nargs="+", type=Path, help="folders with model.onnx, calib.npz and eval.npz")
    arguments_of.add_argument("--time", default="20s", help="of each comparison, default: %(default)s")
    asked = arguments_of.parse_args(arguments)
    seconds = seconds_of(asked.time)
    for folder in asked.models:
        part = new_part("experiments.bench.filled", seconds=seconds)
        found = measure_filled(folder, seconds)
        write_part(asked.out, folder.name, part | {"model": folder.name, "found": found})
    print(render_filled(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
