"""The steps of a search, one by one, for notebooks and jobs that use a part."""

import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path

import joblib

from autoquant.calibration.batches import read_samples
from autoquant.calibration.collect import collect
from autoquant.calibration.methods import choose_range
from autoquant.calibration.sources import DataSource
from autoquant.calibration.timed import CutOffError, TimedFeeds
from autoquant.domain.feed import InputSignature, Samples
from autoquant.domain.measurement import Failure, Measurement
from autoquant.domain.region import Assignment, Region, TensorName
from autoquant.domain.scheme import FLOAT, RangeMethod, TensorFormat
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import N_BINS, CalibrationRange, Statistics
from autoquant.domain.target import Target
from autoquant.errors import AutoquantError, DataError, ModelError, UsageError
from autoquant.examples import example
from autoquant.graph import preprocess, regions
from autoquant.measurement.bench import Bench, Observer, Progress
from autoquant.measurement.effective import effective_assignment
from autoquant.model.io import input_signatures, load_model
from autoquant.model.ops import activations
from autoquant.model.prepared import PreparedModel
from autoquant.model.rewrite import to_bytes, with_outputs
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.plan import is_clipped, is_quantizable
from autoquant.qdq.ports import Ranges
from autoquant.runtime.session import open_session
from autoquant.space.schema import read_space

__all__ = ["build", "calibrate", "find_regions", "measure", "model_path", "open_bench", "prepare", "read_data"]

_LOG = logging.getLogger("autoquant")
_CALIBRATION = Target()
_PROBE_ROUNDS = 30
_PROBE_SECONDS = 2.0


def model_path(model: str | os.PathLike[str]) -> Path:
    """The file of a model, ``example:NAME`` for one that ships with the package.

    Raises:
        ModelError: There is no such example.
    """
    text = os.fspath(model)
    return example(text.removeprefix("example:")).model if text.startswith("example:") else Path(text)


def read_data(model: str | os.PathLike[str], source: DataSource, *, role: str = "calibration") -> Samples:
    """Samples of a model, checked against its inputs.

    Raises:
        DataError: The data do not fit the model.
        ModelError: The model cannot be read.
    """
    return read_samples(source, signatures_of(model_path(model)), role=role)


def signatures_of(path: Path) -> tuple[InputSignature, ...]:
    """The inputs of a model that can be searched: it has some, and only tensors go in and come out.

    Raises:
        ModelError: It has none, or others.
    """
    model = load_model(path)
    for value in (*model.graph.input, *model.graph.output):
        if not value.type.HasField("tensor_type"):
            raise ModelError(
                f"{path}: '{value.name}' is no tensor; cut the model so that only tensors go in and come out"
            )
    found = input_signatures(model)
    if not found:
        raise ModelError(f"{path}: the model has no inputs, so there is nothing to measure; give one with inputs")
    return found


def prepare(model: str | os.PathLike[str], samples: Samples, *, dims: Mapping[str, int] | None = None) -> PreparedModel:
    """Preprocess a float model: freeze, fold, convert, name; see ``autoquant.graph.preprocess``.

    Raises:
        ModelError: The model cannot be read or preprocessed.
    """
    path = model_path(model)
    _check_dims(path, samples, dims or {})
    with running(path):
        return preprocess.prepare(path, samples.feeds, dims=dims)


def _check_dims(path: Path, samples: Samples, dims: Mapping[str, int]) -> None:
    for signature in signatures_of(path) if dims else ():
        for axis, name in enumerate(signature.shape):
            if not isinstance(name, str) or name not in dims:
                continue
            for feed in samples.feeds:
                if feed[signature.name].shape[axis] != dims[name]:
                    raise DataError(
                        f"--dim {name}={dims[name]}: but samples of '{signature.name}' in {samples.source} have the"
                        f" shape {feed[signature.name].shape}; leave out --dim or give data of that size"
                    )


