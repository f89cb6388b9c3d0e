"""Kernel times of a few models, by region."""

import json
import math
import tempfile
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Feed
from autoquant.domain.reason import one_line
from autoquant.domain.region import Region, TensorName
from autoquant.domain.target import Target
from autoquant.errors import ProfileError
from autoquant.isolation.process import memory_folder
from autoquant.model.graph import Graph, Node
from autoquant.model.optimized import original_name, read_optimized_nodes
from autoquant.model.winograd import whole_name
from autoquant.runtime.session import CompiledError, Initializers, Session, open_session

__all__ = ["LEAST_RUNS", "Profile", "kernel_us", "no_time", "outside_us", "region_us", "take_profiles"]

LEAST_RUNS = 4
_MOST_RUNS = 25
"""The first run of a session is one of them and does not count: it allocates."""
_KERNEL = "_kernel_time"
_QUANTIZING = ("QuantizeLinear", "DynamicQuantizeLinear")
Floats = npt.NDArray[np.float64]
Model = tuple[bytes | Path, Initializers]
"""A file or a skeleton, and the initializers that it leaves out."""


class ProfiledSession(Session, Protocol):
    """A session that was opened with a profile's prefix."""

    def end_profiling(self) -> str:
        """Write the profile; its file's name."""
        ...


@dataclass(frozen=True, slots=True)
class Profile:
    """One model's kernels and their times.

    Attributes:
        kernels: The optimised graph.
        kernel_us: Microseconds by name of the kernel, the least of all runs; of equal names together.
    """

    kernels: Graph
    kernel_us: Mapping[str, float]

    @property
    def total_us(self) -> float:
        """Of all kernels; those in bodies are in the time of the operator around them.

        The profiler makes up names of kernels that have none, so that they count where there are no bodies.
        """
        if not self.kernels.has_bodies:
            return sum(self.kernel_us.values())
        return sum(self.kernel_us.get(name, 0.0) for name in {kernel.name for kernel in self.kernels.nodes})


def no_time(seconds: float) -> str:
    """What to say where profiles would take so long."""
    return f"there is no time for profiles: they would take {seconds:.1f} s"


