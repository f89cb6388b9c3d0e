import platform
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from autoquant.inspection.inspection import Inspection
from autoquant.inspection.types import X86
from tests.inspected import inspected_as_on
from tests.models import Array, a_convnet, model_of
from tests.quantized import quantized_by_recipe

BODIES = {
    "QLinearMatMul": ("(T[2,8] x) => (T[2,4] y)", "y = QLinearMatMul(x, s, z, w, s, wz, s, z)"),
    "QGemm": ("(T[2,8] x) => (float[2,4] y)", "y = com.microsoft.QGemm(x, s, z, w, s, wz)"),
    "MatMulInteger": ("(T[2,8] x) => (int32[2,4] y)", "y = MatMulInteger(x, w)"),
    "MatMulIntegerToFloat": ("(T[2,8] x) => (float[2,4] y)", "y = com.microsoft.MatMulIntegerToFloat(x, w, s, s)"),
    "QLinearConv": ("(T[1,8,2,2] x) => (T[1,4,2,2] y)", "y = QLinearConv(x, s, z, v, s, wz, s, z)"),
}


def integer_model(name: str, dtype: str) -> onnx.ModelProto:
    signature, body = BODIES[name]
    constants: Mapping[str, Array | float] = {
        "s": 0.1,
        "z": np.array(0, dtype),
        "wz": np.array(0, np.int8),
        "w": np.ones((8, 4), np.int8),
        "v": np.ones((4, 8, 1, 1), np.int8),
    }
    return model_of(signature.replace("T[", f"{dtype}["), body, constants)


def signed_in(found: Inspection) -> list[str]:
    return [str(remark.name) for remark in found.remarks if remark.text.startswith("reads s8 activations")]


@pytest.mark.parametrize(("machine", "expected"), [("x86_64", ["y"]), ("AMD64", ["y"]), ("aarch64", [])])
@pytest.mark.parametrize("name", BODIES)
def test_products_of_signed_activations_are_remarked_upon_on_x86(
    name: str, machine: str, expected: list[str], tmp_path: Path
) -> None:
    assert signed_in(inspected_as_on(machine, integer_model(name, "int8"), tmp_path)) == expected


@pytest.mark.parametrize("name", BODIES)
def test_those_of_unsigned_ones_are_not(name: str, tmp_path: Path) -> None:
    assert signed_in(inspected_as_on("x86_64", integer_model(name, "uint8"), tmp_path)) == []


def test_nothing_is_known_of_other_providers(tmp_path: Path) -> None:
    assert signed_in(inspected_as_on("x86_64", integer_model("QGemm", "int8"), tmp_path, ep="other")) == []


@pytest.mark.skipif(platform.machine() not in X86, reason="elsewhere Q/DQ pairs stay signed")
@pytest.mark.parametrize(("quant_format", "n_nodes"), [(QuantFormat.QOperator, 4), (QuantFormat.QDQ, 0)])
def test_a_recipe_keeps_them_signed_in_a_file_of_integer_operators(
    quant_format: QuantFormat, n_nodes: int, tmp_path: Path
) -> None:
    recipe = quantized_by_recipe(a_convnet(), tmp_path, quant_format, QuantType.QInt8)
    found = inspected_as_on("x86_64", recipe, tmp_path)
    assert found.unlike_written == ()
    assert len(signed_in(found)) == n_nodes
