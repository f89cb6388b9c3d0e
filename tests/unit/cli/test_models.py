import json
import re
from pathlib import Path

import onnxruntime
import pytest
from onnxruntime.quantization import QuantFormat, QuantType
from typer.testing import CliRunner

from autoquant.cli import app
from tests.models import a_convnet, a_quantized_chain, floats, model_of, saved
from tests.quantized import quantized_by_recipe


def test_regions_are_printed() -> None:
    result = CliRunner().invoke(app, ["regions", "example:digits", "--regions", "4"])
    assert result.exit_code == 0, result.output
    *rows, last = result.stdout.splitlines()
    assert 1 <= len(rows) <= 4
    assert last.startswith(f"{len(rows)} regions, ")


def test_what_is_in_no_region_is_told_below_them(tmp_path: Path) -> None:
    signature = "(float[1,4,5,5] x, float[4,4,1,1] v) => (float[1,4,5,5] y)"
    model = model_of(signature, "a = Conv(x, w) y = ConvTranspose(a, v)", {"w": floats(4, 4, 1, 1)})
    result = CliRunner().invoke(app, ["regions", str(saved(model, tmp_path / "model.onnx"))])
    assert result.exit_code == 0, result.output
    last = result.stdout.splitlines()[-1]
    assert last == "in no region, so that they stay float: 1 ConvTranspose (weights that are computed)"


def test_what_preparing_has_to_say_is_told_too(tmp_path: Path) -> None:
    model = model_of(
        "(float16[1,4,5,5] x) => (float16[1,4,5,5] y)", "y = Conv(x, w)", {"w": floats(4, 4, 1, 1).astype("float16")}
    )
    path = str(saved(model, tmp_path / "model.onnx"))
    said = CliRunner().invoke(app, ["regions", path]).stdout.splitlines()
    (note,) = json.loads(CliRunner().invoke(app, ["regions", path, "--json"]).stdout)["notes"]
    assert note.startswith("float16 becomes float32")
    assert said[-1] == note


def test_why_there_is_no_region_is_told(tmp_path: Path) -> None:
    model = model_of("(double[2,4] x) => (double[2,4] y)", "y = Mul(x, x)")
    result = CliRunner().invoke(app, ["regions", str(saved(model, tmp_path / "model.onnx"))])
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert first == "0 regions, 0 quantizable nodes"
    assert second.endswith("give the float32 model that it was made from, as it is in float64")


def test_regions_are_printed_as_json() -> None:
    result = CliRunner().invoke(app, ["regions", "example:digits", "--json"])
    content = json.loads(result.stdout)
    assert content.keys() == {"schema_version", "regions", "notes"}
    assert content["notes"] == []
    rows = content["regions"]
    assert all(set(row) == {"id", "work", "op_types", "nodes"} for row in rows)
    assert sum(row["work"] for row in rows) == pytest.approx(1)


def test_regions_are_printed_with_the_whole_name_of_their_first_node(tmp_path: Path) -> None:
    model = a_convnet()
    for number, node in enumerate(model.graph.node):
        node.name = f"/{'deep/' * 10}{number}"
    result = CliRunner().invoke(app, ["regions", str(saved(model, tmp_path / "model.onnx"))])
    *rows, _ = result.stdout.splitlines()
    assert {row.rpartition(": ")[2] for row in rows} <= {node.name for node in model.graph.node}
    assert any(re.search(r"  1 node  \w+: /deep", row) for row in rows)


def test_what_runs_is_printed_with_causes(tmp_path: Path) -> None:
    path = str(saved(a_quantized_chain(middle_is_float=True), tmp_path / "model.onnx"))
    result = CliRunner().invoke(app, ["inspect", path, "--threads", "2"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert re.search(r"integer kernels +3 +3 QLinearConv", result.stdout)
    assert "1 of 5 nodes does not run as the file says:" in result.stdout
    assert re.search(r"1 +Conv +float +integer +onnxruntime quantizes its float weight itself", result.stdout)


def test_a_model_that_runs_as_written_is_said_to(tmp_path: Path) -> None:
    path = str(saved(a_quantized_chain(), tmp_path / "model.onnx"))
    result = CliRunner().invoke(app, ["inspect", path])
    assert result.exit_code == 0, result.output
    assert "All 5 nodes run as the file says." in result.stdout
    assert "why" not in result.stdout


def test_what_became_of_the_float_model_is_printed(tmp_path: Path) -> None:
    path = str(saved(a_convnet(), tmp_path / "model.onnx"))
    result = CliRunner().invoke(app, ["inspect", path, "--against", path], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "in the float model" in result.stdout


def test_what_runs_is_printed_as_json(tmp_path: Path) -> None:
    path = str(saved(a_quantized_chain(middle_is_float=True), tmp_path / "model.onnx"))
    result = CliRunner().invoke(app, ["inspect", path, "--json"])
    content = json.loads(result.stdout)
    assert [node["name"] for node in content["nodes"] if not node["is_as_written"]] == ["b"]
    assert set(content) == {
        *("schema_version", "model", "target", "environment"),
        *("nodes", "kernels", "dequantized", "remarks", "against"),
    }
    assert content["environment"]["versions"]["onnxruntime"] == onnxruntime.__version__


def test_where_nodes_are_left_out_it_is_said_where_they_are(tmp_path: Path) -> None:
    recipe = quantized_by_recipe(a_convnet(), tmp_path, QuantFormat.QDQ, QuantType.QUInt16)
    shortened = CliRunner().invoke(app, ["inspect", str(saved(recipe, tmp_path / "wide.onnx"))])
    assert shortened.stdout.splitlines()[-1] == "All nodes, with causes and remarks in full: --json"
    whole = CliRunner().invoke(app, ["inspect", str(saved(a_quantized_chain(), tmp_path / "model.onnx"))])
    assert "--json" not in whole.stdout


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["gone.onnx"], "gone.onnx: there is no such file"),
        (["example:digits", "--ep", "nowhere"], "'nowhere' is not installed"),
        (["example:digits", "--against", "gone.onnx"], "gone.onnx: there is no such file"),
    ],
)
def test_what_cannot_be_inspected_is_refused_in_one_sentence(arguments: list[str], phrase: str) -> None:
    result = CliRunner().invoke(app, ["inspect", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith("autoquant: ")
    assert phrase in result.stderr
    assert result.stderr.count("\n") == 1
