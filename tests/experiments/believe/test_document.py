import json
import math
from pathlib import Path

import pytest

from experiments.believe.document import markdown, new_part, read_document, share_interval, write_part


def test_parts_are_written_beside_each_other_with_environment_and_command(tmp_path: Path) -> None:
    file = tmp_path / "new" / "found.json"
    assert read_document(file) == {}
    write_part(file, "idle", new_part("experiments.believe.aa", copies=4) | {"numbers": [math.nan, 1.5]})
    write_part(file, "busy", {"numbers": []})
    write_part(file, "busy", {"numbers": [2]})
    parts = read_document(file)["parts"]
    assert parts["idle"]["numbers"] == [None, 1.5]
    assert parts["busy"]["numbers"] == [2]
    assert parts["idle"]["settings"] == {"copies": 4}
    assert parts["idle"]["command"].startswith("python -m experiments.believe.aa")
    assert parts["idle"]["environment"]["id"] == parts["idle"]["environment_after"]["id"]
    json.loads(file.read_text(encoding="utf-8"), parse_constant=pytest.fail)


def test_a_table_has_a_line_for_each_row() -> None:
    assert markdown(("a", "b"), [("1", "2")]).splitlines() == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]


def test_an_interval_of_a_share_holds_it() -> None:
    assert share_interval(0, 0) == (0.0, 1.0)
    low, high = share_interval(25, 500)
    assert 0.03 < low < 0.05 < high < 0.08
    assert share_interval(0, 10)[0] == 0.0
    assert share_interval(10, 10)[1] == 1.0
