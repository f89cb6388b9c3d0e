import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from experiments.search import parting
from experiments.search.parting import main, measure_parting, render_parting
from experiments.search.recorded import Recorded, read_recorded

TIED, PARTED, PROBE, UNIFORM = (1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 0), (1, 1, 1, 1)


def a_run(run: Path, patched: pytest.MonkeyPatch, rows: Sequence[tuple[int, ...]], patterns: tuple[int, ...]) -> Path:
    """A run of other trials, of regions with these patterns."""

    def read(folder: Path) -> Recorded:
        found = read_recorded(folder)
        object.__setattr__(found.layout, "patterns", np.array(patterns))
        object.__setattr__(found.found, "codes", np.array(rows))
        return found

    patched.setattr(parting, "read_recorded", read)
    return run


def test_pairs_of_a_pattern_are_told_from_all(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [UNIFORM, TIED, PROBE, PARTED]
    found = measure_parting(a_run(run, monkeypatch, rows, (0, 0, 1, 2)))
    assert (found["n_regions"], found["n_repeated"]) == (4, 2)
    assert found["parts"][0] == {"n": 2, "of_a_pattern": 0.5, "of_all": pytest.approx(1 / 3)}
    assert found["parts"][1] == {"n": 0, "of_a_pattern": None, "of_all": None}


def test_mixes_are_counted_in_their_order(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measure_parting(a_run(run, monkeypatch, [TIED] * 20 + [PARTED] * 230, (0, 0, 1, 1)))
    assert [part["n"] for part in found["parts"]] == [20, 30, 50, 100, 50]
    assert [part["of_a_pattern"] for part in found["parts"]] == [1.0, 0.0, 0.0, 0.0, 0.0]


def test_a_line_for_each_run_with_nothing_where_no_mix_was(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a_run(run, monkeypatch, [TIED], (0, 0, 1, 2))
    assert main([str(tmp_path / "parting.json"), str(run), str(run)]) == 0
    lines = render_parting(json.loads((tmp_path / "parting.json").read_text(encoding="utf-8"))).splitlines()
    assert lines[2:] == ["| digits | 4 | 2 | 100%, 33% |  |  |  |  |"] * 2


def test_where_nothing_repeats_there_is_nothing_to_say(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(run, monkeypatch, [TIED], (0, 1, 2, 3))
    assert main([str(tmp_path / "parting.json"), str(run)]) == 2
    assert "no two regions" in capsys.readouterr().err
    assert not (tmp_path / "parting.json").exists()
