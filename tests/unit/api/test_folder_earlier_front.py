import errno
from pathlib import Path

import pytest

from autoquant.api.folder import RunFolder
from autoquant.errors import OutputError
from tests.unit.api.folders import a_run


def test_earlier_models_give_way_to_new_ones(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    (folder.models / "old.onnx").write_text("")
    with folder.new_models():
        (folder.models / "new.onnx").write_text("")
    assert [file.name for file in folder.models.iterdir()] == ["new.onnx"]
    assert sorted(file.name for file in folder.path.iterdir()) == ["models", "study.journal"]


def test_an_earlier_front_is_kept_whole_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    for number in (1, 2):
        (folder.models / "old.onnx").write_text(f"{number}")
        folder.write_texts({"front.json": f"{number}", "front.csv": f"{number}", "latency.csv": f"{number}"})
        with folder.new_models() as earlier:
            assert (earlier.text, str(earlier.place)) == (f"{number}", f"earlier/{number}")
            folder.write_text("front.json", "new")
            earlier.is_kept = True
    for number in (1, 2):
        kept = folder.path / "earlier" / str(number)
        assert {file.name for file in kept.iterdir()} == {"models", "front.json", "front.csv", "latency.csv"}
        assert [file.read_text() for file in (kept / "models").iterdir()] == [f"{number}"]
        assert (kept / "front.json").read_text() == f"{number}"
    assert (folder.path / "front.json").read_text() == "new"
    assert not (folder.path / "models.earlier").exists()


def test_a_run_that_was_killed_between_its_reports_and_the_end_goes_on_with_the_old_ones(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    (folder.models / "new.onnx").write_text("")
    folder.write_texts({"front.json": "new", "ledger.csv": "new"})
    earlier = folder.path / "models.earlier"
    earlier.mkdir()
    for name in ("old.onnx", "front.json"):
        (earlier / name).write_text("old")
    folder.close()
    again = RunFolder(folder.path, resume=True)
    again.close()
    assert (again.path / "front.json").read_text() == "old"
    assert not (again.path / "ledger.csv").exists()
    assert [file.name for file in again.models.iterdir()] == ["old.onnx"]


def test_a_report_that_cannot_be_copied_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_run(tmp_path / "run")
    folder.write_text("front.json", "old")

    def full(_: Path, target: Path) -> None:
        target.write_text("o")
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("autoquant.api.folder.shutil.copyfile", full)
    with pytest.raises(OutputError, match="the disk is full"), folder.new_models():
        pytest.fail("nothing may begin")
    assert sorted(file.name for file in folder.path.iterdir()) == ["front.json", "models", "study.journal"]
    assert (folder.path / "front.json").read_text() == "old"


def test_a_place_that_a_killed_run_has_begun_is_not_taken_again(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    (folder.path / "earlier" / "1.part").mkdir(parents=True)
    with folder.new_models() as earlier:
        assert str(earlier.place) == "earlier/2"


def test_what_tells_of_models_comes_back_with_them(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    (folder.models / "old.onnx").write_text("")
    folder.write_text("front.json", "old")

    def killed() -> None:
        with folder.new_models():
            folder.write_text("front.json", "new")
            raise SystemExit

    with pytest.raises(SystemExit):
        killed()
    assert (folder.path / "front.json").read_text() == "old"
    assert [file.name for file in folder.models.iterdir()] == ["old.onnx"]


def test_earlier_models_come_back_where_new_ones_cannot_be_finished(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    (folder.models / "old.onnx").write_text("")

    def interrupted() -> None:
        with folder.new_models():
            (folder.models / "new.onnx").write_text("")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [file.name for file in folder.models.iterdir()] == ["old.onnx"]


def test_earlier_models_come_back_when_a_killed_run_is_resumed(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    (folder.models / "half.onnx").write_text("")
    earlier = folder.path / "models.earlier"
    earlier.mkdir()
    (earlier / "old.onnx").write_text("")
    RunFolder(folder.path, resume=True)
    assert [file.name for file in folder.models.iterdir()] == ["old.onnx"]


def test_latencies_come_back_with_the_models_that_they_are_of(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    (folder.models / "old.onnx").write_text("")
    folder.write_text("latency.csv", "old")

    def interrupted() -> None:
        with folder.new_models():
            folder.write_text("latency.csv", "new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (folder.path / "latency.csv").read_text() == "old"
    assert [file.name for file in folder.models.iterdir()] == ["old.onnx"]
    with folder.new_models():
        folder.write_text("latency.csv", "new")
    assert (folder.path / "latency.csv").read_text() == "new"
    assert not list(folder.models.iterdir())


def test_latencies_of_a_run_that_was_killed_while_models_gave_way_are_found(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    (folder.models / "latency.csv").write_text("old")
    again = RunFolder(folder.path, resume=True)
    assert (again.path / "latency.csv").read_text() == "old"
    assert not list(again.models.iterdir())


def test_models_that_were_replaced_never_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_run(tmp_path / "run")
    (folder.models / "old.onnx").write_text("")

    def killed(path: Path, **_: object) -> None:
        raise SystemExit

    def renewed() -> None:
        with folder.new_models():
            (folder.models / "new.onnx").write_text("")
            monkeypatch.setattr("autoquant.api.folder.shutil.rmtree", killed)

    with pytest.raises(SystemExit):
        renewed()
    monkeypatch.undo()
    again = RunFolder(folder.path, resume=True)
    again.close()
    assert [file.name for file in again.models.iterdir()] == ["new.onnx"]
    assert sorted(file.name for file in again.path.iterdir()) == ["models", "study.journal"]
