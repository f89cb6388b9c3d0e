"""What writing PRelu with other operators is worth.

``python -m experiments.bench.slopes OUT.json [--time 10s]`` makes models that are four PRelu in a row, of several
shapes and slopes, or four behind a Conv of 3 x 3 each, and measures each beside what
``autoquant.rewrites.piecewise.split_prelu`` makes of it: with Convs of each channel, where it writes them, and without,
of small tensors too, one thread, in rounds that all share. OUT.json has a part for each model.
"""

import argparse
import itertools
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
from autoquant.rewrites import piecewise
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.bench.beside import ratio_text
from experiments.results import seconds_of

__all__ = ["chain", "main", "measure_slopes", "render_slopes"]

SHAPES = ((64, 64, 64), (16, 128, 128), (64, 28, 28), (128, 14, 14), (32, 1, 500), (32, 7, 7))
"""Channels, height and width."""
SLOPES: Mapping[str, tuple[float, float]] = {"up to 1": (-0.5, 1.0), "mixed": (0.5, 1.5)}
"""Between which they are drawn."""
N_NODES, N_SAMPLES = 4, 8


def chain(shape: Sequence[int], bounds: tuple[float, float], *, has_convs: bool = False) -> onnx.ModelProto:
    """PRelu in a row, each with slopes of its own, and behind a Conv where ``has_convs``."""
    rng, n = np.random.default_rng(0), shape[0]
    names = ["x", *(f"h{i}" for i in range(1, N_NODES)), "y"]
    slopes = [rng.uniform(*bounds, (n, 1, 1)).astype(np.float32) for _ in range(N_NODES)]
    weight = (rng.standard_normal((n, n, 3, 3)) / np.sqrt(9 * n)).astype(np.float32)
    nodes: list[onnx.NodeProto] = []
    for i in range(N_NODES):
        source = f"c{i}" if has_convs else names[i]
        if has_convs:
            nodes.append(helper.make_node("Conv", [names[i], "w"], [source], source, pads=(1, 1, 1, 1)))
        nodes.append(helper.make_node("PRelu", [source, f"a{i}"], [names[i + 1]], f"node{i}"))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, *shape])],
        [numpy_helper.from_array(slope, f"a{i}") for i, slope in enumerate(slopes)]
        + ([numpy_helper.from_array(weight, "w")] if has_convs else []),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def measure_slopes(
    shape: Sequence[int], bounds: tuple[float, float], seconds: float, *, has_convs: bool = False
) -> dict[str, Any]:
    """Ratios of what is written with ``others`` and with ``convs`` to PRelu, with the interval of a further process."""
    samples = np.random.default_rng(1).standard_normal((N_SAMPLES, *shape)).astype(np.float32)
    with TemporaryDirectory() as folder:
        given, data = (Path(folder) / name for name in ("given.onnx", "data.npz"))
        files = {name: Path(folder) / f"{name}.onnx" for name in (("others", "convs") if has_convs else ("others",))}
        model = chain(shape, bounds, has_convs=has_convs)
        onnx.save(model, given)
        with mock.patch.object(piecewise, "MANY_ELEMENTS", 0):
            for name, path in files.items():
                with mock.patch.object(piecewise, "_BLOCK", piecewise._BLOCK if name == "convs" else sys.maxsize):
                    onnx.save(piecewise.split_prelu(model), path)
        np.savez(data, x=samples)
        table = compare([given, *files.values()], data, seconds=seconds).table
    rows = {str(row.model): row for row in table.itertuples()}
    return {
        name: {
            "snr_db": rows[str(path)].snr_db,
            "ratio": rows[str(path)].ratio,
            "ratio_low": rows[str(path)].ratio_low,
            "ratio_high": rows[str(path)].ratio_high,
        }
        for name, path in files.items()
    }


def render_slopes(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model."""
    rows = [
        [
            "x".join(map(str, part["shape"])),
            part["slopes"],
            "Conv" if "convs" in part else "",
            *(_ratio(part[name]) if name in part else "" for name in ("others", "convs")),
        ]
        for part in document["parts"].values()
    ]
    return markdown(("shape", "slopes", "behind", "latency against PRelu: one by one", "with Convs"), rows)


def _ratio(found: Mapping[str, float]) -> str:
    return ratio_text(found["ratio"], found["ratio_low"], found["ratio_high"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench.slopes", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("--time", default="10s", help="of each comparison, default: %(default)s")
    asked = parser.parse_args(arguments)
    seconds = seconds_of(asked.time)
    for shape, (slopes, bounds), has_convs in itertools.product(SHAPES, SLOPES.items(), (False, True)):
        name = f"{'x'.join(map(str, shape))}, {slopes}{', behind Convs' if has_convs else ''}"
        part = new_part("experiments.bench.slopes", seconds=seconds) | {"shape": shape, "slopes": slopes}
        write_part(asked.out, name, part | measure_slopes(shape, bounds, seconds, has_convs=has_convs))
    print(render_slopes(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
