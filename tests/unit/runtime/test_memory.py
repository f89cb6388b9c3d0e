from pathlib import Path

import pytest

from autoquant.runtime import memory
from autoquant.runtime.memory import resident_growth


def a_status(folder: Path, resident_kb: int, peak_kb: int) -> None:
    (folder / "status").write_text(f"VmHWM:\t{peak_kb} kB\nVmRSS:\t{resident_kb} kB\n", encoding="ascii")


def grown_mb(folder: Path) -> float | None:
    a_status(folder, resident_kb=10_240, peak_kb=102_400)
    with resident_growth() as growth:
        a_status(folder, resident_kb=10_240, peak_kb=12_288)
    return growth.megabytes


def test_growth_is_the_peak_above_what_was_resident_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_SELF", tmp_path)
    assert grown_mb(tmp_path) == pytest.approx(2.097152)
    assert (tmp_path / "clear_refs").read_text(encoding="ascii") == "5"


def test_a_peak_that_cannot_be_reset_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_SELF", tmp_path)
    (tmp_path / "clear_refs").mkdir()  # cannot be written, whoever runs this
    assert grown_mb(tmp_path) is None


def test_where_the_system_does_not_tell_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_SELF", tmp_path / "nowhere")
    with resident_growth() as growth:
        pass
    assert growth.megabytes is None
