"""What writing PRelu with other operators is worth.

``python -m experiments.bench.slopes OUT.json [--time 10s]`` makes models that are four PRelu in a row, of several
shapes and slopes, and measures each beside what ``autoquant.model.piecewise.split_prelu`` makes of it, of small tensors
too, one thread, in rounds that both share. OUT.json has a part for each shape and kind of slopes.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autoquant import compare
from autoquant.model import piecewise
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.results import seconds_of

__all__ = ["chain", "main", "measure_slopes", "render_slopes"]

SHAPES = ((64, 64, 64), (16, 128, 128), (64, 28, 28), (128, 14, 14), (32, 1, 500), (32, 7, 7))
"""Channels, height and width."""
SLOPES: Mapping[str, tuple[float, float]] = {"up to 1": (-0.5, 1.0), "mixed": (0.5, 1.5)}
"""Between which they are drawn."""
N_NODES, N_SAMPLES = 4, 8


def chain(shape: Sequence[int], bounds: tuple[float, float]) -> onnx.ModelProto:
    """PRelu in a row, each with slopes of its own."""
    rng = np.random.default_rng(0)
    names = ["x", *(f"h{i}" for i in range(1, N_NODES)), "y"]
    slopes = [rng.uniform(*bounds, (shape[0], 1, 1)).astype(np.float32) for _ in range(N_NODES)]
    graph = helper.make_graph(
        [helper.make_node("PRelu", [names[i], f"a{i}"], [names[i + 1]], f"node{i}") for i in range(N_NODES)],
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, *shape])],
        [numpy_helper.from_array(slope, f"a{i}") for i, slope in enumerate(slopes)],
        value_info=[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, *shape]) for name in names[1:-1]],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def measure_slopes(shape: Sequence[int], bounds: tuple[float, float], seconds: float) -> dict[str, Any]:
    """The ratio of what is written with other operators to PRelu, with the interval of a further process."""
    samples = np.random.default_rng(1).standard_normal((N_SAMPLES, *shape)).astype(np.float32)
    with TemporaryDirectory() as folder:
        given, split, data = (Path(folder) / name for name in ("given.onnx", "split.onnx", "data.npz"))
        model = chain(shape, bounds)
        onnx.save(model, given)
        with mock.patch.object(piecewise, "MANY_ELEMENTS", 0):
            onnx.save(piecewise.split_prelu(model), split)
        np.savez(data, x=samples)
        table = compare([given, split], data, seconds=seconds).table
    (row,) = table[table["model"] == str(split)].itertuples()
    return {
        "snr_db": row.snr_db,
        "ratio": row.ratio,
        "ratio_low": row.ratio_low,
        "ratio_high": row.ratio_high,
    }


def render_slopes(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each shape and kind of slopes."""
    rows = [
        [
            "x".join(map(str, part["shape"])),
            part["slopes"],
            f"{part['ratio']:.2f}",
            f"{part['ratio_low']:.2f} to {part['ratio_high']:.2f}",
        ]
        for part in document["parts"].values()
    ]
    return markdown(("shape", "slopes", "latency against PRelu", "95 %"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench.slopes", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("--time", default="10s", help="of each comparison, default: %(default)s")
    asked = parser.parse_args(arguments)
    seconds = seconds_of(asked.time)
    for shape in SHAPES:
        for slopes, bounds in SLOPES.items():
            name = f"{'x'.join(map(str, shape))}, {slopes}"
            part = new_part("experiments.bench.slopes", seconds=seconds)
            write_part(
                asked.out, name, part | {"shape": shape, "slopes": slopes} | measure_slopes(shape, bounds, seconds)
            )
    print(render_slopes(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
