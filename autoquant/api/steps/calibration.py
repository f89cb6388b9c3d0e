"""Statistics of the activations, cached by content."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from autoquant.api.steps.caching import made_by, memory_of, user_cache
from autoquant.api.steps.models import check_prepared_type, check_samples_type
from autoquant.api.steps.passes import in_passes
from autoquant.api.steps.preparation import definition_of, find_regions
from autoquant.calibration.batches import select
from autoquant.calibration.collect import collect
from autoquant.calibration.spread import spread_order
from autoquant.calibration.timed import CutOffError, TimedFeeds
from autoquant.domain.arguments import check_path, check_seconds, check_type
from autoquant.domain.feed import Feed, LazyFeeds, Samples
from autoquant.domain.region import TensorName
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import N_BINS, Statistics
from autoquant.domain.target import DEFAULT_TARGET
from autoquant.errors import DataError, UsageError
from autoquant.model.copies import in_parts
from autoquant.model.graph import Graph
from autoquant.model.ops import activations, channel_axes, is_linear, is_quantizable, original_of
from autoquant.model.prepared import PreparedModel
from autoquant.model.rewrite import with_outputs
from autoquant.qdq.planner import is_clipped
from autoquant.runtime.session import open_parts

__all__ = ["calibrate", "recalibrate"]


def calibrate(
    prepared: PreparedModel,
    samples: Samples,
    *,
    space: str | SpaceDefinition = "default",
    ep: str = "cpu",
    cache_folder: Path | None = None,
    on_sample: Callable[[int], None] | None = None,
    seconds: float = math.inf,
    n_samples: int | None = None,
) -> Statistics:
    """Observe every activation that the space may quantize; the result is cached by content.

    In one pass, or in several where the activations take more than a gigabyte in the largest sample.

    Args:
        prepared: The preprocessed model.
        samples: Calibration samples.
        space: Says which operators may be quantized.
        ep: Execution provider whose section of the space counts.
        cache_folder: Where results are kept, the user's cache folder by default.
        on_sample: Told how many samples are done.
        seconds: Samples that there is no time for are left out, but not all; those that are run are evenly spread. Such
            a result is not cached.
        n_samples: So many of the samples, evenly spread, e.g. those that an earlier call had time for; all by default.

    Raises:
        DataError: The samples are of another model, onnxruntime cannot run the float model on one, or an output of it
            holds NaN or infinity.
        SpaceError: The space cannot be read.
        UsageError: There would be no sample, an argument is of another type, or the feeds of ``samples`` were replaced.
    """
    check_prepared_type(prepared)
    check_samples_type(samples)
    if not isinstance(samples.feeds, LazyFeeds) or not 0 < len(samples.feeds) == len(samples.feed_digests):
        raise UsageError(
            "the feeds of the samples are others than those that were read; give read_data those that are wanted, or"
            " calibrate their number as n_samples"
        )
    check_type("the number of samples", n_samples, (int, type(None)), "1 or more")
    check_seconds("the seconds of a calibration", seconds)
    check_path("the cache", cache_folder)
    if n_samples is not None and n_samples < 1:
        raise UsageError(f"the number of samples is {n_samples}, give 1 or more")
    names = list(samples.feeds[0])
    if names and not set(names).intersection(prepared.graph.inputs):
        raise DataError(f"the samples are of another model, as this one has no input '{names[0]}'; read its own")
    tensors = _observed(prepared, definition_of(space, ep))
    try:
        return _calibrated(prepared, samples, tensors, cache_folder, on_sample, seconds, n_samples)
    except CutOffError as cut:
        return cut.statistics


def recalibrate(
    prepared: PreparedModel,
    samples: Samples,
    earlier: Statistics,
    changed: Collection[TensorName],
    *,
    cache_folder: Path | None = None,
    seconds: float = math.inf,
) -> Statistics | None:
    """Statistics of a model in which only some activations hold other values than in one that was calibrated.

    Args:
        prepared: The changed model.
        samples: Calibration samples, the same ones.
        earlier: What ``calibrate`` observed of the other model.
        changed: The activations; only these are observed.
        cache_folder: Where results are kept, the user's cache folder by default.
        seconds: Longest time.

    Returns:
        None where there was no time to run as many samples as before.
    """
    renewed = set(changed)
    tensors = tuple(name for name in earlier.tensors if name in renewed)
    try:
        found = _calibrated(prepared, samples, tensors, cache_folder, None, seconds, earlier.n_samples)
    except CutOffError:
        return None
    kept = {name: found.tensors.get(name, statistics) for name, statistics in earlier.tensors.items()}
    return replace(found, tensors=kept, channels={**earlier.channels, **found.channels})


def _calibrated(
    prepared: PreparedModel,
    samples: Samples,
    tensors: tuple[TensorName, ...],
    cache_folder: Path | None,
    on_sample: Callable[[int], None] | None,
    seconds: float,
    n_samples: int | None,
) -> Statistics:
    """Cached where all samples were run; a ``CutOffError`` has what was observed of some."""
    cached = memory_of(cache_folder or user_cache()).cache(
        _statistics, ignore=["prepared", "feeds", "names", "on_sample"]
    )
    order = spread_order(len(samples))
    chosen, data_digest = select(samples, order[:n_samples], "calibration"), select(samples, order, "all").digest
    if n_samples is not None and n_samples < len(samples):
        data_digest = _part_digest(data_digest, n_samples)
    found: Statistics = cached(
        (prepared.digest, data_digest, tensors, made_by(f"{N_BINS} channels finite masks both spread strided")),
        prepared=prepared,
        feeds=TimedFeeds(chosen.feeds, seconds),
        names=chosen.names,
        on_sample=on_sample,
    )
    return found


def _part_digest(digest: str, n_samples: int) -> str:
    """Of some samples: statistics of different numbers of them are different ones."""
    return f"{digest}-{n_samples}"


def _statistics(
    key: tuple[str, str, tuple[TensorName, ...], str],
    prepared: PreparedModel,
    feeds: TimedFeeds,
    names: Sequence[str],
    on_sample: Callable[[int], None] | None,
) -> Statistics:
    model_digest, data_digest, tensors, _ = key
    graph = prepared.graph
    alike = _alike(graph, tensors)
    axes = _channel_axes(graph, tensors)

    def observe(fetched: Sequence[TensorName], feeds: Iterable[Feed], *, is_first: bool) -> Statistics:
        inner: dict[str, tuple[int, ...] | None] = {n: graph.shape(n) for n in fetched if n in graph.producer}
        return collect(
            open_parts(*in_parts(graph.model, lambda model: with_outputs(model, inner)), DEFAULT_TARGET),
            [name for name in fetched if alike.get(name) == name],
            feeds,
            digest=f"{model_digest}-{data_digest}",
            channel_axes={name: axes[name] for name in fetched if name in axes},
            finite=_float_outputs(graph) if is_first else (),
            names=names,
            on_sample=on_sample if is_first else None,
        )

    first, *others = passes = in_passes(graph, dict.fromkeys((*alike.values(), *axes)), feeds.feeds)
    timed = TimedFeeds(feeds.feeds, feeds.seconds / len(passes))
    found = observe(first, timed, is_first=True)
    observed, channels = dict(found.tensors), dict(found.channels)
    for other in others:
        more = observe(other, feeds.feeds[: found.n_samples], is_first=False)
        observed.update(more.tensors)
        channels.update(more.channels)
    found = replace(found, tensors={name: observed[alike[name]] for name in tensors}, channels=channels)
    if timed.is_cut_off:
        raise CutOffError(replace(found, digest=_part_digest(found.digest, found.n_samples)))
    return found


def _float_outputs(graph: Graph) -> list[TensorName]:
    return [name for name in graph.outputs if name in graph.producer and (graph.dtype(name) or "").startswith("float")]


def _observed(prepared: PreparedModel, definition: SpaceDefinition) -> tuple[TensorName, ...]:
    """What some assignment may quantize: inputs and outputs of quantizable nodes, but not what a Relu or Clip clips.

    Where ranges are found when the model runs, only what equalisation asks for: ends of linear operators.
    """
    graph = prepared.graph
    finest = find_regions(prepared, space=definition, n_regions=len(graph.nodes) + 1)
    region_of = {node: region.id for region in finest for node in region.nodes}
    names: dict[TensorName, None] = {}
    known = [node for node in graph.nodes if definition.has_static or is_linear(node, graph)]
    for node in known:
        if node.op_type in definition.op_types and is_quantizable(node, graph):
            names.update(dict.fromkeys((*activations(node, graph), *node.outputs)))
    return tuple(
        name
        for name in names
        if name in graph.float_tensors and not graph.is_constant(name) and not is_clipped(name, graph, region_of)
    )


def _alike(graph: Graph, tensors: Collection[TensorName]) -> dict[TensorName, TensorName]:
    """For each tensor the first one with the same values in any shape and order: counting them once is enough."""
    first: dict[TensorName, TensorName] = {}
    return {name: first.setdefault(original_of(name, graph), name) for name in tensors}


def _channel_axes(graph: Graph, tensors: Collection[TensorName]) -> dict[TensorName, int]:
    """Of what linear operators read and write; the first reader decides, and before those that write.

    A product with a vector writes no channels.
    """
    linear = [node for node in graph.nodes if is_linear(node, graph)]
    read = [(node.inputs[0], channel_axes(node)[0]) for node in linear]
    written = [
        (node.outputs[0], channel_axes(node)[1]) for node in linear if len(graph.shape(node.inputs[1]) or ()) > 1
    ]
    return {name: axis for name, axis in reversed(read + written) if name in tensors}
