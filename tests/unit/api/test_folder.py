import errno
import logging
import os
import re
from pathlib import Path

import pytest

from autoquant.api.folder import RunFolder, enough_room, read_json, writing
from autoquant.errors import DiskFullError, OutputError
from tests.unit.api.folders import a_run


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a" / "run", resume=False)
    assert folder.models.is_dir()


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert RunFolder(tmp_path, resume=False).models.is_dir()


def test_a_folder_that_holds_something_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"this folder is not empty; choose another folder$"):
        RunFolder(tmp_path, resume=False)
    (tmp_path / "study.journal").touch()
    with pytest.raises(OutputError, match="this folder is not empty; resume its run"):
        RunFolder(tmp_path, resume=False)
    (tmp_path / "study.journal").unlink()
    with pytest.raises(OutputError, match=r"this folder is not empty; choose another folder$"):
        RunFolder(tmp_path, resume=False, advice="choose another folder")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_what_a_run_leaves_that_was_killed_before_its_first_trial_is_no_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, resume=False)
    folder.write_json("run.json", {})
    folder.write_text("log.txt", "began")
    folder.close()
    with pytest.raises(OutputError, match="there is no run to resume; start one without resuming"):
        RunFolder(tmp_path, resume=True)
    again = RunFolder(tmp_path, resume=False)
    (again.models / "mine.onnx").touch()
    again.close()
    with pytest.raises(OutputError, match="this folder is not empty"):
        RunFolder(tmp_path, resume=False)


def test_a_journal_is_a_run(tmp_path: Path) -> None:
    a_run(tmp_path)
    with pytest.raises(OutputError, match="resume its run to go on with it"):
        RunFolder(tmp_path, resume=False)


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has flock")
def test_a_folder_that_another_run_is_writing_is_refused_and_left_alone(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "run", resume=False)
    first.write_text("log.txt", "began")
    with pytest.raises(
        OutputError, match="another run is writing this folder; wait for its end, or use another folder"
    ):
        RunFolder(tmp_path / "run", resume=False)
    first.journal.write_bytes(b"{}\n{cut o")
    optunas = first.path / "study.journal.lock"
    optunas.touch()
    with pytest.raises(OutputError, match="another run is writing this folder"):
        RunFolder(tmp_path / "run", resume=True)
    assert optunas.exists()
    assert first.journal.read_bytes() == b"{}\n{cut o"
    first.close()
    first.close()  # it is
    assert RunFolder(tmp_path / "run", resume=True).journal.read_bytes() == b"{}\n"


def test_the_study_of_another_run_is_copied_without_a_line_that_was_cut_off(tmp_path: Path) -> None:
    earlier = a_run(tmp_path / "a")
    earlier.journal.write_bytes(b"{}\n{}\n{cut o")
    folder = RunFolder(tmp_path / "b", resume=False)
    folder.take_journal(earlier.path)
    assert folder.journal.read_bytes() == b"{}\n{}\n"
    assert earlier.journal.read_bytes().endswith(b"{cut o")
    with pytest.raises(OutputError, match="there is no run; give the folder that a search has written"):
        folder.take_journal(tmp_path / "gone")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("")
    for resume in (True, False):
        with pytest.raises(OutputError, match="this is a file"):
            RunFolder(path, resume=resume)


def test_a_folder_that_onnxruntime_cannot_be_told_of_is_refused(tmp_path: Path) -> None:
    name = os.fsdecode(b"r\xe9")
    for path in (tmp_path / name, tmp_path / name / "run"):
        with pytest.raises(OutputError, match="this name is not UTF-8, as onnxruntime wants it; choose another folder"):
            RunFolder(path, resume=False)
    assert not list(tmp_path.iterdir())


def test_resuming_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="there is no run to resume"):
        RunFolder(tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_a_run_can_be_resumed_and_a_journal_that_was_cut_off_is_mended(tmp_path: Path) -> None:
    journal = a_run(tmp_path / "run").journal
    journal.write_bytes(b'{"a": 1}\n{"b": ')
    assert RunFolder(tmp_path / "run", resume=True).journal.read_bytes() == b'{"a": 1}\n'


def test_a_file_of_an_earlier_run_can_be_removed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, resume=False)
    folder.write_text("ledger.csv", "old")
    folder.remove("ledger.csv")
    assert not (tmp_path / "ledger.csv").exists()
    folder.remove("ledger.csv")  # there is none


def test_files_are_written_whole_and_replace_older_ones(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, resume=False)
    folder.write_text("log.txt", "one")
    folder.write_texts({"log.txt": "two", "front.csv": "ümläut"})
    assert (tmp_path / "log.txt").read_text() == "two"
    assert (tmp_path / "front.csv").read_text(encoding="utf-8") == "ümläut"
    assert not list(tmp_path.glob("*.part"))


