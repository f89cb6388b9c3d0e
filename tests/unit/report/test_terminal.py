"""Tables at the width of a plain terminal."""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from onnxruntime.quantization import QuantFormat, QuantType
from rich.console import Console

from autoquant import inspect_model
from autoquant.domain.objective import Goal
from autoquant.inspection import text
from autoquant.report.tables import member_rows
from autoquant.report.terminal import print_table
from tests.models import a_convnet, saved
from tests.quantized import quantized_by_recipe
from tests.records import a_front, a_member

Rows = Sequence[Sequence[str]]


def printed(headings: Sequence[str], rows: Rows, width: int = 80) -> str:
    shown = io.StringIO()
    print_table(headings, rows, Console(file=shown, width=width))
    return shown.getvalue()


def whole(headings: Sequence[str], rows: Rows, width: int = 80) -> str:
    """What is printed: no line is too long, and every character is there."""
    shown = printed(headings, rows, width)
    assert max(map(len, shown.splitlines())) <= width
    wanted = Counter("".join("".join((*headings, *(cell for row in rows for cell in row))).split()))
    assert Counter("".join(shown.replace("─", "").split())) == wanted
    return shown


def test_short_cells_stay_in_one_line_and_long_ones_fold() -> None:
    rows = [("12", "Conv", "a long sentence " * 10, "0.483-0.497"), ("3", "[bold]", "short", "1.000")]
    shown = whole(("n", "operator", "why, and which nodes", "95 %"), rows)
    assert "0.483-0.497" in shown
    assert "[bold]" in shown
    assert shown.count("a long sentence") > 5


def test_names_between_colons_and_brackets_are_printed_as_they_are() -> None:
    shown = whole(("n", ":key:"), [("1", "enc:key:conv"), ("2", "a[b]c\\")])
    assert ":key:" in shown
    assert "enc:key:conv" in shown
    assert "a[b]c\\" in shown
    assert "\\\\" not in shown


def test_a_name_without_blanks_is_folded_not_cut() -> None:
    name = "conv_stage0_block0_proj_shortcut/" * 4
    assert whole(("n", "node"), [("1", name)]).count("shortcut") >= 3


def test_a_heading_over_short_cells_is_broken() -> None:
    lines = [line.strip() for line in whole(("opening ms",), [("44",)]).splitlines()]
    assert lines[1:3] == ["opening", "ms"]


def test_a_terminal_that_is_too_narrow_breaks_lines_and_no_number() -> None:
    numbers = [f"{i}.123456" for i in range(9)]
    shown = printed([f"heading {i}" for i in range(9)], [numbers], width=40)
    assert shown.splitlines()[-2].split() == numbers


def test_wide_characters_are_whole() -> None:
    shown = printed(("name", "ratio"), [("漢字ab", "0.123456"), ("é", "1.000")], width=12)
    assert all(cell in shown for cell in ("漢字ab", "0.123456", "1.000"))


def test_columns_move_together_before_lines_get_too_long() -> None:
    drops = {"accuracy": 0.03}
    front = replace(a_front(a_member("t0042", snr_db=38.5, drops=drops)), objectives={"size": Goal.MINIMIZE})
    headings, rows = member_rows(front)
    line = next(line for line in whole(headings, rows).splitlines() if line.startswith("t0042"))
    assert " ".join(line.split()) == " ".join(rows[0])


def test_without_rows_nothing_is_printed() -> None:
    assert printed(("a", "b"), []) == ""


def test_a_front_with_everything_is_whole() -> None:
    member = a_member("t0042", snr_db=38.5, drops={"experiments.tasks.ocr:text_accuracy": 0.03})
    latency = {name: replace(each, median_ms=1234.567) for name, each in member.latency.items()}
    headings, rows = member_rows(a_front(replace(member, latency=latency)))
    shown = whole(headings, rows)
    line = next(line for line in shown.splitlines() if line.startswith("t0042"))
    assert " ".join(line.split()) == " ".join(rows[0])


def test_gaps_get_narrow_before_a_heading_is_broken() -> None:
    headings = ("id", "SNR dB", "held out", "95 %", "agree, %", "ratio", "95 %", "ms", "regions")
    row = ("t0054", "22.8", "22.7", "22.5 to 22.9", "100.00", "0.588", "0.538-0.644", "4.305", "19")
    lines = whole(headings, [row]).splitlines()
    assert lines[1].endswith("regions")


def test_a_comparison_with_long_names_is_whole() -> None:
    numbers = ("0.483", "0.470-0.497", "1044.293", "1113.380", "132.4", "1244", "1060")
    rows = [("opennsfw_quantized_per_channel_by_somebody.onnx", *numbers), ("b.onnx", *numbers)]
    shown = whole(("model", "ratio", "95 %", "ms", "p99 ms", "SNR dB", "opening ms", "memory MB"), rows)
    assert sum(numbers == tuple(line.split()[1:]) for line in shown.splitlines()) == 2


@pytest.mark.parametrize("width", [80, 120])
def test_an_inspection_is_whole(tmp_path: Path, width: int) -> None:
    model = quantized_by_recipe(a_convnet(), tmp_path, QuantFormat.QDQ, QuantType.QUInt16)
    path = saved(model, tmp_path / "q.onnx")
    found = inspect_model(path, against=saved(a_convnet(), tmp_path / "f.onnx"))
    assert found.comparison is not None
    whole(("kernels", "n", "which"), list(text.kernel_rows(found.inspection)), width)
    headings = ("n", "operator", "file", "runs", "why, and which nodes")
    assert "quantized" in whole(headings, list(text.finding_rows(found.inspection)), width)
    fates = ("n", "operator", "in the float model", "in this model", "runs", "remark")
    whole(fates, list(text.fate_rows(found.comparison)), width)
