"""Checked samples: what calibrates and what evaluates."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, permutations

import numpy as np

from autoquant.calibration.files import HELD_BYTES, Array, FileArray
from autoquant.calibration.sources import Arrays, DataSource, Feeds, as_array, read_parts, source_name
from autoquant.domain.feed import Feed, InputSignature, LazyFeeds, Samples, chain_feeds
from autoquant.domain.mistakes import did_you_mean
from autoquant.errors import DataError

__all__ = ["batched", "check_samples", "overlap", "read_samples", "select", "split"]

_MOST_AXES = 6
"""Orders of more are too many to be tried."""


def read_samples(
    source: DataSource, inputs: Sequence[InputSignature], *, role: str, held_bytes: int = HELD_BYTES
) -> Samples:
    """Read samples and check them against the model's inputs.

    Sample ``i`` of an array is ``array[i:i+1]`` where the array has the input's rank, and ``array[i]`` where it has one
    dimension more; of an array in memory both are views. Arrays named ``label*`` that are no input become labels, in
    memory. Feeds, from Python or from ``module:callable``, are taken as they are.

    Args:
        source: Files, ``module:callable`` or Python objects.
        inputs: What the model wants.
        role: ``"calibration"`` or ``"evaluation"``, for messages.
        held_bytes: Of arrays in files that are held in memory; the samples of others are read when they are needed.

    Raises:
        DataError: The source cannot be read or does not fit the model.
    """
    names = [signature.name for signature in inputs]
    feeds: list[Sequence[Feed]] = []
    digests: list[str] = []
    sample_names: list[str] = []
    labels: list[Mapping[str, Array]] = []
    for part in read_parts(source, names, role=role, held_bytes=held_bytes):
        if isinstance(part, Arrays):
            part_feeds, part_labels = _slice(part, inputs)
            labels.append(part_labels)
        else:
            part_feeds = _order(part, names)
        part_names = [f"{part.where}, sample {index}" for index in range(len(part_feeds))]
        digests += _check(part_feeds, inputs, part_names)
        sample_names += part_names
        feeds.append(part_feeds)
    where = f"{role} data {source_name(source)}"
    if not digests:
        raise DataError(f"{where}: holds no samples, give at least one")
    return _samples(chain_feeds(feeds), digests, sample_names, _join_labels(labels, where), source_name(source))


def check_samples(samples: Samples, inputs: Sequence[InputSignature]) -> None:
    """Check samples that were read for one model against the inputs of another one.

    Args:
        samples: As they are fed.
        inputs: What the other model wants.

    Raises:
        DataError: They do not fit.
    """
    names = [signature.name for signature in inputs]
    for sample, feed in zip(samples.names, samples.feeds, strict=True):
        _check_names(feed, names, sample)
        _check_feed(feed, inputs, sample)


def split(samples: Samples) -> tuple[Samples, Samples]:
    """Divide samples into a calibration and an evaluation part, interleaved.

    Samples of equal content go to the same part, so that the parts never overlap.

    Args:
        samples: At least two that differ.

    Raises:
        DataError: There are fewer than two different samples.
    """
    digests = samples.feed_digests
    position = {digest: index for index, digest in enumerate(dict.fromkeys(digests))}
    n_different = len(position)
    if n_different < 2:
        raise DataError(
            f"data {samples.source}: a split into calibration and evaluation needs at least 2 different samples, not"
            f" {n_different}, give more or evaluation data of their own"
        )
    calibrates = [position[digest] % 2 == 0 for digest in digests]
    return (
        select(samples, [i for i, chosen in enumerate(calibrates) if chosen], "calibration"),
        select(samples, [i for i, chosen in enumerate(calibrates) if not chosen], "evaluation"),
    )


def batched(samples: Samples, inputs: Sequence[InputSignature], size: int) -> Samples:
    """Join every ``size`` samples to one; what is left over at the end is not used.

    Raises:
        DataError: There are fewer samples, or the model's batch is fixed.
    """
    if size == 1:
        return samples
    for signature in inputs:
        if signature.shape is not None and (not signature.shape or isinstance(signature.shape[0], int)):
            raise DataError(
                f"batch {size}: the first dimension of input '{signature.name}' is not dynamic, its shape is"
                f" {_shape_text(signature.shape)}; export the model with a dynamic batch, or leave the batch at 1"
            )
    n_batches = len(samples) // size
    if n_batches == 0:
        raise DataError(f"data {samples.source}: {len(samples)} samples are no batch of {size}, give more samples")
    slices = [slice(k * size, (k + 1) * size) for k in range(n_batches)]
    feeds = LazyFeeds([partial(_join, samples.feeds[each], samples.names[each]) for each in slices])
    names = [f"batch of {size} from {samples.names[each.start]} on" for each in slices]
    return _samples(feeds, [_feed_digest(feed) for feed in feeds], names, {}, f"{samples.source} (batches of {size})")


def _join(feeds: Sequence[Feed], names: Sequence[str]) -> Feed:
    """The batch of all of them; ``names`` are those of the samples."""
    parts = list(feeds)
    for name, first in parts[0].items():
        for sample, part in zip(names, parts, strict=True):
            if part[name].shape != first.shape or first.shape[:1] != (1,):
                raise DataError(
                    f"batch {len(parts)}, {sample}: '{name}' has the shape {part[name].shape}, but samples are joined"
                    " only where all are alike and one along the first dimension; leave the batch at 1"
                )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def overlap(a: Samples, b: Samples) -> int:
    """How many samples of ``b`` have the content of a sample of ``a``."""
    known = set(a.feed_digests)
    return sum(digest in known for digest in b.feed_digests)


def select(samples: Samples, indices: Sequence[int], part: str) -> Samples:
    """Some of the samples, in order; ``part`` is what messages call them."""
    sources = chain_feeds([samples.feeds]).sources
    return _samples(
        LazyFeeds([sources[index] for index in indices]),
        [samples.feed_digests[index] for index in indices],
        [samples.names[index] for index in indices],
        {name: array[list(indices)] for name, array in samples.labels.items()},
        f"{samples.source} ({part} part)",
    )


def _samples(
    feeds: Sequence[Feed], digests: Sequence[str], names: Sequence[str], labels: Mapping[str, Array], source: str
) -> Samples:
    digest = hashlib.sha256("\n".join([*digests, _feed_digest(labels)]).encode()).hexdigest()
    return Samples(
        feeds=feeds, feed_digests=tuple(digests), names=tuple(names), labels=labels, digest=digest, source=source
    )


def _slice(part: Arrays, inputs: Sequence[InputSignature]) -> tuple[Sequence[Feed], dict[str, Array]]:
    names = [signature.name for signature in inputs]
    labels = {
        name: array.whole() if isinstance(array, FileArray) else array
        for name, array in part.arrays.items()
        if name not in names and str(name).startswith("label")
    }
    _check_names([name for name in part.arrays if name not in labels], names, part.where)
    columns = {
        signature.name: _column(part.arrays[signature.name], signature, f"{part.where}, array '{signature.name}'")
        for signature in inputs
    }
    counts = {name: len(part.arrays[name]) for name in names}
    n_samples = min(counts.values(), default=0)
    counts |= {name: len(np.atleast_1d(array)) for name, array in labels.items()}
    for (first, n_first), (other, n_other) in pairwise(counts.items()):
        if n_first != n_other:
            raise DataError(
                f"{part.where}: array '{first}' holds {n_first} samples, but '{other}' holds {n_other},"
                " give every array the same number along axis 0; what is one sample as a whole wants an axis in front"
            )
    return LazyFeeds([_Row(columns, index) for index in range(n_samples)]), labels


@dataclass(frozen=True, slots=True)
class _Column:
    """An array of samples, each a batch of one where ``is_batched``."""

    array: Array | FileArray
    is_batched: bool

    def sample(self, index: int) -> Array:
        array = self.array
        found = array.sample(index) if isinstance(array, FileArray) else array[index, ...]
        return found[np.newaxis] if self.is_batched else found

    def alone(self, index: int) -> "_Column":
        """A column of one sample."""
        array = self.array
        return replace(self, array=array.alone(index) if isinstance(array, FileArray) else array[index : index + 1])


@dataclass(frozen=True, slots=True)
class _Row:
    """Makes the feed of an index."""

    columns: Mapping[str, _Column]
    index: int

    def __call__(self) -> Feed:
        return {name: column.sample(self.index) for name, column in self.columns.items()}

    def __reduce__(self) -> tuple[type["_Row"], tuple[dict[str, _Column], int]]:
        """Another process gets no other sample, and of what stays in files only where it is."""
        return _Row, ({name: column.alone(self.index) for name, column in self.columns.items()}, 0)


def _column(array: Array | FileArray, signature: InputSignature, where: str) -> _Column:
    """The samples of an array; batches of one where the input's rank is not declared."""
    shape = (None,) * array.ndim if signature.shape is None else signature.shape
    if array.ndim == len(shape) + 1:
        return _Column(array, is_batched=False)
    if array.ndim != len(shape) or not shape:
        raise DataError(
            f"{where}: its shape is {array.shape}, but the model's input is {_shape_text(shape)},"
            f" reshape it to rank {len(shape) or 1}, samples along the first dimension"
        )
    if isinstance(shape[0], int) and shape[0] != 1:
        raise DataError(
            f"{where}: the model's input is {_shape_text(shape)} with a fixed first dimension, so the array needs one"
            f" dimension more, reshape it to (n_samples, {_shape_text(shape)[1:]}"
        )
    return _Column(array, is_batched=True)


