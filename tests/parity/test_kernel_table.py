"""Which operators run on integers on the CPU provider of the onnxruntime that is installed: seen, not assumed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from autoquant.inspection.kernels import Runs
from tests.inspected import FROM_1_32, inspected, node_of
from tests.models import floats
from tests.qdq import IMAGE, MATRIX, SQUARE, WEIGHT, Constant, Wrapped, ints

TWO_IMAGES = {"x": (1, 4, 6, 6), "z": (1, 4, 6, 6)}


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        model: With u8 activations and s8 weights.
        kernel: Of 8 bits, without its domain; None for float.
        is_wide: Whether 16 bits run on integers too.
        is_weight_only: Whether the weight-only kernel takes it where activations have 16 bits.
    """

    model: Wrapped
    kernel: str | None
    is_wide: bool = False
    is_weight_only: bool = False

    def runs(self, activation: str) -> tuple[Runs, str | None]:
        """What is expected, with the kernel where it is one of integers."""
        if self.kernel is not None and (self.is_wide or activation.endswith("8")):
            return Runs.INTEGER, self.kernel
        return (Runs.WEIGHT_ONLY, "MatMulNBits") if self.is_weight_only else (Runs.FLOAT, None)


def image(call: str, kernel: str | None, **options: object) -> Row:
    return Row(Wrapped(call, IMAGE, **options), kernel)  # type: ignore[arg-type]


def moving(call: str, plain: Mapping[str, object] | None = None) -> Row:
    name = call.partition("(")[0].partition("<")[0]
    return Row(Wrapped(call, IMAGE, plain=plain or {}, moves=True), name, is_wide=True)  # type: ignore[arg-type]


BIAS = {"b": Constant((4,), "s32", scale=0.03 * 0.02)}
ROW = Constant((1, 8), "s32", scale=0.03 * 0.02)
LSTM_WEIGHTS = {"w": Constant((1, 16, 8)), "r": Constant((1, 16, 4)), "b": Constant((1, 32))}

LINEAR = {
    "Conv 1D": Row(Wrapped("Conv(x, w)", {"x": (1, 4, 9)}, {"w": Constant((4, 4, 3))}), "QLinearConv"),
    "Conv 2D": image("Conv(x, w)", "QLinearConv", constants=WEIGHT),
    "Conv with bias": image("Conv(x, w, b)", "QLinearConv", constants=WEIGHT | BIAS),
    "Conv depthwise": image("Conv<group=4>(x, w)", "QLinearConv", constants={"w": Constant((4, 1, 3, 3))}),
    "ConvTranspose": image("ConvTranspose(x, w)", None, constants=WEIGHT),
    "Gemm": Row(Wrapped("Gemm(x, w)", MATRIX, SQUARE), "QGemm", is_weight_only=FROM_1_32),
    "Gemm, transB": Row(Wrapped("Gemm<transB=1>(x, w)", MATRIX, SQUARE), "QGemm"),
    "Gemm, transA": Row(Wrapped("Gemm<transA=1>(x, w)", {"x": (8, 4)}, SQUARE), "QGemm"),
    "Gemm, bias [1,N]": Row(Wrapped("Gemm(x, w, b)", MATRIX, SQUARE | {"b": ROW}), "QGemm"),
    "Gemm, alpha": Row(Wrapped("Gemm<alpha=0.5>(x, w)", MATRIX, SQUARE), "QGemm"),
    "Gemm, alpha and bias": Row(Wrapped("Gemm<alpha=0.5>(x, w, b)", MATRIX, SQUARE | {"b": ROW}), None),
    "Gemm, beta": Row(Wrapped("Gemm<beta=0.5>(x, w, b)", MATRIX, SQUARE | {"b": ROW}), None),
    "MatMul": Row(Wrapped("MatMul(x, w)", MATRIX, SQUARE), "QLinearMatMul", is_weight_only=FROM_1_32),
}
"""Operators with a weight: run with several types of it."""

