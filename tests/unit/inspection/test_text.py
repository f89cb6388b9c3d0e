from dataclasses import replace
from pathlib import Path

import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from autoquant import inspect_model
from autoquant.inspection.inspection import Inspection
from autoquant.inspection.text import (
    fate_rows,
    finding_rows,
    hint_sentences,
    kernel_rows,
    remark_rows,
    summary_sentences,
)
from tests.inspected import inspected
from tests.models import a_convnet, a_quantized_chain, floats, model_of, saved
from tests.qdq import Constant, Wrapped, pair, parameters
from tests.quantized import quantized_by_recipe


def wide(folder: Path) -> Inspection:
    return inspected(quantized_by_recipe(a_convnet(), folder, QuantFormat.QDQ, QuantType.QUInt16), folder)


def test_a_row_of_kernels_says_what_how_many_and_which(tmp_path: Path) -> None:
    rows = list(kernel_rows(inspected(a_quantized_chain(), tmp_path)))
    assert ("integer kernels", "3", "3 QLinearConv") in rows
    assert ("conversions (Q, DQ)", "2", "1 QuantizeLinear, 1 DequantizeLinear") in rows


def test_constants_that_are_dequantized_have_a_row_with_their_bytes(tmp_path: Path) -> None:
    what, n, which = list(kernel_rows(wide(tmp_path)))[-1]
    assert (what, int(n) > 3) == ("constants dequantized", True)
    assert which.endswith("B at every inference")


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 B"), (999_499, "999 kB"), (999_500, "1 MB"), (1_234_000, "1.23 MB")]
)
def test_bytes_have_a_unit_of_which_they_are_less_than_a_thousand(tmp_path: Path, size: int, text: str) -> None:
    found = wide(tmp_path)
    one = replace(found.dequantized[0], size_bytes=size)
    *_, (_, _, which) = kernel_rows(replace(found, dequantized=(one,)))
    assert which == f"{text} at every inference"


def test_nodes_alike_are_one_row_with_examples(tmp_path: Path) -> None:
    found = wide(tmp_path)
    (first, *_) = rows = list(finding_rows(found))
    assert first == ("3", "Conv", "quantized", "float", "16-bit activations have no integer kernel\n(a, b and 1 more)")
    assert sum(int(row[0]) for row in rows) == len(found.unlike_written)


def test_a_model_that_runs_as_written_has_no_rows_and_says_so(tmp_path: Path) -> None:
    found = inspected(a_quantized_chain(), tmp_path)
    assert list(finding_rows(found)) == []
    assert list(hint_sentences(found)) == []
    assert list(summary_sentences(found)) == [f"All {len(found.nodes)} nodes run as the file says."]


def test_a_model_of_one_node_is_told_in_the_singular(tmp_path: Path) -> None:
    found = inspected(model_of("(float[4] x) => (float[4] y)", "y = Relu(x)"), tmp_path)
    assert list(summary_sentences(found)) == ["The one node runs as the file says."]


def test_how_many_nodes_do_not_is_said_first(tmp_path: Path) -> None:
    found = wide(tmp_path)
    expected = f"{len(found.unlike_written)} of {len(found.nodes)} nodes do not run as the file says:"
    assert list(summary_sentences(found)) == [expected]


def test_a_remark_is_a_row_with_its_nodes(tmp_path: Path) -> None:
    model = Wrapped("Gemm(x, w)", {"x": (4, 8)}, {"w": Constant((8, 8), axis=0)}).model
    ((n, text),) = remark_rows(inspected(model, tmp_path))
    assert n == "1"
    assert text.endswith("gives wrong numbers\n(t)")


def test_what_rows_leave_out_is_elsewhere(tmp_path: Path) -> None:
    assert list(hint_sentences(wide(tmp_path))) == ["All nodes, with causes and remarks in full: --json"]


def test_names_in_causes_that_rows_leave_out_are_elsewhere_too(tmp_path: Path) -> None:
    """Two nodes of one operator, each with a constant of its own."""
    values = {k: v for name in "xtu" for k, v in parameters(name, "u8").items()} | {"c": floats(4), "d": floats(4)}
    body = f"""{pair("x", "x_d")} t = Add(x_d, c) {pair("t", "t_d")} {{}} y = Exp(t_d)"""
    one = model_of("(float[4] x) => (float[4] y)", body.format(""), values)
    assert list(hint_sentences(inspected(one, tmp_path))) == []
    second = f"u = Add(x_d, d) {pair('u', 'u_d')} z = Exp(u_d)"
    two = model_of("(float[4] x) => (float[4] y, float[4] z)", body.format(second), values)
    assert len(list(finding_rows(inspected(two, tmp_path)))) == 1
    assert len(list(hint_sentences(inspected(two, tmp_path)))) == 1


def test_what_became_of_the_float_model_is_in_rows(tmp_path: Path) -> None:
    recipe = quantized_by_recipe(a_convnet(), tmp_path, QuantFormat.QDQ, QuantType.QUInt8)
    quantized, reference = saved(recipe, tmp_path / "q.onnx"), saved(a_convnet(), tmp_path / "f.onnx")
    comparison = inspect_model(quantized, against=reference).comparison
    assert comparison is not None
    rows = {(row[1], row[4]): row for row in fate_rows(comparison)}
    assert rows["Conv", "integer"][3] == "QLinearConv"
    assert rows["Conv", "integer"][2] in ("nchwc:Conv", "FusedConv", "Conv")
    assert rows["Relu", ""][3] == "gone, or under another name"
