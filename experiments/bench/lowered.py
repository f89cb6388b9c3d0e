"""What operators without an integer kernel take, and what they take written as others that have one.

``python -m experiments.bench.lowered OUT.json [--time 10s]`` makes small models in which such an operator is between
convolutions, as a ConvTranspose, and measures each beside what is made of it by ``autoquant.rewrites.convolutions``
and, of a HardSigmoid, in candidates, both in float and in 8 bits throughout, one thread, in rounds that all of them
share. OUT.json has a part for each model.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper, parser

from autoquant import build, calibrate, compare, find_regions, prepare, read_data
from autoquant.graph import rewriting
from autoquant.qdq import planner
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.bench.beside import ratio_text
from experiments.results import seconds_of

__all__ = ["MODELS", "main", "measure_lowered", "render_lowered", "small_model"]

N_SAMPLES = 8
REWRITES = (
    "transpose_first",
    "lower_average_pool",
    "crop",
    "fold_pads",
    "concatenate_zeros",
    "transpose_upsampled",
    "lower_conv_transpose",
    "pool_means",
    "lower_affine",
    "interleave_depth",
    "slice_volumes",
)
"""Of ``autoquant.graph.rewriting``, in the order in which they are done there."""
BEFORE = "c = Conv<pads=[1,1,1,1]>(x, first) r = Relu(c)"
LINE = "c = Conv<pads=[1,1]>(x, first) r = Relu(c)"
VOLUME = "c = Conv<pads=[1,1,1,1,1,1]>(x, first) r = Relu(c) d = Conv<pads=[1,1,1,1,1,1]>(r, w) t = Relu(d)"
BEHIND = "z = Conv(t, last) y = Relu(z)"
GATE = "p = Relu(g) q = Conv(p, up) s = Sigmoid(q) t = Mul(r, s)"
PLACES = {
    "places": (2, 3),
    "around": (1, 1, 1, 1),
    "inside": (0, 0, -4, -4, 0, 0, -4, -4),
    "behind": (0, 0, 0, 0, 0, 16, 0, 0),
}
"""Constants that are no weights."""
SCALES = {"double": (1, 1, 2, 2), "fourfold": (1, 1, 4, 4)}
"""The same of floats."""
Case = tuple[tuple[int, ...], str, Mapping[str, tuple[int, ...]]]
MODELS: Mapping[str, Case] = {
    "ConvTranspose, kernel 2, 24 to 24 channels of 104 x 104": (
        (24, 104, 104),
        f"{BEFORE} u = ConvTranspose<strides=[2,2]>(r, w, b) t = Relu(u) {BEHIND}",
        {"first": (24, 24, 3, 3), "w": (24, 24, 2, 2), "b": (24,), "last": (24, 24, 1, 1)},
    ),
    "ConvTranspose, kernel 2, 128 to 64 channels of 64 x 64": (
        (128, 64, 64),
        f"{BEFORE} u = ConvTranspose<strides=[2,2]>(r, w, b) t = Relu(u) {BEHIND}",
        {"first": (128, 128, 3, 3), "w": (128, 64, 2, 2), "b": (64,), "last": (64, 64, 1, 1)},
    ),
    "ConvTranspose, kernel 4, 32 to 16 channels of 112 x 112": (
        (32, 112, 112),
        f"{BEFORE} u = ConvTranspose<strides=[2,2], pads=[1,1,1,1]>(r, w, b) t = Relu(u) {BEHIND}",
        {"first": (32, 32, 3, 3), "w": (32, 16, 4, 4), "b": (16,), "last": (16, 16, 1, 1)},
    ),
    "ConvTranspose, kernel 16, stride 8, 128 to 64 channels of 512": (
        (128, 512),
        f"{LINE} u = ConvTranspose<strides=[8], pads=[4,4]>(r, w, b) t = Relu(u) {BEHIND}",
        {"first": (128, 128, 3), "w": (128, 64, 16), "b": (64,), "last": (64, 64, 1)},
    ),
    "ConvTranspose, kernel 4 x 1, stride 2 x 1, 64 to 32 channels of 32 x 64": (
        (64, 32, 64),
        f"{BEFORE} u = ConvTranspose<strides=[2,1], pads=[1,0,1,0]>(r, w, b) t = Relu(u) {BEHIND}",
        {"first": (64, 64, 3, 3), "w": (64, 32, 4, 1), "b": (32,), "last": (32, 32, 1, 1)},
    ),
    "ConvTranspose, kernel 5, stride 2, 64 to 32 channels of 32 x 32": (
        (64, 32, 32),
        f"{BEFORE} u = ConvTranspose<strides=[2,2], pads=[2,2,2,2], output_padding=[1,1]>(r, w, b) "
        f"t = Relu(u) {BEHIND}",
        {"first": (64, 64, 3, 3), "w": (64, 32, 5, 5), "b": (32,), "last": (32, 32, 1, 1)},
    ),
    "ConvTranspose, kernel 3, stride 2, 128 to 64 channels of 500": (
        (128, 500),
        f"{LINE} u = ConvTranspose<strides=[2], pads=[1,1], output_padding=[1]>(r, w, b) t = Relu(u) {BEHIND}",
        {"first": (128, 128, 3), "w": (128, 64, 3), "b": (64,), "last": (64, 64, 1)},
    ),
    "DepthToSpace, 64 to 16 channels of 64 x 64": (
        (32, 64, 64),
        f'{BEFORE} t = DepthToSpace<blocksize=2, mode="CRD">(r) {BEHIND}',
        {"first": (64, 32, 3, 3), "last": (16, 16, 1, 1)},
    ),
    "BatchNormalization and Relu behind Concat, 64 channels of 56 x 56": (
        (32, 56, 56),
        f"{BEFORE} k = Concat<axis=1>(x, r) n = BatchNormalization(k, g, h, m, v) t = Relu(n) {BEHIND}",
        {"first": (32, 32, 3, 3), "g": (64,), "h": (64,), "m": (64,), "v": (64,), "last": (32, 64, 1, 1)},
    ),
    "BatchNormalization between Relu and MaxPool, 32 channels of 56 x 56": (
        (32, 56, 56),
        f"{BEFORE} n = BatchNormalization(r, g, h, m, v) t = MaxPool<kernel_shape=[2,2], strides=[2,2]>(n) {BEHIND}",
        {"first": (32, 32, 3, 3), "g": (32,), "h": (32,), "m": (32,), "v": (32,), "last": (32, 32, 1, 1)},
    ),
    "BatchNormalization between Relu and MaxPool, 64 channels of 2000": (
        (64, 2000),
        f"{LINE} n = BatchNormalization(r, g, h, m, v) t = MaxPool<kernel_shape=[2], strides=[2]>(n) {BEHIND}",
        {"first": (64, 64, 3), "g": (64,), "h": (64,), "m": (64,), "v": (64,), "last": (64, 64, 1)},
    ),
    "Mul and Add between Relu and MaxPool, 32 channels of 56 x 56": (
        (32, 56, 56),
        f"{BEFORE} f = Mul(r, g) n = Add(f, h) t = MaxPool<kernel_shape=[2,2], strides=[2,2]>(n) {BEHIND}",
        {"first": (32, 32, 3, 3), "g": (32, 1, 1), "h": (32, 1, 1), "last": (32, 32, 1, 1)},
    ),
    **{
        f"Conv of volumes, {n} channels of {' x '.join(map(str, size))}": (
            (n, *size),
            f"{VOLUME} {BEHIND}",
            {"first": (n, n, 3, 3, 3), "w": (n, n, 3, 3, 3), "last": (n, n, 1, 1, 1)},
        )
        for n, size in ((8, (16, 32, 32)), (16, (16, 32, 32)), (32, (16, 32, 32)), (64, (8, 16, 16)))
    },
    "Conv of volumes of each of 64 channels, 8 x 28 x 28": (
        (64, 8, 28, 28),
        f"c = Conv(x, first) r = Relu(c) d = Conv<pads=[1,1,1,1,1,1], group=64>(r, w) t = Relu(d) {BEHIND}",
        {"first": (64, 64, 1, 1, 1), "w": (64, 1, 3, 3, 3), "last": (64, 64, 1, 1, 1)},
    ),
    "Conv of volumes of 2 x 16 x 16, 3 to 192 channels of 16 x 112 x 112": (
        (3, 16, 112, 112),
        f"c = Conv<strides=[2,16,16]>(x, first) t = Relu(c) {BEHIND}",
        {"first": (192, 3, 2, 16, 16), "last": (192, 192, 1, 1, 1)},
    ),
    "Conv of volumes of 1 x 3 x 3 and 3 x 1 x 1, 64 channels of 8 x 28 x 28": (
        (64, 8, 28, 28),
        f"c = Conv<pads=[0,1,1,0,1,1]>(x, first) r = Relu(c) d = Conv<pads=[1,0,0,1,0,0]>(r, w) t = Relu(d) {BEHIND}",
        {"first": (64, 64, 1, 3, 3), "w": (64, 64, 3, 1, 1), "last": (64, 64, 1, 1, 1)},
    ),
    "Conv behind a Resize that repeats values, 64 to 32 channels of 56 x 56": (
        (64, 56, 56),
        f'{BEFORE} u = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(r, , double) '
        f"d = Conv<pads=[1,1,1,1]>(u, w) t = Relu(d) {BEHIND}",
        {"first": (64, 64, 3, 3), "w": (32, 64, 3, 3), "last": (32, 32, 1, 1)},
    ),
    "Conv behind a Resize that repeats values four times, 32 to 8 channels of 48 x 48": (
        (32, 48, 48),
        f'{BEFORE} u = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(r, , fourfold) '
        f"d = Conv<pads=[1,1,1,1]>(u, w) t = Relu(d) {BEHIND}",
        {"first": (32, 32, 3, 3), "w": (8, 32, 3, 3), "last": (8, 8, 1, 1)},
    ),
    "Pad that cuts images, 32 channels of 56 x 56": (
        (32, 56, 56),
        f"{BEFORE} t = Pad(r, inside) {BEHIND}",
        {"first": (32, 32, 3, 3), "last": (32, 32, 1, 1)},
    ),
    "Mul and Add of channels that lie last, before Conv, 3 channels of 224 x 224": (
        (224, 224, 3),
        "f = Mul(x, g) n = Add(f, h) r = Transpose<perm=[0,3,1,2]>(n) c = Conv<strides=[2,2]>(r, first) t = Relu(c) "
        f"{BEHIND}",
        {"g": (3,), "h": (3,), "first": (32, 3, 3, 3), "last": (32, 32, 1, 1)},
    ),
    "Pad of channels before Add, 32 to 48 of 28 x 28": (
        (32, 28, 28),
        f"{BEFORE} p = Pad(r, behind) q = Conv(r, w) a = Add(p, q) t = Relu(a) {BEHIND}",
        {"first": (32, 32, 3, 3), "w": (48, 32, 1, 1), "last": (48, 48, 1, 1)},
    ),
    "hard swish, 64 channels of 56 x 56": (
        (64, 56, 56),
        "c = Conv<pads=[1,1,1,1]>(x, first) s = HardSwish(c) "
        f"d = Conv<pads=[1,1,1,1], group=64>(s, w) t = HardSwish(d) {BEHIND}",
        {"first": (64, 64, 3, 3), "w": (64, 1, 3, 3), "last": (64, 64, 1, 1)},
    ),
    "ReduceMean of a gate, 96 channels of 28 x 28": (
        (96, 28, 28),
        f"{BEFORE} a = ReduceMean(r, places) g = Conv(a, down) {GATE} {BEHIND}",
        {"first": (96, 96, 3, 3), "down": (24, 96, 1, 1), "up": (96, 24, 1, 1), "last": (96, 96, 1, 1)},
    ),
    "AveragePool of 2 x 2, stride 2, 64 channels of 56 x 56": (
        (64, 56, 56),
        f"{BEFORE} t = AveragePool<kernel_shape=[2,2], strides=[2,2]>(r) {BEHIND}",
        {"first": (64, 64, 3, 3), "last": (64, 64, 1, 1)},
    ),
    "AveragePool of 2 x 2, stride 2, 40 channels of 56 x 56": (
        (40, 56, 56),
        f"{BEFORE} t = AveragePool<kernel_shape=[2,2], strides=[2,2]>(r) {BEHIND}",
        {"first": (40, 40, 3, 3), "last": (40, 40, 1, 1)},
    ),
    "AveragePool of 3 x 3, stride 1, 64 channels of 28 x 28": (
        (64, 28, 28),
        f"{BEFORE} t = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(r) {BEHIND}",
        {"first": (64, 64, 3, 3), "last": (64, 64, 1, 1)},
    ),
    "AveragePool of 2, stride 2, 64 channels of 2000": (
        (64, 2000),
        f"{LINE} t = AveragePool<kernel_shape=[2], strides=[2]>(r) {BEHIND}",
        {"first": (64, 64, 3), "last": (64, 64, 1)},
    ),
}
"""Shape of a sample, nodes, and shapes of the weights."""


def small_model(case: Case) -> onnx.ModelProto:
    """A model with random weights."""
    shape, body, weights = case
    sizes = ",".join(map(str, (1, *shape)))
    head = '<ir_version: 10, opset_import: ["" : 21]>'
    model = parser.parse_model(f"{head} small (float[{sizes}] x) => (float[] y) {{ {body} }}")
    rng = np.random.default_rng(0)
    constants: dict[str, npt.NDArray[np.generic]] = {name: _weight(rng, each) for name, each in weights.items()}
    constants |= {name: np.array(values) for name, values in PLACES.items() if f" {name}" in body}
    constants |= {name: np.array(values, np.float32) for name, values in SCALES.items() if f" {name})" in body}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return onnx.shape_inference.infer_shapes(model)


def _weight(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """As He et al. 2015 (arXiv 1502.01852) scale them; vectors are between 0.5 and 1.5, as variances have to be."""
    if math.prod(shape) == max(shape):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return rng.normal(0.0, np.sqrt(2 / np.prod(shape[1:])), shape).astype(np.float32)


@contextmanager
def left_as_given() -> Iterator[None]:
    """None of the rewrites is done inside, and a HardSigmoid stays one."""
    with ExitStack() as stack:
        for name in REWRITES:
            stack.enter_context(mock.patch.object(rewriting, name, lambda model: model))
        stack.enter_context(mock.patch.object(planner, "hard_sigmoid_factors", return_value=None))
        stack.enter_context(mock.patch.object(planner, "clipping_hard_sigmoids", return_value={}))
        yield


def measure_lowered(case: Case, seconds: float) -> dict[str, Any]:
    """Latency ratios against the float model as given, with the interval of a further process."""
    samples = np.random.default_rng(1).standard_normal((N_SAMPLES, *case[0])).astype(np.float32)
    with TemporaryDirectory() as folder:
        out = Path(folder)
        onnx.save(small_model(case), out / "model.onnx")
        np.savez(out / "data.npz", x=samples)
        with left_as_given():
            files = {"u8, as given": _in_8_bits(out, "given")}
        files |= {"float, written otherwise": _prepared(out), "u8, written otherwise": _in_8_bits(out, "lowered")}
        table = compare([out / "model.onnx", *files.values()], out / "data.npz", seconds=seconds).table
    rows = {Path(str(row.model)).name: row for row in table.itertuples()}
    found = {form: rows[path.name] for form, path in files.items()}
    return {form: {"ratio": row.ratio, "low": row.ratio_low, "high": row.ratio_high} for form, row in found.items()}


def _prepared(out: Path) -> Path:
    path = out / "float.onnx"
    onnx.save(prepare(out / "model.onnx", read_data(out / "model.onnx", out / "data.npz")).graph.model, path)
    return path


def _in_8_bits(out: Path, name: str) -> Path:
    """A file in which every region takes one scheme."""
    samples = read_data(out / "model.onnx", out / "data.npz")
    prepared = prepare(out / "model.onnx", samples)
    regions = find_regions(prepared)
    assignment = {region.id: "u8s8-channel-minmax" for region in regions}
    path = out / f"{name}.onnx"
    build(prepared, regions, calibrate(prepared, samples), assignment).save(path)
    return path


def render_lowered(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model."""
    forms = ("float, written otherwise", "u8, as given", "u8, written otherwise")
    rows = [
        [
            part["model"],
            *(ratio_text(part[form]["ratio"], part[form]["low"], part[form]["high"]) for form in forms),
        ]
        for part in document["parts"].values()
    ]
    return markdown(("between convolutions", *forms), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    arguments_of = argparse.ArgumentParser(prog="python -m experiments.bench.lowered", description=__doc__)
    arguments_of.add_argument("out", type=Path, help="JSON file")
    arguments_of.add_argument("--time", default="10s", help="of each comparison, default: %(default)s")
    asked = arguments_of.parse_args(arguments)
    seconds = seconds_of(asked.time)
    for name, case in MODELS.items():
        part = new_part("experiments.bench.lowered", seconds=seconds)
        write_part(asked.out, name, part | {"model": name} | measure_lowered(case, seconds))
    print(render_lowered(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
