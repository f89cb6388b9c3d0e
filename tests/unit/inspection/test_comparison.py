from pathlib import Path

import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic

from autoquant import inspect_model
from autoquant.inspection.comparison import Comparison, Fate
from autoquant.inspection.kernels import Runs
from tests.models import a_convnet, floats, model_of, saved, weight_only_operator
from tests.qdq import pair, parameters
from tests.quantized import quantized_by_recipe


def compared(quantized: onnx.ModelProto, reference: onnx.ModelProto, folder: Path) -> Comparison:
    paths = [saved(model, folder / f"{i}.onnx") for i, model in enumerate((quantized, reference))]
    found = inspect_model(paths[0], against=paths[1]).comparison
    assert found is not None
    return found


def fate_of(found: Comparison, example: str) -> Fate:
    return next(fate for fate in found.fates if fate.example == example)


def test_a_model_compared_with_itself_is_the_same(tmp_path: Path) -> None:
    found = compared(a_convnet(), a_convnet(), tmp_path)
    assert found.n_missing == 0
    assert all(fate.runs is Runs.FLOAT and not fate.is_slower_float for fate in found.fates)
    assert sum(fate.n_nodes for fate in found.fates) == len(a_convnet().graph.node)


def test_nodes_that_became_integer_are_followed_by_name(tmp_path: Path) -> None:
    recipe = quantized_by_recipe(a_convnet(), tmp_path, QuantFormat.QDQ, QuantType.QUInt8)
    found = compared(recipe, a_convnet(), tmp_path)
    conv = fate_of(found, "a")
    assert (conv.runs, conv.kernel, conv.n_nodes) == (Runs.INTEGER, "com.microsoft:QLinearConv", 3)
    assert found.n_missing == 2  # the quantizer takes out each Relu


def test_nodes_that_the_quantizer_renames_are_followed(tmp_path: Path) -> None:
    recipe = quantized_by_recipe(a_convnet(), tmp_path, QuantFormat.QOperator, QuantType.QUInt8)
    assert fate_of(compared(recipe, a_convnet(), tmp_path), "a").runs is Runs.INTEGER


def test_products_that_the_dynamic_quantizer_or_preprocessing_renames_are_followed(tmp_path: Path) -> None:
    constants = {"w": floats(8, 8), "b": floats(8)}
    gemm = model_of("(float[4,8] x) => (float[4,8] y)", "y = Gemm(x, w, b)", constants)
    gemm.graph.node[0].name = "linear"
    quantize_dynamic(saved(gemm, tmp_path / "float.onnx"), tmp_path / "dynamic.onnx")
    found = compared(onnx.load(tmp_path / "dynamic.onnx"), gemm, tmp_path)
    assert fate_of(found, "linear").runs is Runs.DYNAMIC
    apart = model_of("(float[4,8] x) => (float[4,8] y)", "m = MatMul(x, w) y = Add(m, b)", constants)
    fused = onnx.ModelProto()
    fused.CopyFrom(gemm)
    fused.graph.node[0].name = "m/MatMulAddFusion"
    assert fate_of(compared(fused, apart, tmp_path), "m").runs is Runs.FLOAT
    assert compared(fused, fused, tmp_path).n_missing == 0


@pytest.mark.parametrize("end", ["_Q2", "_Q4", "_Q8", "_matmul_Q4"])
def test_products_that_the_weight_only_quantizer_renames_are_followed(end: str, tmp_path: Path) -> None:
    quantized = weight_only_operator()
    reference = model_of("(float[4,64] x) => (float[4,32] y)", "y = MatMul(x, w)", {"w": floats(64, 32)})
    quantized.graph.node[0].name, reference.graph.node[0].name = f"m{end}", "m"
    found = compared(quantized, reference, tmp_path)
    assert (fate_of(found, "m").runs, found.n_missing) == (Runs.WEIGHT_ONLY, 0)


def test_nodes_without_names_are_followed_by_what_they_write(tmp_path: Path) -> None:
    model = a_convnet()
    for node in model.graph.node:
        node.name = ""
    recipe = quantized_by_recipe(model, tmp_path, QuantFormat.QDQ, QuantType.QUInt8)
    for node in recipe.graph.node:
        node.name = ""
    found = compared(recipe, model, tmp_path)
    assert {fate.op_type: fate.runs for fate in found.fates if fate.op_type == "Conv"} == {"Conv": Runs.INTEGER}
    assert found.n_missing == 2


def test_a_float_node_that_loses_its_fused_kernel_is_marked(tmp_path: Path) -> None:
    body = "m = MatMul(x, w) y = Add(m, b)"
    constants = {"w": floats(8, 8), "b": floats(8)}
    reference = model_of("(float[4,8] x) => (float[4,8] y)", body, constants)
    body = f"m = MatMul(x, w) {pair('m', 'm_d')} y = Add(m_d, b)"
    quantized = model_of("(float[4,8] x) => (float[4,8] y)", body, constants | parameters("m", "u8"))
    found = compared(quantized, reference, tmp_path)
    assert (fate_of(found, "m").float_kernel, fate_of(found, "m").kernel) == ("Gemm", "MatMul")
    assert (fate_of(found, "y").float_kernel, fate_of(found, "y").kernel) == ("fused into Gemm", "Add")
    assert all(fate.is_slower_float for fate in found.fates)
