"""What an integer kernel of onnxruntime's CPU provider asks for beside its operator."""

import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.inspection.kernels import Runs
from autoquant.inspection.types import X86
from tests.inspected import inspected, node_of
from tests.qdq import IMAGE, WEIGHT, Constant, Wrapped, ints

IS_X86 = platform.machine() in X86
# Signed activations: onnxruntime makes pairs unsigned on x86, and leaves what is no pair

MEETS_A_CONSTANT = {
    "Add": Wrapped("Add(x, c)", IMAGE, {"c": Constant((4, 1, 1))}),
    "Mul": Wrapped("Mul(x, c)", IMAGE, {"c": Constant((4, 1, 1))}),
    "Concat": Wrapped("Concat<axis=1>(x, c)", IMAGE, {"c": Constant((1, 2, 6, 6))}),
    "Where": Wrapped("Where(condition, x, c)", IMAGE, {"c": Constant((1,))}, {"condition": np.array([True])}),
}


@pytest.mark.parametrize("activation", ["u8", "s8", "u16"])
@pytest.mark.parametrize("name", MEETS_A_CONSTANT)
def test_a_signed_constant_beside_a_signed_activation_keeps_it_in_float_on_x86(
    name: str, activation: str, tmp_path: Path
) -> None:
    constant = replace(MEETS_A_CONSTANT[name].constants["c"], dtype=activation)
    model = replace(MEETS_A_CONSTANT[name], constants={"c": constant}, activation=activation)
    found = node_of(inspected(model.model, tmp_path))
    is_integer = activation == "u8" or (activation == "s8" and not IS_X86)
    assert found.runs == (Runs.INTEGER if is_integer else Runs.FLOAT)
    if is_integer:
        assert found.kernel == f"com.microsoft:QLinear{name}"


@pytest.mark.parametrize("activation", ["u8", "s8"])
def test_a_signed_activation_with_two_readers_keeps_them_in_float_on_x86(activation: str, tmp_path: Path) -> None:
    model = Wrapped("Sigmoid(x)", IMAGE, activation=activation).model
    node = onnx.helper.make_node("Sigmoid", ["x_d"], ["second"], name="second")
    model.graph.node.append(node)
    model.graph.output.append(onnx.helper.make_tensor_value_info("second", onnx.TensorProto.FLOAT, None))
    found = node_of(inspected(model, tmp_path))
    assert found.runs == (Runs.FLOAT if activation == "s8" and IS_X86 else Runs.INTEGER)


def table(dtype: str, *, is_written: bool) -> Wrapped:
    constants, indices = {"c": Constant((9, 4), dtype)}, {"i": ints(3, 1)}
    return Wrapped("Gather(c, i)", {}, constants, indices, output=dtype if is_written else "", moves=True)


@pytest.mark.parametrize("dtype", ["u8", "s8", "u16", "s16"])
def test_a_quantized_table_is_gathered_before_it_is_dequantized(dtype: str, tmp_path: Path) -> None:
    found = inspected(table(dtype, is_written=True).model, tmp_path)
    is_float = dtype == "s8" and IS_X86
    assert node_of(found).runs == (Runs.FLOAT if is_float else Runs.INTEGER)
    assert len(found.dequantized) == is_float


def test_a_quantized_table_without_a_pair_behind_is_dequantized_as_a_whole(tmp_path: Path) -> None:
    found = inspected(table("u8", is_written=False).model, tmp_path)
    assert (node_of(found, "y").runs, len(found.dequantized)) == (Runs.FLOAT, 1)
    assert node_of(found, "y").causes == ("no output QuantizeLinear",)


# Relu and Clip behind a Conv


@pytest.mark.parametrize(("activation", "zero_point"), [("u8", 0), ("u8", 128), ("s8", -128), ("s8", 0)])
def test_a_relu_is_absorbed_at_the_minimum_of_the_type(activation: str, zero_point: int, tmp_path: Path) -> None:
    model = Wrapped("Conv(x, w)", IMAGE, WEIGHT, behind="Relu(@)", activation=activation, zero_point=zero_point)
    found = inspected(model.model, tmp_path)
    is_absorbed = zero_point in (0, -128) and (activation, zero_point) != ("s8", 0)
    assert node_of(found).runs == (Runs.INTEGER if is_absorbed else Runs.FLOAT)
    assert (node_of(found, "r").fused_into, node_of(found, "r").runs) == ("t", node_of(found).runs)


@pytest.mark.parametrize(("scale", "is_absorbed"), [(6 / 255, True), (7 / 255, False)])
def test_a_clip_is_absorbed_that_the_range_makes_redundant(scale: float, is_absorbed: bool, tmp_path: Path) -> None:
    model = Wrapped(
        "Conv(x, w)",
        IMAGE,
        WEIGHT,
        {"low": 0.0, "high": 6.0},
        behind="Clip(@, low, high)",
        zero_point=0,
        scale=scale,
    )
    assert node_of(inspected(model.model, tmp_path)).runs == (Runs.INTEGER if is_absorbed else Runs.FLOAT)
