"""What convolutions in groups take in 8 bits, with groups joined by zeros or as they are.

``python -m experiments.bench.grouped OUT.json [--time 20s]`` makes small models of a convolution of 1 x 1, one of 3 x 3
in groups, and another of 1 x 1, and measures each in 8 bits throughout with groups of several widths, one thread, in
rounds that all of them share. OUT.json has a part for each model, with what ``autoquant.qdq.groups`` chooses.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import onnx

from autoquant import compare
from autoquant.api import steps
from autoquant.domain.rewrite import Rewrite
from autoquant.qdq import groups
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.bench.beside import ratio_text
from experiments.bench.lowered import small_model
from experiments.results import seconds_of

__all__ = ["CASES", "Case", "main", "measure_grouped", "render_grouped"]

SCHEME = "u8s8-channel-minmax"
N_SAMPLES = 8
MOST_INPUTS = 256
"""Of a group; wider ones are not tried."""


class Case(NamedTuple):
    """Channels, inputs of a group, height and width."""

    n_channels: int
    n_inputs: int
    size: int

    def __str__(self) -> str:
        return f"{self.n_channels} channels of {self.size} x {self.size} in groups of {self.n_inputs}"


CASES = (
    Case(96, 2, 28),
    Case(128, 4, 56),
    Case(64, 8, 56),
    Case(256, 8, 28),
    Case(152, 8, 28),
    Case(512, 16, 14),
    Case(368, 16, 14),
    Case(240, 24, 14),
    Case(512, 32, 14),
)
"""152 and 368 channels make 19 and 23 groups, of which no few can be joined."""


def measure_grouped(case: Case, seconds: float) -> dict[str, Any]:
    """Latency ratios against float by the inputs of a joined group, and how many of them are chosen."""
    n_groups = case.n_channels // case.n_inputs
    joined = [n for n in range(1, n_groups + 1) if n_groups % n == 0 and n * case.n_inputs <= MOST_INPUTS]
    samples = np.random.default_rng(1).standard_normal((N_SAMPLES, case.n_channels, case.size, case.size))
    with TemporaryDirectory() as folder:
        out = Path(folder)
        onnx.save(_model(case), out / "model.onnx")
        np.savez(out / "data.npz", x=samples.astype(np.float32))
        files = {str(n * case.n_inputs): _joined(out, n) for n in joined}
        chosen = _joined(out, None).read_bytes()
        found = compare([out / "model.onnx", *files.values()], out / "data.npz", seconds=seconds).table
        rows = {Path(str(row.model)).name: row for row in found.itertuples()}
        ratios = {
            width: {
                "ratio": rows[path.name].ratio,
                "low": rows[path.name].ratio_low,
                "high": rows[path.name].ratio_high,
            }
            for width, path in files.items()
        }
        return {"ratios": ratios, "chosen": next(w for w, path in files.items() if path.read_bytes() == chosen)}


def _model(case: Case) -> onnx.ModelProto:
    n, groups_there = case.n_channels, case.n_channels // case.n_inputs
    body = (
        "c = Conv(x, first) r = Relu(c) "
        f"g = Conv<pads=[1,1,1,1], group={groups_there}>(r, w) t = Relu(g) z = Conv(t, last) y = Relu(z)"
    )
    weights = {"first": (n, n, 1, 1), "w": (n, case.n_inputs, 3, 3), "last": (n, n, 1, 1)}
    return small_model(((n, case.size, case.size), body, weights))


def _joined(out: Path, n_joined: int | None) -> Path:
    """In 8 bits with so many groups in each; None for what a search would choose."""
    model, data = out / "model.onnx", out / "data.npz"
    samples = steps.read_data(model, data)
    prepared = steps.prepare(model, samples)
    regions = steps.find_regions(prepared)
    builder = steps.builder_of(prepared, regions, steps.calibrate(prepared, samples))
    builder.write(frozenset({Rewrite.JOINED_GROUPS}))
    assignment, path = {region.id: SCHEME for region in regions}, out / f"{n_joined or 'chosen'}.onnx"
    if n_joined is None:
        builder.build(assignment).save(path)
    else:
        with mock.patch.object(groups, "_n_joined", lambda node, _: n_joined if node.name == "g" else 1):
            builder.build(assignment).save(path)
    return path


def render_grouped(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model and width."""
    rows = [
        [
            part["model"],
            width,
            ratio_text(r["ratio"], r["low"], r["high"]),
            "yes" * (width == part["chosen"]),
        ]
        for part in document["parts"].values()
        for width, r in part["ratios"].items()
    ]
    return markdown(("3 x 3 between 1 x 1", "inputs of a group", "latency in 8 bits, against float", "chosen"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    arguments_of = argparse.ArgumentParser(prog="python -m experiments.bench.grouped", description=__doc__)
    arguments_of.add_argument("out", type=Path, help="JSON file")
    arguments_of.add_argument("--time", default="20s", help="of each comparison, default: %(default)s")
    asked = arguments_of.parse_args(arguments)
    seconds = seconds_of(asked.time)
    for case in CASES:
        part = new_part("experiments.bench.grouped", seconds=seconds)
        write_part(asked.out, str(case), part | {"model": str(case)} | measure_grouped(case, seconds))
    print(render_grouped(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
