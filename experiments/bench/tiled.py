"""What computing float convolutions of 3 x 3 tile by tile is worth.

``python -m experiments.bench.tiled OUT.json [--time 5s]`` makes models of two convolutions of 3 x 3 in a row, with a
Relu behind each, of several channels and sizes, and measures each beside what candidates have in their place, see
``autoquant.qdq.tiled``, small ones too, one thread, in rounds that both share. OUT.json has a part for each.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from autoquant.domain.rewrite import Rewrite
from autoquant.domain.statistics import CalibrationRange
from autoquant.model.fragments import inline_external
from autoquant.model.graph import Graph
from autoquant.qdq import tiled
from autoquant.qdq.builder import Builder
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.bench.beside import measure_beside, ratio_text
from experiments.results import seconds_of

__all__ = ["SHAPES", "chain", "main", "measure_tiled", "render_tiled", "tile_by_tile"]

SHAPES = (
    (512, 6, 128),
    (512, 32, 32),
    (256, 12, 128),
    (256, 64, 64),
    (256, 28, 28),
    (256, 16, 16),
    (256, 14, 14),
    (192, 32, 32),
    (128, 56, 56),
    (128, 40, 40),
    (128, 28, 28),
    (128, 20, 20),
    (96, 80, 80),
    (96, 40, 40),
    (64, 80, 80),
)
"""Channels and places."""


def chain(channels: int, height: int, width: int) -> onnx.ModelProto:
    """Two convolutions, with shapes."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((channels, channels, 3, 3)) / np.sqrt(9 * channels)
    nodes: list[onnx.NodeProto] = []
    for source, made, target in (("x", "c", "r"), ("r", "d", "y")):
        nodes.append(helper.make_node("Conv", [source, "w", "b"], [made], made, pads=[1] * 4, kernel_shape=[3, 3]))
        nodes.append(helper.make_node("Relu", [made], [target], target))
    given, found = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, height, width]) for name in "xy"
    )
    arrays = {"w": weight, "b": rng.standard_normal(channels)}
    constants = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in arrays.items()]
    graph = helper.make_graph(nodes, "chain", [given], [found], constants)
    return shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def tile_by_tile(model: onnx.ModelProto) -> tuple[onnx.ModelProto, bool]:
    """The same with every such convolution, however small it is, and whether a search would try it."""
    is_tried = bool(tiled.TiledConvs(Graph(model)).indices)
    with mock.patch.object(tiled, "_LEAST", ((1, 1),)):
        builder = Builder(Graph(model), [], {}, frozenset(), lambda *_: CalibrationRange(0.0, 1.0))
        builder.write(frozenset({Rewrite.TILED_CONVS}))
        candidate = builder.build({})
    return inline_external(candidate.skeleton, candidate.constants, {}), is_tried


def measure_tiled(shape: tuple[int, int, int], seconds: float) -> dict[str, Any]:
    """The ratio of convolutions tile by tile to onnxruntime's, with the interval of a further process."""
    model = chain(*shape)
    other, is_tried = tile_by_tile(model)
    return {"shape": list(shape), "is_tried": is_tried} | measure_beside(model, other, shape, seconds)


def render_tiled(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each shape."""
    rows = [
        [
            str(part["shape"][0]),
            " x ".join(map(str, part["shape"][1:])),
            ratio_text(part["ratio"], part["ratio_low"], part["ratio_high"]),
            f"{part['snr_db']:.0f}",
            "yes" if part["is_tried"] else "",
        ]
        for part in document["parts"].values()
    ]
    return markdown(("channels", "places", "latency against Conv", "SNR, dB", "tried in a search"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    parsing = argparse.ArgumentParser(prog="python -m experiments.bench.tiled", description=__doc__)
    parsing.add_argument("out", type=Path, help="JSON file")
    parsing.add_argument("--time", default="5s", help="of each comparison, default: %(default)s")
    asked = parsing.parse_args(arguments)
    seconds = seconds_of(asked.time)
    for shape in SHAPES:
        part = new_part("experiments.bench.tiled", seconds=seconds)
        write_part(asked.out, " x ".join(map(str, shape)), part | measure_tiled(shape, seconds))
    print(render_tiled(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