def _order(part: Feeds, names: Sequence[str]) -> list[Feed]:
    feeds: list[Feed] = []
    for index, feed in enumerate(part.feeds):
        sample = f"{part.where}, sample {index}"
        if not isinstance(feed, Mapping):
            raise DataError(
                f"{sample}: is of type '{type(feed).__name__}', give a dict with an array for each input of the model"
            )
        _check_names(feed, names, sample)
        feeds.append({name: as_array(feed[name], f"{sample}, array '{name}'") for name in names})
    return feeds


def _check_names(given: Collection[str], wanted: Sequence[str], where: str) -> None:
    for name in given:
        if name not in wanted:
            hint = did_you_mean(str(name), wanted) or ", leave it out"
            raise DataError(f"{where}: array '{name}' is no input of the model, which wants {', '.join(wanted)}{hint}")
    for name in wanted:
        if name not in given:
            raise DataError(f"{where}: there is no array '{name}', add it, the model wants {', '.join(wanted)}")


def _check(feeds: Sequence[Feed], inputs: Sequence[InputSignature], names: Sequence[str]) -> list[str]:
    """Check one sample after the other; their digests."""
    digests: list[str] = []
    for feed, sample in zip(feeds, names, strict=True):
        _check_feed(feed, inputs, sample)
        digests.append(_feed_digest(feed))
    return digests


