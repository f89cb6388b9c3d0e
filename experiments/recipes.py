"""onnxruntime's own recipes of one float model: what a user has without autoquant.

``python -m experiments.recipes MODEL CALIBRATION OUT`` prepares the model as onnxruntime advises (shapes frozen to
those of the data, ``quant_pre_process``) and writes one file a recipe: static QDQ of u8s8 and s8s8 per channel and u8u8
per tensor, each with MinMax, Entropy and Percentile; u8s8 per tensor and u16s8 per channel with MinMax; dynamic s8;
and for processors without VNNI, whose kernels saturate, u8s8 per channel and dynamic s8 with ``reduce_range``.
"""

import argparse
import contextlib
import inspect
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

__all__ = [
    "RECIPES",
    "Feed",
    "Reader",
    "Recipe",
    "build_recipes",
    "each_recipe",
    "first_line",
    "prepare",
    "read_feeds",
    "silence",
]

log = logging.getLogger(__name__)

Feed = dict[str, np.ndarray]
DTYPES = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8, "u16": QuantType.QUInt16}
HAS_CALIBRATION_CACHE = "calibration_cache_path" in inspect.signature(quantize_static).parameters
PER_CHANNEL_OPSET = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Arguments of ``quantize_static``, or of ``quantize_dynamic`` where activations have no type.

    Attributes:
        activation: Key of ``DTYPES``, or empty for dynamic quantization.
        weight: Key of ``DTYPES``.
        per_channel: Whether each channel of a weight has a scale of its own.
        method: Name of a ``CalibrationMethod``, or empty for dynamic quantization.
        reduce_range: Whether weights have 7 bits.
    """

    activation: str
    weight: str
    per_channel: bool
    method: str
    reduce_range: bool = False

    @property
    def name(self) -> str:
        """Such as ``u8s8_channel_minmax``."""
        scale = "channel" if self.per_channel else "tensor"
        scale += "_reduced" if self.reduce_range else ""
        if not self.activation:
            return f"dynamic_{self.weight}_{scale}"
        return f"{self.activation}{self.weight}_{scale}_{self.method.lower()}"


METHODS = ("MinMax", "Entropy", "Percentile")
TYPES = (("u8", "s8", True), ("u8", "u8", False), ("s8", "s8", True))
RECIPES = (
    *(Recipe(activation=a, weight=w, per_channel=c, method=m) for m in METHODS for a, w, c in TYPES),
    Recipe(activation="u8", weight="s8", per_channel=False, method="MinMax"),
    Recipe(activation="u16", weight="s8", per_channel=True, method="MinMax"),
    Recipe(activation="", weight="s8", per_channel=True, method=""),
    *(
        Recipe(activation="u8", weight="s8", per_channel=True, method=method, reduce_range=True)
        for method in ("MinMax", "Percentile")
    ),
    Recipe(activation="", weight="s8", per_channel=True, method="", reduce_range=True),
)


class Reader(CalibrationDataReader):  # type: ignore[misc] # onnxruntime has no types
    """Feeds, one after the other."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._rest = iter(feeds)

    def get_next(self) -> Feed | None:
        """The next feed, or None after the last."""
        return next(self._rest, None)


def build_recipes(model: Path, calibration: Path, out: Path) -> dict[str, Path]:
    """Write one model for each recipe that works on this model.

    Args:
        model: Float model.
        calibration: ``.npz`` with one array an input, samples along axis 0.
        out: Folder for the files ``<recipe>.onnx``; made where it is missing.

    Returns:
        The file of each recipe; recipes that failed are logged and left out.
    """
    found = each_recipe(model, calibration, out)
    return {name: file for name, file, error in found if not error}


def each_recipe(model: Path, calibration: Path, out: Path) -> Iterator[tuple[str, Path, str]]:
    """Recipe, file and error of each, as soon as it is built, where the error is empty, or has failed."""
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="recipes-") as folder:
        feeds = read_feeds(calibration, onnx.load(model, load_external_data=False))
        prepared = prepare(model, feeds[0], Path(folder))
        for recipe in RECIPES:
            start = time.perf_counter()
            part = Path(folder) / f"{recipe.name}.onnx"
            error = _try(recipe.name, lambda: _build(recipe, prepared, feeds, part))  # noqa: B023 - called at once
            file = out / part.name
            if not error:
                _move(part, file)
                log.info("%s: %.1f s", recipe.name, time.perf_counter() - start)
            yield recipe.name, file, error


