import errno
import logging
import os
import re
from pathlib import Path

import pytest

from autoquant.api.folder import RunFolder, enough_room, read_json, writing
from autoquant.errors import DiskFullError, OutputError


def a_run(path: Path) -> RunFolder:
    """A folder with a study that was begun."""
    folder = RunFolder(path, resume=False)
    folder.journal.write_bytes(b"{}\n")
    folder.close()
    return folder


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a" / "run", resume=False)
    assert folder.models.is_dir()


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert RunFolder(tmp_path, resume=False).models.is_dir()


def test_a_folder_that_holds_something_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="this folder is not empty; use --resume"):
        RunFolder(tmp_path, resume=False)
    with pytest.raises(OutputError, match=r"this folder is not empty; choose another --out$"):
        RunFolder(tmp_path, resume=False, advice="choose another --out")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_what_a_run_leaves_that_was_killed_before_its_first_trial_is_no_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, resume=False)
    folder.write_json("run.json", {})
    folder.write_text("log.txt", "began")
    folder.close()
    with pytest.raises(OutputError, match="there is no run to resume; leave out --resume"):
        RunFolder(tmp_path, resume=True)
    again = RunFolder(tmp_path, resume=False)
    (again.models / "mine.onnx").touch()
    again.close()
    with pytest.raises(OutputError, match="this folder is not empty"):
        RunFolder(tmp_path, resume=False)


def test_a_journal_is_a_run(tmp_path: Path) -> None:
    a_run(tmp_path)
    with pytest.raises(OutputError, match="use --resume to go on with its run"):
        RunFolder(tmp_path, resume=False)


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has flock")
def test_a_folder_that_another_run_is_writing_is_refused_and_left_alone(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "run", resume=False)
    first.write_text("log.txt", "began")
    with pytest.raises(OutputError, match="another run is writing this folder; wait for its end, or use another --out"):
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
    with pytest.raises(OutputError, match=r"cannot be written \(.*\); choose another --out"):
        folder.write_texts({"front.csv": "new", "missing/front.json": "{}"})
    assert (tmp_path / "front.csv").read_text() == "old"
    assert not list(tmp_path.glob("*.part"))


def test_plain_values_are_read_back_and_broken_files_are_empty(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, resume=False)
    folder.write_json("run.json", {"a": [1, None]})
    assert read_json(tmp_path / "run.json") == {"a": [1, None]}
    assert read_json(tmp_path / "nothing.json") == {}
    for text in ('{"a": ', "[1]", ""):
        (tmp_path / "run.json").write_text(text)
        assert read_json(tmp_path / "run.json") == {}


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
        pytest.raises(OutputError, match=r"^run: cannot be written any more \(gone\); choose another --out$"),
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
        pytest.raises(OutputError, match=r"run: cannot be written \(denied\); choose another --out"),
        writing(Path("run")),
    ):
        raise refused
    with pytest.raises(OutputError, match="choose another --reports"), writing(Path("run"), option="--reports"):
        raise refused