OTHERS = {
    "MatMul of two": Row(Wrapped("MatMul(x, z)", {"x": (4, 8), "z": (8, 4)}), "QLinearMatMul"),
    "Add": Row(Wrapped("Add(x, z)", TWO_IMAGES), "QLinearAdd"),
    "Mul": Row(Wrapped("Mul(x, z)", TWO_IMAGES), "QLinearMul"),
    "Concat": Row(Wrapped("Concat<axis=1>(x, z)", TWO_IMAGES), "QLinearConcat"),
    "Softmax": image("Softmax<axis=-1>(x)", "QLinearSoftmax"),
    "Sigmoid": image("Sigmoid(x)", "QLinearSigmoid"),
    "LeakyRelu": image("LeakyRelu<alpha=0.1>(x)", "QLinearLeakyRelu"),
    "AveragePool": image("AveragePool<kernel_shape=[2,2]>(x)", "QLinearAveragePool"),
    "GlobalAveragePool": image("GlobalAveragePool(x)", "QLinearGlobalAveragePool"),
    "Sub": Row(Wrapped("Sub(x, z)", TWO_IMAGES), None),
    "Div": Row(Wrapped("Div(x, z)", TWO_IMAGES), None),
    **{
        op: image(f"{op}(x)", None) for op in ("Tanh", "HardSwish", "HardSigmoid", "Gelu", "Erf", "Exp", "Sqrt", "Mish")
    },
    "PRelu": image("PRelu(x, slope)", None, plain={"slope": np.full((4, 1, 1), 0.1, np.float32)}),
    "ReduceMean": image("ReduceMean<keepdims=1>(x, axes)", None, plain={"axes": ints(1)}),
    "Einsum": Row(Wrapped('Einsum<equation="ij,jk->ik">(x, z)', {"x": (4, 8), "z": (8, 4)}), None),
    "Pad": image("Pad(x, pads)", None, plain={"pads": ints(0, 0, 1, 1, 0, 0, 1, 1)}),
    "LayerNormalization": image("LayerNormalization(x, g)", None, plain={"g": floats(6)}),
    "InstanceNormalization": image("InstanceNormalization(x, g, b)", None, plain={"g": floats(4), "b": floats(4)}),
    "BatchNormalization": image(
        "BatchNormalization(x, g, b, m, v)",
        None,
        plain={k: np.abs(floats(4)) + 0.5 for k in "gbmv"},
    ),
    "Resize, linear": image('Resize<mode="linear">(x, , scales)', None, plain={"scales": np.array([1, 1, 2, 2], "f4")}),
    "SpaceToDepth": Row(Wrapped("SpaceToDepth<blocksize=2>(x)", IMAGE, moves=True), None),
    "LSTM": Row(Wrapped("LSTM<hidden_size=4>(x, w, r, b)", {"x": (3, 1, 8)}, LSTM_WEIGHTS), None),
    "Reshape": moving("Reshape(x, shape)", {"shape": ints(4, 36)}),
    "Transpose": moving("Transpose<perm=[0,2,3,1]>(x)"),
    "Slice": moving("Slice(x, starts, ends)", {"starts": ints(0, 1), "ends": ints(1, 3)}),
    "Gather": moving("Gather<axis=1>(x, indices)", {"indices": ints(2, 0)}),
    "Flatten": moving("Flatten(x)"),
    "Expand": moving("Expand(x, shape)", {"shape": ints(2, 4, 6, 6)}),
    "Tile": moving("Tile(x, repeats)", {"repeats": ints(1, 1, 2, 2)}),
    "Squeeze": moving("Squeeze(x, axes)", {"axes": ints(0)}),
    "Unsqueeze": moving("Unsqueeze(x, axes)", {"axes": ints(0)}),
    "MaxPool": replace(moving("MaxPool<kernel_shape=[2,2]>(x)"), is_wide=False),
    "DepthToSpace": replace(moving("DepthToSpace<blocksize=2>(x)"), is_wide=False),
    "ReduceMax": replace(moving("ReduceMax<keepdims=1>(x, axes)", {"axes": ints(1)}), is_wide=False),
    "ReduceMin": replace(moving("ReduceMin<keepdims=1>(x, axes)", {"axes": ints(1)}), is_wide=False),
    "GatherElements": moving("GatherElements<axis=1>(x, i)", {"i": np.zeros((1, 2, 6, 6), np.int64)}),
    "Resize, nearest": replace(
        moving('Resize<mode="nearest">(x, , scales)', {"scales": np.array([1, 1, 2, 2], "f4")}), is_wide=False
    ),
}


@pytest.mark.parametrize("activation", ["u8", "s8", "u16", "s16"])
@pytest.mark.parametrize("weight", ["u8", "s8", "s8 per channel"])
@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_operator_runs_as_in_the_table(name: str, weight: str, activation: str, tmp_path: Path) -> None:
    row = LINEAR[name]
    op, constant = row.model.call, row.model.constants["w"]
    axis = 0 if op.startswith(("Conv(", "Conv<")) or "transB=1" in op else 1
    changed = replace(constant, dtype=weight[:2], axis=axis if "channel" in weight else None)
    model = replace(row.model, constants={**row.model.constants, "w": changed}, activation=activation)
    found = inspected(model.model, tmp_path)
    runs, kernel = row.runs(activation)
    assert node_of(found).runs == runs
    assert kernel is None or str(node_of(found).kernel).endswith(kernel)
    assert [c.tensor for c in found.dequantized if c.tensor == "w_q"] == (["w_q"] if runs is Runs.FLOAT else [])


@pytest.mark.parametrize("activation", ["u8", "s8", "u16", "s16"])
@pytest.mark.parametrize("name", OTHERS)
def test_an_operator_runs_as_in_the_table(name: str, activation: str, tmp_path: Path) -> None:
    row = OTHERS[name]
    found = node_of(inspected(replace(row.model, activation=activation).model, tmp_path))
    runs, kernel = row.runs(activation)
    assert found.runs == runs, found
    assert kernel is None or str(found.kernel).endswith(kernel)
    assert found.is_as_written == (runs is Runs.INTEGER)
