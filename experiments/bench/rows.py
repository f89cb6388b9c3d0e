"""What computing convolutions of lines as those of images of one row is worth.

``python -m experiments.bench.rows OUT.json [--time 10s]`` makes models that are four convolutions of lines in a row,
with a Relu behind each, of several shapes, and measures each beside what ``autoquant.rewrites.lines`` makes of it, one
thread, in rounds that both share. OUT.json has a part for each shape.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autoquant.rewrites.lines import lay_lines
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.bench.beside import measure_beside, ratio_text
from experiments.results import seconds_of

__all__ = ["Shape", "chain", "main", "measure_rows", "render_rows"]

N_CONVOLUTIONS = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Channels, of each group as many; places of the kernel; places of the lines."""

    channels: int
    groups: int
    kernel: int
    length: int

    def __str__(self) -> str:
        return f"{self.channels} channels in {self.groups}, kernel {self.kernel}, {self.length} places"


SHAPES = (
    Shape(64, 1, 1, 400),
    Shape(64, 1, 3, 400),
    Shape(64, 1, 31, 400),
    Shape(256, 1, 3, 200),
    Shape(512, 1, 3, 100),
    Shape(64, 64, 5, 400),
    Shape(512, 512, 31, 200),
    Shape(64, 4, 3, 400),
)


def chain(shape: Shape) -> onnx.ModelProto:
    """One convolution behind the other."""
    rng = np.random.default_rng(0)
    sizes = shape.channels, shape.channels // shape.groups, shape.kernel
    weight = rng.standard_normal(sizes) / np.sqrt(sizes[1] * sizes[2])
    nodes: list[onnx.NodeProto] = []
    for i in range(N_CONVOLUTIONS):
        source, target = "x" if i == 0 else f"r{i - 1}", "y" if i == N_CONVOLUTIONS - 1 else f"r{i}"
        pads = 2 * [shape.kernel // 2]
        nodes.append(helper.make_node("Conv", [source, "w"], [f"c{i}"], f"c{i}", pads=pads, group=shape.groups))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [target], target))
    given, made = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, shape.channels, shape.length]) for name in "xy"
    )
    constants = [numpy_helper.from_array(weight.astype(np.float32), "w")]
    graph = helper.make_graph(nodes, "chain", [given], [made], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def measure_rows(shape: Shape, seconds: float) -> dict[str, Any]:
    """The ratio of what is laid out as images to what is given, with the interval of a further process."""
    model = chain(shape)
    return measure_beside(model, lay_lines(model), (shape.channels, shape.length), seconds)


def render_rows(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each shape."""
    rows = [
        [
            *map(str, part["shape"]),
            ratio_text(part["ratio"], part["ratio_low"], part["ratio_high"]),
            "equal" if part["snr_db"] is None else f"{part['snr_db']:.0f}",
        ]
        for part in document["parts"].values()
    ]
    return markdown(("channels", "groups", "kernel", "places", "latency against lines", "SNR, dB"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench.rows", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("--time", default="10s", help="of each comparison, default: %(default)s")
    asked = parser.parse_args(arguments)
    seconds = seconds_of(asked.time)
    for shape in SHAPES:
        part = new_part("experiments.bench.rows", seconds=seconds)
        write_part(asked.out, str(shape), part | {"shape": astuple(shape)} | measure_rows(shape, seconds))
    print(render_rows(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