@contextmanager
def running(path: Path) -> Iterator[None]:
    """Whatever onnxruntime raises while it runs the user's own model is about the model or the data."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime."):
            raise
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"{path}: onnxruntime cannot run it on these data: {reason}") from error


def prepare_without_data(
    model: str | os.PathLike[str], calibration: DataSource | None, *, dims: Mapping[str, int] | None = None
) -> PreparedModel:
    """Preprocess with the data's shapes where there are data, otherwise with those of ``dims`` alone, unchecked.

    Raises:
        ModelError: The model cannot be read or preprocessed.
    """
    path = model_path(model)
    if calibration is None and os.fspath(model).startswith("example:"):
        calibration = example(os.fspath(model).removeprefix("example:")).calibration
    feeds = read_data(path, calibration).feeds if calibration is not None else ()
    return preprocess.prepare(path, feeds, dims=dims)


def find_regions(
    prepared: PreparedModel, *, space: str | SpaceDefinition = "default", ep: str = "cpu", n_regions: int = 40
) -> tuple[Region, ...]:
    """Partition the nodes that some scheme of the space could quantize.

    Raises:
        SpaceError: The space cannot be read, or a group of it matches nothing.
    """
    definition = _definition(space, ep)
    graph = prepared.graph
    chosen = [n.name for n in graph.nodes if n.op_type in definition.op_types and is_quantizable(n, graph)]
    groups = {group.name: group.nodes for group in definition.groups}
    return regions.find_regions(graph, chosen, n_regions=n_regions, groups=groups)


def calibrate(
    prepared: PreparedModel,
    samples: Samples,
    *,
    space: str | SpaceDefinition = "default",
    ep: str = "cpu",
    cache_folder: Path | None = None,
    on_sample: Callable[[int], None] | None = None,
    seconds: float = math.inf,
) -> Statistics:
    """Observe every activation that the space may quantize, in one pass; the result is cached by content.

    Args:
        prepared: The preprocessed model.
        samples: Calibration samples.
        space: Says which operators may be quantized.
        ep: Execution provider whose section of the space counts.
        cache_folder: Where results are kept, the user's cache folder by default.
        on_sample: Told how many samples are done.
        seconds: Samples that there is no time for are left out, apart from the first; such a result is not cached.

    Raises:
        DataError: An activation holds NaN or infinity.
    """
    tensors = _observed(prepared, _definition(space, ep))
    cached = _cache(cache_folder or _user_cache()).cache(_statistics, ignore=["prepared", "feeds", "on_sample"])
    feeds = TimedFeeds(samples.feeds, seconds)
    try:
        found: Statistics = cached(
            (prepared.digest, samples.digest, tensors, _observer_version()),
            prepared=prepared,
            feeds=feeds,
            on_sample=on_sample,
        )
    except CutOffError as cut:
        return cut.statistics
    return found


def _cache(folder: Path) -> joblib.Memory:
    """One that keeps nothing where the folder cannot be written."""
    try:
        return joblib.Memory(folder, verbose=0)
    except OSError as error:
        _LOG.warning("calibration results are not kept: %s", error)
        return joblib.Memory(None, verbose=0)


def _observer_version() -> str:
    """Of what makes the statistics: results of another version are not taken from the cache."""
    return f"{metadata.version('autoquant')} {metadata.version('onnxruntime')} {N_BINS}"


def _statistics(
    key: tuple[str, str, tuple[TensorName, ...], str],
    prepared: PreparedModel,
    feeds: TimedFeeds,
    on_sample: Callable[[int], None] | None,
) -> Statistics:
    model_digest, data_digest, tensors, _ = key
    graph = prepared.graph
    inner: dict[str, tuple[int, ...] | None] = {name: graph.shape(name) for name in tensors if name in graph.producer}
    session = open_session(to_bytes(with_outputs(graph.model, inner)), _CALIBRATION)
    found = collect(session, tensors, feeds, digest=f"{model_digest}-{data_digest}", on_sample=on_sample)
    if feeds.is_cut_off:
        raise CutOffError(found)
    return found


def _observed(prepared: PreparedModel, definition: SpaceDefinition) -> tuple[TensorName, ...]:
    """What some assignment may quantize: inputs and outputs of quantizable nodes, but not what a Relu or Clip clips."""
    graph = prepared.graph
    finest = find_regions(prepared, space=definition, n_regions=len(graph.nodes) + 1)
    region_of = {node: region.id for region in finest for node in region.nodes}
    names: dict[TensorName, None] = {}
    for node in graph.nodes:
        if node.op_type in definition.op_types and is_quantizable(node, graph):
            names.update(dict.fromkeys((*activations(node, graph), *node.outputs)))
    return tuple(
        name
        for name in names
        if name in graph.float_tensors and not graph.is_constant(name) and not is_clipped(name, graph, region_of)
    )


def ranges_of(statistics: Statistics) -> Ranges:
    """Calibration ranges from statistics, each chosen once."""

    @cache
    def ranges(tensor: TensorName, tensor_format: TensorFormat, method: RangeMethod) -> CalibrationRange:
        return choose_range(statistics.tensors[tensor], method, tensor_format)

    return ranges


def builder_of(
    prepared: PreparedModel,
    found: Sequence[Region],
    statistics: Statistics,
    *,
    space: str | SpaceDefinition = "default",
    ep: str = "cpu",
) -> Builder:
    """A builder of candidates; keep it to build many."""
    definition = _definition(space, ep)
    schemes = {scheme.name: scheme for scheme in definition.schemes}
    return Builder(prepared.graph, found, schemes, definition.op_types, ranges_of(statistics))


def build(
    prepared: PreparedModel,
    found: Sequence[Region],
    statistics: Statistics,
    assignment: Assignment,
    *,
    space: str | SpaceDefinition = "default",
    ep: str = "cpu",
) -> Candidate:
    """Build one candidate.

    Raises:
        UsageError: The assignment names an unknown region or scheme.
    """
    definition = _definition(space, ep)
    schemes = [FLOAT, *(scheme.name for scheme in definition.schemes)]
    regions_there = [region.id for region in found]
    for region, scheme in assignment.items():
        if region not in regions_there:
            raise UsageError(f"the assignment names region '{region}', but there is: {', '.join(regions_there)}")
        if scheme not in schemes:
            raise UsageError(
                f"the assignment names scheme '{scheme}', but space {definition.name} has: {', '.join(schemes)}"
            )
    return builder_of(prepared, found, statistics, space=definition, ep=ep).build(assignment)


def probe_residual_norms(builder: Builder, bench: Bench) -> str | None:
    """Measure whether the fused kernel for Add and LayerNormalization pays here, and build accordingly.

    onnxruntime fuses the two into SkipLayerNormalization where shapes are static; on some processors that is slower.

    Returns:
        A sentence for the user where the fusion is avoided.
    """
    if not builder.has_residual_norms:
        return None
    fused = builder.build({})
    builder.write_plain_sums(True)
    plain = builder.build({})
    try:
        pair = (bench.open(fused.skeleton, fused.constants), bench.open(plain.skeleton, plain.constants))
    except ModelError:
        builder.write_plain_sums(False)
        return None
    n_rounds = int(max(5, min(_PROBE_ROUNDS, _PROBE_SECONDS / (2 * sum(bench.float_s.values())))))
    timings = bench.compare(*pair, n_rounds).values()
    ratio = max(timing.ratio for timing in timings)
    if all(timing.ratio + 2 * timing.error < 1 for timing in timings):
        return f"Add before LayerNormalization is written as Sum: not fused, float takes {ratio:.3f} of its latency"
    builder.write_plain_sums(False)
    return None


def open_bench(
    model: str | os.PathLike[str],
    samples: Samples,
    *,
    targets: Sequence[Target] = (Target("cpu"),),
    seed: int = 0,
    seconds: float = math.inf,
) -> Bench:
    """Open the float model, which candidates are measured against, on every target.

    Args:
        model: The user's own file: latencies are ratios to it, its outputs are the reference.
        samples: Evaluation samples; they are held in memory, as every candidate runs them again.
        targets: Where candidates are timed.
        seed: Of orders and resampling.
        seconds: For running the float model; samples that there is no time for are left out, apart from two.

    Raises:
        ModelError: The model cannot be opened, or not run on these samples.
        TargetError: An execution provider is not installed.
    """
    path = model_path(model)
    with running(path):
        return Bench(path, targets, tuple(samples.feeds), seed, seconds)


def measure(
    bench: Bench,
    candidate: Candidate,
    assignment: Assignment,
    found: Sequence[Region],
    *,
    n_rounds: int = 8,
    goes_on: Callable[[Progress], bool] = lambda _: True,
    known: Mapping[str, Measurement] | None = None,
    observe: Observer = lambda *_: None,
) -> Measurement | Failure:
    """Open a candidate, read back what really runs, and measure it.

    Args:
        bench: What ``open_bench`` gives.
        candidate: What to measure.
        assignment: What it was built from.
        found: The partition.
        n_rounds: Samples that are run, each once.
        goes_on: Asked after a third of the rounds.
        known: Measurements by digest of the optimised graph; a candidate that runs the same graph is not run again,
            only its size is its own.
        observe: Told the outputs of each sample.
    """
    try:
        opened = bench.open(candidate.skeleton, candidate.constants)
        digest = f"{opened.optimized.digest}-{candidate.variants_digest}"
        if known is not None and digest in known:
            return replace(known[digest], size_bytes=candidate.size_bytes)
        quality, latency, is_complete = bench.measure(opened.sessions, n_rounds, goes_on, observe)
    except AutoquantError as error:
        return Failure(stage="open", reason=str(error))
    except Exception as error:  # onnxruntime raises its own types from run
        return Failure(stage="run", reason=f"{type(error).__name__}: {' '.join(str(error).split())}"[:300])
    return Measurement(
        quality=quality,
        latency=latency,
        digest=digest,
        effective=effective_assignment(
            assignment, found, opened.optimized, candidate.integer_nodes, candidate.float_nodes
        ),
        is_complete=is_complete,
        size_bytes=candidate.size_bytes,
    )


def _definition(space: str | SpaceDefinition, ep: str) -> SpaceDefinition:
    return space if isinstance(space, SpaceDefinition) else read_space(space, ep=ep)


def _user_cache() -> Path:
    base = os.environ.get("AUTOQUANT_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "autoquant"