def test_a_path_that_is_no_utf_8_is_written_with_escapes(tmp_path: Path) -> None:
    RunFolder(tmp_path, resume=False).write_text("report.html", os.fsdecode(b"cal\xe9.npz"))
    assert (tmp_path / "report.html").read_text() == r"cal\udce9.npz"


def test_a_file_that_cannot_be_written_is_an_output_error_and_no_other_is_replaced(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, resume=False)
    folder.write_text("front.csv", "old")
    with pytest.raises(OutputError, match=r"cannot be written \(.*\); choose another folder"):
        folder.write_texts({"front.csv": "new", "missing/front.json": "{}"})
    assert (tmp_path / "front.csv").read_text() == "old"
    assert not list(tmp_path.glob("*.part"))


def test_plain_values_are_read_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, resume=False)
    folder.write_json("run.json", {"a": [1, None]})
    assert read_json(tmp_path / "run.json", "search again") == {"a": [1, None]}


@pytest.mark.parametrize("text", [None, '{"a": ', "[1]", ""])
def test_broken_files_are_refused_with_advice(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "run.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(OutputError, match=rf"^{re.escape(str(path))}: it is missing or damaged; search again$"):
        read_json(path, "search again")


def test_values_that_json_does_not_know_are_not_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, resume=False)
    with pytest.raises(ValueError, match="JSON"):
        folder.write_json("run.json", {"a": float("nan")})
    assert not (tmp_path / "run.json").exists()


def test_others_hear_no_more_than_they_would_without_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, log = RunFolder(tmp_path, resume=False), logging.getLogger("autoquant")
    with caplog.at_level(logging.WARNING), folder.log():
        log.info("for the file")
        log.warning("for all")
    with caplog.at_level(logging.DEBUG), folder.log():
        log.debug("in detail")
    assert [record.message for record in caplog.records] == ["for all", "in detail"]
    assert log.propagate
    log.setLevel(logging.WARNING)
    with folder.log():
        assert log.isEnabledFor(logging.INFO)
    assert not log.isEnabledFor(logging.INFO)
    log.setLevel(logging.NOTSET)
    text = (tmp_path / "log.txt").read_text()
    assert [line.rpartition(" ")[0][24:] for line in text.splitlines()[:2]] == ["INFO for the", "WARNING for"]


def test_the_log_takes_what_the_package_says_meanwhile(tmp_path: Path) -> None:
    folder, log = RunFolder(tmp_path, resume=False), logging.getLogger("autoquant")
    level, handlers = log.level, list(log.handlers)
    with folder.log():
        log.info("heard")
    log.warning("not heard")
    text = (tmp_path / "log.txt").read_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO heard\n", text)
    assert (log.level, log.handlers) == (level, handlers)


def test_a_search_that_could_not_begin_leaves_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a" / "run", resume=False)
    folder.write_text("log.txt", "")
    folder.discard_if_new()
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("what the shell wrote")
    folder = RunFolder(tmp_path, resume=False)
    folder.write_json("run.json", {})
    folder.discard_if_new()
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["log.txt"]


def test_what_somebody_else_put_there_meanwhile_stays(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", resume=False)
    (folder.path / "mine.txt").write_text("mine")
    folder.discard_if_new()
    assert [file.name for file in folder.path.iterdir()] == ["mine.txt"]


def test_a_resumed_run_is_never_discarded(tmp_path: Path) -> None:
    a_run(tmp_path / "run")
    folder = RunFolder(tmp_path / "run", resume=True)
    folder.discard_if_new()
    assert folder.journal.exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_to_be_full(number: int) -> None:
    for noticed in (writing, enough_room):
        with (
            pytest.raises(DiskFullError, match=r"the disk is full; free some room and try again$"),
            noticed(Path("run")),
        ):
            raise OSError(number, "full")


@pytest.mark.parametrize(("number", "file"), [(errno.ENOENT, "run/study.journal"), (errno.EIO, None)])
def test_a_folder_that_is_gone_is_one_sentence(number: int, file: str | None) -> None:
    with (
        pytest.raises(OutputError, match=r"^run: cannot be written any more \(gone\); choose another folder$"),
        enough_room(Path("run")),
    ):
        raise OSError(number, "gone", file)


@pytest.mark.parametrize("file", ["other/study.journal", None, 3])
def test_failures_elsewhere_are_not_blamed_on_the_folder(file: str | int | None) -> None:
    with pytest.raises(FileNotFoundError), enough_room(Path("run")):
        raise FileNotFoundError(errno.ENOENT, "gone", file)


def test_any_other_failure_to_write_has_its_reason() -> None:
    refused = PermissionError(errno.EACCES, "denied")
    with (
        pytest.raises(OutputError, match=r"run: cannot be written \(denied\); choose another folder"),
        writing(Path("run")),
    ):
        raise refused
    with pytest.raises(OutputError, match="choose another folder"), writing(Path("run")):
        raise refused