def _check_feed(feed: Feed, inputs: Sequence[InputSignature], sample: str) -> None:
    if inputs and not any(feed[signature.name].size for signature in inputs):
        raise DataError(f"{sample}: its arrays hold no value, leave the sample out")
    for signature in inputs:
        _check_array(feed[signature.name], signature, f"{sample}, array '{signature.name}'")


def _check_array(array: Array, signature: InputSignature, where: str) -> None:
    shape, dtype = array.shape if signature.shape is None else signature.shape, signature.dtype
    fits = all(not isinstance(wanted, int) or wanted == n for wanted, n in zip(shape, array.shape, strict=False))
    if array.ndim != len(shape) or not fits:
        how = "transpose" if _is_transposed(array.shape, shape) else "reshape"
        raise DataError(f"{where}: its shape is {array.shape}, but the model's input is {_shape_text(shape)}, {how} it")
    if dtype != "object" and not hasattr(np, dtype):
        raise DataError(
            f"{where}: the model's input is {dtype}, which numpy cannot hold, put a Cast before it and feed float32"
        )
    if not _has_dtype(array, dtype):
        wanted = "str_" if dtype == "object" else dtype
        raise DataError(
            f"{where}: its dtype is {array.dtype}, but the model wants {wanted}, use .astype(numpy.{wanted})"
        )
    if array.dtype.kind in "fc" and not np.isfinite(array).all():
        what = "NaN" if np.isnan(array).any() else "an infinity"
        raise DataError(f"{where}: it holds {what}, repair the sample or leave it out")


def _is_transposed(found: Sequence[int], wanted: Sequence[int | str | None]) -> bool:
    """Whether the sizes are there in another order."""
    return len(found) == len(wanted) <= _MOST_AXES and any(
        all(not isinstance(size, int) or size == n for size, n in zip(wanted, order, strict=True))
        for order in permutations(found)
    )


def _has_dtype(array: Array, dtype: str) -> bool:
    if dtype == "object":  # strings: onnxruntime takes both forms
        return array.dtype.kind in "OU"
    return array.dtype.name == dtype and array.dtype.isnative


def _shape_text(shape: Sequence[int | str | None]) -> str:
    return f"({', '.join('?' if dimension is None else str(dimension) for dimension in shape)})"


def _join_labels(parts: Sequence[Mapping[str, Array]], where: str) -> dict[str, Array]:
    if not parts:
        return {}
    for part in parts:
        if part.keys() != parts[0].keys():
            different = sorted(part.keys() ^ parts[0].keys())
            raise DataError(f"{where}: not every file has '{different[0]}', add it everywhere or leave it out")
    try:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    except ValueError as error:
        raise DataError(f"{where}: the labels of its files do not fit together, make shapes equal: {error}") from error


def _feed_digest(feed: Feed) -> str:
    hasher = hashlib.sha256()
    for name in sorted(feed):
        array = feed[name].astype(str) if feed[name].dtype.kind == "O" else feed[name]
        hasher.update(repr((name, array.dtype.str, array.shape)).encode())
        hasher.update(array.tobytes())
    return hasher.hexdigest()