def read_feeds(path: Path, model: onnx.ModelProto) -> list[Feed]:
    """One feed a sample, as the model wants them.

    Raises:
        ValueError: The file has no array for an input.
    """
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.input}
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name in ranks}
    if not arrays:
        raise ValueError(f"{path} holds no array for an input of the model, which are {', '.join(ranks)}.")
    n_samples = min(len(array) for array in arrays.values())
    return [
        {name: a[i : i + 1] if a.ndim == ranks[name] else np.asarray(a[i]) for name, a in arrays.items()}
        for i in range(n_samples)
    ]


def prepare(source: Path, feed: Feed, folder: Path, *, opset: int = PER_CHANNEL_OPSET) -> Path:
    """Freeze shapes, raise the opset to this at least, and run onnxruntime's preprocessing; the file, in ``folder``."""
    model = onnx.load(source)
    for value in model.graph.input:
        if value.name in feed:
            for dimension, size in zip(value.type.tensor_type.shape.dim, feed[value.name].shape, strict=True):
                dimension.Clear()
                dimension.dim_value = size
    frozen, prepared = folder / "frozen.onnx", folder / "prepared.onnx"
    onnx.save(_raise_opset(model, opset), frozen)
    for skip_symbolic_shape in (False, True):
        preprocess = f"quant_pre_process(skip_symbolic_shape={skip_symbolic_shape})"
        with contextlib.chdir(folder):  # it leaves external data in the current folder
            call = partial(quant_pre_process, frozen, prepared, skip_symbolic_shape=skip_symbolic_shape)
            if not _try(preprocess, call):
                return prepared
    return frozen


def _raise_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    present = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if present >= opset:
        return model
    try:
        return onnx.version_converter.convert_version(model, opset)
    except Exception as error:  # the converter raises what it likes
        log.warning("The model stays at opset %d: %s", present, first_line(error))
        return model


def _build(recipe: Recipe, prepared: Path, feeds: Sequence[Feed], path: Path) -> None:
    if not recipe.activation:
        quantize_dynamic(
            prepared,
            path,
            weight_type=DTYPES[recipe.weight],
            per_channel=recipe.per_channel,
            reduce_range=recipe.reduce_range,
        )
        return
    cache = {"calibration_cache_path": path.with_name(f"{recipe.method}.json")} if HAS_CALIBRATION_CACHE else {}
    quantize_static(
        prepared,
        path,
        Reader(feeds),
        quant_format=QuantFormat.QDQ,
        activation_type=DTYPES[recipe.activation],
        weight_type=DTYPES[recipe.weight],
        per_channel=recipe.per_channel,
        calibrate_method=CalibrationMethod[recipe.method],
        reduce_range=recipe.reduce_range,
        **cache,
    )


def _try(what: str, call: Callable[[], object]) -> str:
    """Why a call of onnxruntime's tools failed, which is logged too; empty where it didn't."""
    try:
        with silence():
            call()
    except Exception as error:  # a recipe that fails is a result
        reason = f"{type(error).__name__}: {first_line(error)}"
        log.warning("%s failed: %s", what, reason)
        return reason
    return ""


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Silence the tools of onnxruntime, which print and warn by the root logger."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            yield
    finally:
        logging.disable(before)


def first_line(error: Exception) -> str:
    """Of its message, 200 characters at most."""
    return next(iter(str(error).strip().splitlines()), "")[:200]


def _move(source: Path, target: Path) -> None:
    """Move a file, perhaps to another disk, so that ``target`` is never half-written."""
    part = target.with_suffix(".part")
    part.write_bytes(source.read_bytes())
    source.unlink()
    part.replace(target)


def main() -> int:
    """Build the recipes of the model on the command line; 1 where none works, 2 on bad input."""
    parser = argparse.ArgumentParser(prog="python -m experiments.recipes", description=__doc__)
    for name in ("model", "calibration", "out"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for path in (arguments.model, arguments.calibration):
        if not path.is_file():
            print(f"{path} isn't a file.", file=sys.stderr)
            return 2
    try:
        files = build_recipes(arguments.model, arguments.calibration, arguments.out)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if files else 1


if __name__ == "__main__":
    sys.exit(main())
