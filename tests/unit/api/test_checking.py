from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from autoquant.api.checking import check
from autoquant.api.configuration import Budget, Configuration, Demands
from autoquant.domain.target import Target
from autoquant.errors import AutoquantError, ModelError
from autoquant.examples import example

DIGITS = example("digits")
ASKED = Configuration(
    model=DIGITS.model,
    calibration=DIGITS.calibration,
    evaluation=DIGITS.evaluation,
    targets=(Target(),),
    budget=Budget(trials=1),
    demands=Demands(),
    out=Path("run"),
    space="quick",
    n_regions=4,
)


def test_everything_that_is_named_is_read() -> None:
    found = check(ASKED)
    assert found.definition.schemes
    assert set(found.source.digests) == {DIGITS.model}
    assert found.data.held_out is not None
    assert (found.warm, found.is_pooled) == (None, False)
    assert set(found.data.notes) <= set(found.notes)


def test_threads_that_wait_and_a_cache_that_keeps_nothing_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = check(replace(ASKED, targets=(Target(threads=512),), cache=tmp_path / "file"))
    first, second = found.notes[:2]
    assert first.startswith("cpu-512t has 512 threads for ")
    assert second.startswith(f"the cache {tmp_path / 'file'} cannot be written, ")


def test_none_of_the_evaluation_samples_are_held_out_where_trials_run_all() -> None:
    apart, pooled = check(ASKED).data, check(ASKED, is_pooled=True)
    assert apart.held_out is not None
    assert pooled.is_pooled
    assert pooled.data.held_out is None
    assert len(pooled.data.search) == len(apart.search) + len(apart.held_out)


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"targets": (Target("nowhere"),)}, "'nowhere' is not installed"),
        ({"space": "gone.toml"}, "gone.toml"),
        ({"model": Path("gone.onnx")}, "gone.onnx: there is no such file"),
        ({"calibration": "gone.npz"}, "gone.npz"),
        ({"warm_start": Path("gone.json")}, "gone.json"),
    ],
)
def test_what_is_not_there_is_named(change: dict[str, Any], phrase: str) -> None:
    with pytest.raises(AutoquantError, match=phrase):
        check(replace(ASKED, **change))


@pytest.mark.parametrize("name", ["float.onnx", "t0001.onnx", "t12345-full.onnx"])
def test_external_data_are_not_called_like_files_of_a_run(tmp_path: Path, name: str) -> None:
    model = onnx.load(DIGITS.model)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location=name, size_threshold=0)
    with pytest.raises(ModelError, match=f"its external data are in '{name}', as a file of the run is called"):
        check(replace(ASKED, model=tmp_path / "m.onnx"))


@pytest.mark.parametrize("name", ["m.onnx.data", "floats.onnx", "t01.onnx", "t0001.bin"])
def test_other_names_of_external_data_are_fine(tmp_path: Path, name: str) -> None:
    model = onnx.load(DIGITS.model)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location=name, size_threshold=0)
    assert tmp_path / name in check(replace(ASKED, model=tmp_path / "m.onnx")).source.digests