def take_profiles(
    models: Sequence[Model], target: Target, feeds: Sequence[Feed], seconds: float, most_s: float = math.inf
) -> tuple[Profile, ...]:
    """Run the models in turn with onnxruntime's profiler on, so that a slow spell of the machine meets all of them.

    Args:
        models: Files or skeletons, with the initializers that they leave out.
        target: Where they run.
        feeds: Samples.
        seconds: No run is begun after these, apart from the first few.
        most_s: Nothing is run any more once the first few should take longer: with the profiler on they are slower, by
            far where bodies run over and over.

    Raises:
        ModelError: onnxruntime refuses a model.
        ProfileError: A model cannot be run, or its profile not be written or read, or there is no time for it.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="autoquant-", dir=memory_folder()) as folder:
            opened = [_open(model, target, Path(folder) / str(i)) for i, model in enumerate(models)]
            _run_in_turn([session for session, _ in opened], feeds, seconds, most_s)
            return tuple(_read(session, optimized) for session, optimized in opened)
    except OSError as error:
        raise ProfileError(f"profiles cannot be written: {error}") from error


def _open(model: Model, target: Target, folder: Path) -> tuple[ProfiledSession, Path]:
    folder.mkdir()
    optimized, (source, initializers) = folder / "optimized.onnx", model
    try:
        return open_session(
            source, target, initializers=initializers, optimized_path=optimized, profile_prefix=folder / "profile"
        ), optimized
    except CompiledError as error:
        raise ProfileError(str(error)) from error


def _run_in_turn(sessions: Sequence[Session], feeds: Sequence[Feed], seconds: float, most_s: float) -> None:
    start, n_least = time.perf_counter(), LEAST_RUNS * len(sessions)
    for i in range(_MOST_RUNS):
        if i >= LEAST_RUNS and time.perf_counter() - start > seconds:
            break
        for n_done, session in enumerate(sessions, 1 + i * len(sessions)):
            try:
                session.run(None, feeds[i % len(feeds)])
            except Exception as error:  # onnxruntime raises its own types from run
                raise ProfileError(f"a candidate cannot be run: {type(error).__name__}: {one_line(error)}") from error
            least_s = n_least / n_done * (time.perf_counter() - start)
            if least_s > most_s:
                raise ProfileError(no_time(least_s))


def _read(session: ProfiledSession, optimized: Path) -> Profile:
    trace = Path(session.end_profiling())
    return Profile(read_optimized_nodes(optimized), kernel_us(trace.read_text(encoding="utf-8")))


def kernel_us(trace: str) -> Mapping[str, float]:
    """Microseconds of each kernel in a trace of onnxruntime, by name: the least over all runs but the first.

    The least and not the median: other work on the machine only ever adds, and more to long kernels than to short ones,
    so that medians are off by a factor of two on a busy machine where the least are not.

    Raises:
        ProfileError: It holds no kernel, or fewer than two runs.
    """
    try:
        events = json.loads(trace)
    except ValueError as error:
        raise ProfileError(f"onnxruntime's profile is not JSON: {error}") from error
    starts = sorted(event["ts"] for event in events if event["name"] == "model_run")
    n_runs = len(starts)
    spent: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * n_runs)
    for event in events:
        run = bisect_right(starts, event["ts"]) - 1
        if event["cat"] == "Node" and event["name"].endswith(_KERNEL) and run >= 0:
            spent[event["name"].removesuffix(_KERNEL)][run] += event["dur"]
    if not spent or n_runs < 2:
        raise ProfileError("onnxruntime's profile names no kernel")
    return {name: min(durations[1:]) for name, durations in spent.items()}


def region_us(profile: Profile, given: Graph, regions: Sequence[Region]) -> Floats:
    """Microseconds that each region takes, shape (R,).

    A kernel belongs to the region of the node that it is named after, by the node's name or by its output's. One
    that is named after no node of the given graph, or after one of no region, belongs to the region whose result it
    takes on: so does a DequantizeLinear, whereas a QuantizeLinear belongs to the region that reads it.
    """
    position = {name: i for i, region in enumerate(regions) for name in region.nodes}
    homes = _inherited(given, {node.index: position[node.name] for node in given.nodes if node.name in position})
    by_name = {str(node.name): node for node in given.nodes}
    owners: dict[int, int] = {}
    for kernel in profile.kernels.nodes:
        node = _named_after(kernel, by_name, given)
        if node is not None and node.index in homes:
            owners[kernel.index] = homes[node.index]
    quantizing = {kernel.index for kernel in profile.kernels.nodes if kernel.op_type in _QUANTIZING}
    owners = _inherited(profile.kernels, owners, quantizing)
    found = np.zeros(len(regions))
    by_kernel = {str(kernel.name): owners[kernel.index] for kernel in profile.kernels.nodes if kernel.index in owners}
    for name, spent in profile.kernel_us.items():
        if name in by_kernel:
            found[by_kernel[name]] += spent
    return found


def outside_us(profile: Profile, given: Graph, regions: Sequence[Region]) -> Mapping[str, float]:
    """Microseconds of the operators that are in no region, by their type in the given graph.

    Of kernels that are named after one of them, or write what one of them writes; what onnxruntime adds, as changes of
    the layout, is left out.
    """
    inside = {name for region in regions for name in region.nodes}
    by_name = {str(node.name): node for node in given.nodes}
    found: defaultdict[str, float] = defaultdict(float)
    for kernel in {kernel.name: kernel for kernel in profile.kernels.nodes}.values():
        written = (given.producer[name] for name in kernel.outputs if name in given.producer)
        node = _named_after(kernel, by_name, given) or next(written, None)
        if node is not None and node.name not in inside:
            found[node.op_type] += profile.kernel_us.get(kernel.name, 0.0)
    return found


def _named_after(kernel: Node, by_name: Mapping[str, Node], given: Graph) -> Node | None:
    plain = original_name(kernel.name)
    known = by_name.get(kernel.name) or by_name.get(plain) or given.producer.get(TensorName(plain))
    return known or by_name.get(whole_name(plain))


def _inherited(graph: Graph, known: Mapping[int, int], late: Collection[int] = ()) -> dict[int, int]:
    """Regions by index of node: where none is known that of a node before, or else of one behind.

    Args:
        graph: Of the nodes.
        known: Regions that are known.
        late: Nodes that take the region of one behind, if there is one.
    """
    found = dict(known)
    for node in graph.nodes:
        if node.index not in late:
            _take(node, [graph.producer[name] for name in node.inputs if name in graph.producer], found)
    for node in reversed(graph.nodes):
        _take(node, [reader for name in node.outputs for reader in graph.consumers.get(name, ())], found)
    for node in graph.nodes:
        _take(node, [graph.producer[name] for name in node.inputs if name in graph.producer], found)
    return found


def _take(node: Node, neighbours: Sequence[Node], found: dict[int, int]) -> None:
    if node.index in found:
        return
    for neighbour in neighbours:
        if neighbour.index in found:
            found[node.index] = found[neighbour.index]
            return
