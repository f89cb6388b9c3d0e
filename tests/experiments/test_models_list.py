"""The list of models is complete, and a broken one is refused."""

import re
from pathlib import Path

import pytest

from experiments.zoo.make import MODELS_FILE, read_models

MODELS = read_models()


def broken(tmp_path: Path, old: str, new: str) -> Path:
    text = MODELS_FILE.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "models.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def test_the_list_has_all_models_of_the_zoo() -> None:
    assert len(MODELS) == 18


@pytest.mark.parametrize("name", MODELS)
def test_each_model_says_where_it_comes_from_and_under_which_licence(name: str) -> None:
    entry = MODELS[name]
    assert re.fullmatch(r"(pip|sdist):[\w.-]+==[\w.]+|npm:[\w.-]+@[\w.]+", entry.package)
    assert re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
    assert entry.licence
    assert entry.what
    re.compile(entry.member)


def test_no_file_is_listed_twice() -> None:
    assert len({entry.sha256 for entry in MODELS.values()}) == len(MODELS)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("licence =", "license =", "models.ppocr4_det: missing or unknown: licence, license"),
        ('sha256 = "d2', 'sha256 = "', "isn't 64 hexadecimal digits"),
        ('inputs = "document_pictures"', 'inputs = "pictures"', "'pictures' is none of document_pictures"),
        ('rebuild = "build_minilm_l6"', 'rebuild = "minilm"', "'minilm' is none of declare_centerface_shapes"),
    ],
)
def test_a_broken_entry_is_refused_with_the_model_and_the_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_models(broken(tmp_path, old, new))
