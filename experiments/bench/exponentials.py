"""What writing Elu, Softplus and Mish with other operators is worth.

``python -m experiments.bench.exponentials OUT.json [--time 10s]`` makes models that are four activations in a row, of
several shapes, and measures each beside what ``autoquant.rewrites.exponentials`` makes of it, of small tensors too, one
thread, in rounds that both share. OUT.json has a part for each activation and shape.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
from onnx import TensorProto, helper

from autoquant.rewrites import exponentials
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.bench.beside import measure_beside, ratio_text
from experiments.results import seconds_of

__all__ = ["chain", "main", "measure_exponentials", "render_exponentials"]

SHAPES = ((64, 64, 64), (64, 28, 28), (64, 16, 16), (16, 16, 16), (4, 16, 16))
"""Channels, height and width."""
ACTIVATIONS: Mapping[str, Sequence[str]] = {
    "Elu": ("Elu",),
    "Softplus": ("Softplus",),
    "Mish": ("Softplus", "Tanh", "Mul"),
}
"""Operators in a row; a product is one with what the first of them reads."""
N_ACTIVATIONS = 4


def chain(activation: str, shape: Sequence[int]) -> onnx.ModelProto:
    """One activation behind the other."""
    nodes: list[onnx.NodeProto] = []
    for i in range(N_ACTIVATIONS):
        source = last = "x" if i == 0 else f"h{i}"
        for op_type in ACTIVATIONS[activation]:
            inputs, last = [last, source] if op_type == "Mul" else [last], f"{op_type.lower()}{i}"
            nodes.append(helper.make_node(op_type, inputs, [last], last))
        nodes[-1].output[0] = "y" if i == N_ACTIVATIONS - 1 else f"h{i + 1}"
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, *shape]) for name in "xy")
    graph = helper.make_graph(nodes, "chain", [given], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def measure_exponentials(activation: str, shape: Sequence[int], seconds: float) -> dict[str, Any]:
    """The ratio of what is written with other operators to what is given, with the interval of a further process."""
    model = chain(activation, shape)
    with mock.patch.object(exponentials, "FEWEST_ELEMENTS", 0):
        split = exponentials.split_exponentials(model)
    return measure_beside(model, split, shape, seconds)


def render_exponentials(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each activation and shape."""
    rows = [
        [
            part["activation"],
            " x ".join(map(str, part["shape"])),
            ratio_text(part["ratio"], part["ratio_low"], part["ratio_high"]),
            f"{part['snr_db']:.0f}",
        ]
        for part in document["parts"].values()
    ]
    return markdown(("activation", "shape", "latency against the operator", "SNR, dB"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench.exponentials", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("--time", default="10s", help="of each comparison, default: %(default)s")
    asked = parser.parse_args(arguments)
    seconds = seconds_of(asked.time)
    for activation in ACTIVATIONS:
        for shape in SHAPES:
            part = new_part("experiments.bench.exponentials", seconds=seconds)
            found = measure_exponentials(activation, shape, seconds)
            name = f"{activation}, {'x'.join(map(str, shape))}"
            write_part(asked.out, name, part | {"activation": activation, "shape": shape} | found)
    print(render_exponentials(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
