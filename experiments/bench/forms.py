"""What some forms that preprocessing writes models in are worth.

``python -m experiments.bench.forms OUT.json [--time 5s]`` measures convolutions that write few channels or read odd
numbers of them, Softmax along an axis that is not the last, activations spelled by arithmetic, and what is computed of
tokens, each beside what ``autoquant.graph.rewriting`` makes of it, float, one thread, in rounds that both share.
OUT.json has a part for each model.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper, parser, shape_inference

from autoquant.graph.rewriting import fast_kernels, rewritten
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.bench.beside import measure_beside, ratio_text
from experiments.results import seconds_of

__all__ = ["CASES", "Case", "main", "measure_form", "model_of", "render_forms"]


@dataclass(frozen=True, slots=True)
class Case:
    """A model with one input ``x`` and one output ``y``.

    Attributes:
        name: What it stands for.
        given: Sizes of ``x``.
        body: Its nodes, in ONNX's textual syntax.
        weights: Sizes of constants of random values by name.
        numbers: Constants of integers by name.
        scalars: Constants of one number by name.
    """

    name: str
    given: tuple[int, ...]
    body: str
    weights: Mapping[str, tuple[int, ...]]
    numbers: Mapping[str, tuple[int, ...]]
    scalars: Mapping[str, float] = field(default_factory=dict)


def _conv(given: tuple[int, ...], n_written: int, kernel: tuple[int, ...]) -> Case:
    pads = [size // 2 for size in kernel] * 2
    shapes = " x ".join(map(str, kernel)), " x ".join(map(str, given[2:]))
    name = f"Conv of {given[1]} channels to {n_written}, kernel {shapes[0]}, {shapes[1]} places"
    return Case(name, given, f"y = Conv<pads = {pads}>(x, w)", {"w": (n_written, given[1], *kernel)}, {})


def _joined(n: int, n_joined: int, size: int) -> Case:
    """Between two Convs so many channels, and others that are computed of them beside it, of images of one size."""
    kernel = "pads = [1, 1, 1, 1]"
    body = f"a = Conv<{kernel}>(x, u) b = Relu(a) p = Conv(x, v) c = Concat<axis = 1>(b, p) y = Conv<{kernel}>(c, w)"
    weights = {"u": (n, n, 3, 3), "v": (n_joined, n, 1, 1), "w": (n, n + n_joined, 3, 3)}
    return Case(
        f"Conv behind a Concat of {n} and {n_joined} channels, {size} x {size} places",
        (1, n, size, size),
        body,
        weights,
        {},
    )


def _distances(n: int) -> Case:
    body = (
        "r = Reshape(x, s) t = Transpose<perm = [0, 2, 1, 3]>(r) p = Softmax<axis = 1>(t)"
        " c = Conv(p, w) y = Reshape(c, z)"
    )
    return Case(f"distances of {n} boxes", (1, 64, n), body, {"w": (1, 16, 1, 1)}, {"s": (1, 4, 16, n), "z": (1, 4, n)})


_NUMBERS = {"half": 0.5, "one": 1.0, "three": 3.0, "root": 2**0.5, "k": 0.044715, "c": (2 / np.pi) ** 0.5}
_BY_TANH = "e = Mul(d, c) t = Tanh(e) u = Add(t, one) v = Mul(z, half)"
_GELU_BY_POW = f"a = Pow(z, three) b = Mul(a, k) d = Add(z, b) {_BY_TANH}"
_GELU_BY_MUL = f"a = Mul(k, z) p = Mul(z, a) b = Mul(z, p) d = Add(z, b) {_BY_TANH}"
_GELU_BY_ERF = "a = Div(z, root) b = Erf(a) u = Add(b, one) v = Mul(u, half)"


def _spelled(name: str, body: str, last: str, given: tuple[int, ...] = (1, 512, 508)) -> Case:
    """Of ``z``, which is read from ``x``."""
    return Case(f"{name}, {given[1]} x {given[2]}", given, f"{body} y = {last}".replace("z", "x"), {}, {}, _NUMBERS)


_OF_TOKENS = "i = Cast<to = 7>(x) g = Gather(table, i) z = MatMul(g, w)"


CASES = (
    _conv((1, 64, 192, 192), 3, (3, 3)),
    _conv((1, 32, 128, 128), 3, (9, 9)),
    _conv((1, 64, 256, 256), 1, (3, 3)),
    _conv((1, 64, 64, 64), 1, (7, 7)),
    _conv((1, 8, 172, 264), 8, (3, 39)),
    _conv((1, 32, 65536), 1, (7,)),
    _joined(32, 1, 80),
    _joined(64, 3, 112),
    _joined(128, 1, 40),
    _distances(8400),
    _distances(2100),
    Case("Softmax of 19 channels, 128 x 128 places", (1, 19, 128, 128), "y = Softmax<axis = 1>(x)", {}, {}),
    Case("Softmax of 2 channels, 160 x 160 places", (1, 2, 160, 160), "y = Softmax<axis = 1>(x)", {}, {}),
    _spelled("GELU by Pow and Tanh", _GELU_BY_POW, "Mul(v, u)"),
    _spelled("GELU by Mul and Tanh", _GELU_BY_MUL, "Mul(v, u)"),
    _spelled("GELU by Erf, halved before", _GELU_BY_ERF, "Mul(z, v)"),
    _spelled("SiLU by Exp and Div", "n = Neg(z) e = Exp(n) d = Add(e, one)", "Div(z, d)"),
    _spelled("GELU by Pow and Tanh", _GELU_BY_POW, "Mul(v, u)", (1, 64, 64)),
    Case(
        "MatMul of 2048 embedded tokens, 64 to 64 values",
        (1, 2048),
        f"{_OF_TOKENS} y = Identity(z)",
        {"table": (256, 64), "w": (64, 64)},
        {},
    ),
    Case(
        "MatMul and GELU of 2048 embedded tokens, 64 to 64 values",
        (1, 2048),
        f"{_OF_TOKENS} y = Gelu(z)",
        {"table": (256, 64), "w": (64, 64)},
        {},
    ),
)


def model_of(case: Case) -> onnx.ModelProto:
    """With shapes."""
    sizes = ",".join(map(str, case.given))
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[{sizes}] x) => (float[] y) {{{case.body}}}'
    model = parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    rng = np.random.default_rng(0)
    constants: dict[str, npt.NDArray[np.generic]] = {
        name: (rng.standard_normal(size) / np.sqrt(np.prod(size[1:]))).astype(np.float32)
        for name, size in case.weights.items()
    }
    constants |= {name: np.array(values, np.int64) for name, values in case.numbers.items()}
    constants |= {name: np.array(value, np.float32) for name, value in case.scalars.items()}
    model.graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in constants.items())
    for i, node in enumerate(model.graph.node):
        node.name = f"n{i}"
    return shape_inference.infer_shapes(model)


def measure_form(case: Case, seconds: float) -> dict[str, Any]:
    """The ratio of the other form to what is given, with the interval of a further process."""
    model = model_of(case)
    other = rewritten(model, fast_kernels(is_for_cpu=True))
    return measure_beside(model, other, case.given[1:], seconds)


def render_forms(document: Mapping[str, Any]) -> str:
    """Markdown: a line for each model."""
    rows = [
        [
            name,
            ratio_text(part["ratio"], part["ratio_low"], part["ratio_high"]),
            "equal" if part["snr_db"] is None else f"{part['snr_db']:.0f}",
        ]
        for name, part in document["parts"].items()
    ]
    return markdown(("model", "latency against as given", "SNR, dB"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    parsing = argparse.ArgumentParser(prog="python -m experiments.bench.forms", description=__doc__)
    parsing.add_argument("out", type=Path, help="JSON file")
    parsing.add_argument("--time", default="5s", help="of each comparison, default: %(default)s")
    asked = parsing.parse_args(arguments)
    seconds = seconds_of(asked.time)
    for case in CASES:
        part = new_part("experiments.bench.forms", seconds=seconds)
        write_part(asked.out, case.name, part | measure_form(case, seconds))
    print(render_forms(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
