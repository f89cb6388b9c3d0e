"""Whatever file is given."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from autoquant import AutoquantError, Target, inspect_model
from autoquant.errors import TargetError
from autoquant.inspection.kernels import Runs
from autoquant.model.names import name_nodes
from tests.compiling import compile_graphs
from tests.models import Array, a_convnet, a_quantized_chain, in_a_function, saved
from tests.quantized import quantized_by_recipe


@pytest.mark.parametrize("quant_format", list(QuantFormat))
@pytest.mark.parametrize("activation", [QuantType.QUInt8, QuantType.QInt8])
def test_models_of_the_recipe_are_read(quant_format: QuantFormat, activation: QuantType, tmp_path: Path) -> None:
    recipe = quantized_by_recipe(a_convnet(), tmp_path, quant_format, activation)
    found = inspect_model(saved(recipe, tmp_path / "model.onnx"))
    convs = [node for node in found.inspection.nodes if "Conv" in node.op_type]
    assert [node.runs for node in convs] == [Runs.INTEGER] * 3


def test_everything_is_there_as_json(tmp_path: Path) -> None:
    path = saved(a_quantized_chain(middle_is_float=True), tmp_path / "model.onnx")
    content = json.loads(json.dumps(inspect_model(path, against=path).as_dict()))
    assert content["target"] == "cpu-1t"
    assert content["kernels"]["integer"] == {"com.microsoft:QLinearConv": 3}
    assert [node["name"] for node in content["nodes"] if node["causes"]] == ["b"]
    assert content["against"]["n_missing"] == 0


def test_an_example_is_found_by_its_name() -> None:
    assert inspect_model("example:digits", target=Target(threads=2)).target == "cpu-2t"


def test_nodes_without_names_are_told_apart(tmp_path: Path) -> None:
    model = a_quantized_chain()
    for node in model.graph.node:
        node.name = ""
    found = inspect_model(saved(model, tmp_path / "model.onnx")).inspection
    convs = [node for node in found.nodes if node.op_type == "Conv"]
    assert len({node.name for node in convs}) == 3
    assert {node.runs for node in convs} == {Runs.INTEGER}


def test_nodes_without_names_are_found_in_what_a_search_made_of_them(tmp_path: Path) -> None:
    model = a_convnet()
    for node in model.graph.node:
        node.name = ""
    named = name_nodes(model)
    recipe = saved(quantized_by_recipe(named, tmp_path, QuantFormat.QDQ, QuantType.QUInt8), tmp_path / "recipe.onnx")
    found, expected = (
        inspect_model(recipe, against=saved(one, tmp_path / "float.onnx")).comparison for one in (model, named)
    )
    assert found == expected
    assert found is not None
    assert ("Conv", Runs.INTEGER, 3) in {(fate.op_type, fate.runs, fate.n_nodes) for fate in found.fates}


@pytest.mark.parametrize(
    ("zero_point", "runs", "causes"),
    [
        (np.array(128, np.uint8), Runs.INTEGER, ()),
        (np.array(2**15, np.uint16), Runs.FLOAT, ("16-bit activations have no integer kernel",)),
    ],
)
def test_nodes_of_functions_are_inspected(
    zero_point: Array, runs: Runs, causes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.api.inspect.is_saturating", lambda _: False)
    model = in_a_function(a_quantized_chain())
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == "z")
    tensor.CopyFrom(onnx.numpy_helper.from_array(zero_point, "z"))
    found = inspect_model(saved(model, tmp_path / "model.onnx")).inspection
    convs = [node for node in found.nodes if node.op_type == "Conv"]
    assert [(node.runs, node.causes) for node in convs] == [(runs, causes)] * 3
    assert found.remarks == ()


@pytest.mark.parametrize("is_named", [True, False])
def test_external_data_are_read(tmp_path: Path, is_named: bool) -> None:
    model = a_quantized_chain()
    for node in model.graph.node if not is_named else ():
        node.name = ""
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    found = inspect_model(tmp_path / "model.onnx").inspection
    assert found.kernels[Runs.INTEGER] == {"com.microsoft:QLinearConv": 3}


def test_a_folder_is_left_as_it_was(tmp_path: Path) -> None:
    path = saved(a_quantized_chain(), tmp_path / "model.onnx")
    before = path.read_bytes()
    inspect_model(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "phrase"),
    [(None, "there is no such file"), (b"no model", "this is not an ONNX model"), (b"", "this is not an ONNX model")],
)
def test_what_is_no_model_is_refused(content: bytes | None, phrase: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AutoquantError, match=phrase):
        inspect_model(path)


def test_what_onnxruntime_does_not_open_is_refused(tmp_path: Path) -> None:
    model = a_quantized_chain()
    model.graph.node[0].op_type = "Nothing"
    with pytest.raises(AutoquantError, match="onnxruntime cannot open it"):
        inspect_model(saved(model, tmp_path / "model.onnx"))


def test_a_provider_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    path = saved(a_quantized_chain(), tmp_path / "model.onnx")
    with pytest.raises(AutoquantError, match="'nowhere' is not installed"):
        inspect_model(path, target=Target("nowhere"))


def test_a_float_model_that_is_missing_is_refused(tmp_path: Path) -> None:
    path = saved(a_quantized_chain(), tmp_path / "model.onnx")
    with pytest.raises(AutoquantError, match=r"gone\.onnx: there is no such file"):
        inspect_model(path, against=tmp_path / "gone.onnx")


def test_a_provider_that_compiles_graphs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_graphs(monkeypatch)
    with pytest.raises(TargetError) as error:
        inspect_model(saved(a_convnet(), tmp_path / "model.onnx"))
    assert str(error.value) == (
        "execution provider 'cpu' compiles graphs and does not show what it runs; inspect the model on the provider cpu"
    )


def test_names_that_repeat_are_refused_as_onnxruntime_refuses_them(tmp_path: Path) -> None:
    model = a_convnet()
    for node in model.graph.node:
        node.name = "same"
    with pytest.raises(AutoquantError, match=r"model\.onnx: onnxruntime cannot open it: .*same"):
        inspect_model(saved(model, tmp_path / "model.onnx"))
