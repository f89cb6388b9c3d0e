import argparse
from pathlib import Path

import pytest

from experiments.believe.subjects import subject_of


def test_an_example_and_a_folder_are_subjects(tmp_path: Path) -> None:
    assert subject_of("example:digits").model.name == "digits.onnx"
    (tmp_path / "model.onnx").touch()
    found = subject_of(str(tmp_path))
    assert (found.name, found.evaluation) == (tmp_path.name, tmp_path / "eval.npz")


@pytest.mark.parametrize("text", ["example:nothing", "no/such/folder"])
def test_what_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        subject_of(text)
