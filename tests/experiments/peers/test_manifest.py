from pathlib import Path

from experiments.peers.manifest import MANIFEST, Entry, append, read_entries


def test_entries_are_read_as_they_were_told(tmp_path: Path) -> None:
    entries = [
        Entry(tool="nncf", variant="mixed-fast", seconds=3.5, file="mixed-fast.onnx"),
        Entry(tool="nncf", variant="mixed-slow", seconds=7.0, error="ValueError: no"),
    ]
    for entry in entries:
        append(tmp_path, entry)
    assert read_entries(tmp_path) == entries


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    entry = Entry(tool="inc", variant="basic-qdq-001", seconds=9.0, file="basic-qdq-001.onnx")
    append(tmp_path, entry)
    with (tmp_path / MANIFEST).open("a", encoding="utf-8") as file:
        file.write('{"tool": "inc", "vari')
    assert read_entries(tmp_path) == [entry]


def test_a_tool_that_said_nothing_made_nothing(tmp_path: Path) -> None:
    assert read_entries(tmp_path) == []
