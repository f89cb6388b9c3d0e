import importlib
import os
import sys
from pathlib import Path

import pytest

from autoquant.runtime.modules import importable


def test_modules_of_a_folder_are_imported_inside_alone(tmp_path: Path) -> None:
    for name in ("first_of_a_user", "second_of_a_user"):
        (tmp_path / f"{name}.py").write_text("ANSWER = 42\n", encoding="utf-8")
    before = list(sys.path)
    with importable(tmp_path):
        assert importlib.import_module("first_of_a_user").ANSWER == 42
    assert sys.path == before
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("second_of_a_user")


def test_a_folder_is_forgotten_after_an_error_too(tmp_path: Path) -> None:
    before = list(sys.path)
    with pytest.raises(ValueError, match="of the user"), importable(tmp_path):
        raise ValueError("of the user")
    assert sys.path == before


def test_where_a_module_goes_nobody_follows(tmp_path: Path) -> None:
    before = Path.cwd()
    with importable(tmp_path):
        assert Path.cwd() == tmp_path
        os.chdir("/")
    assert Path.cwd() == before


def test_a_module_may_take_its_folder_out_of_the_path(tmp_path: Path) -> None:
    before = list(sys.path)
    with importable(tmp_path):
        sys.path.remove(str(tmp_path))
    assert sys.path == before
