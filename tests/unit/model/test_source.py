from pathlib import Path

import onnx
import pytest

from autoquant.errors import ModelError
from autoquant.model.io import sha256_of
from autoquant.model.source import SourceFiles
from tests.models import a_convnet


@pytest.fixture
def external(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(a_convnet(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_digests_and_bytes_are_of_the_model_first_then_of_its_external_data(external: Path) -> None:
    weights = external.with_name("weights.bin")
    found = SourceFiles.read(external)
    assert found.size_bytes == external.stat().st_size + weights.stat().st_size
    assert list(found.digests.items()) == [(external, sha256_of(external)), (weights, sha256_of(weights))]


def test_files_that_were_written_again_with_the_same_content_have_not_changed(external: Path) -> None:
    found = SourceFiles.read(external)
    external.write_bytes(external.read_bytes())
    found.refuse_changed()


@pytest.mark.parametrize("name", ["model.onnx", "weights.bin"])
@pytest.mark.parametrize("content", [b"another", None])
def test_a_file_that_has_changed_or_is_gone_is_refused(external: Path, name: str, content: bytes | None) -> None:
    found, file = SourceFiles.read(external), external.with_name(name)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(ModelError, match=rf"{name}: the model has changed since the search began; put back what was"):
        found.refuse_changed()


def test_files_that_nobody_wrote_to_are_not_read_again(external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, read = SourceFiles.read(external), list[Path]()
    monkeypatch.setattr("autoquant.model.source.sha256_of", read.append)
    found.refuse_changed()
    assert read == []
