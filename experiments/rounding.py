"""What rounding with error feedback brings on real models.

``python -m experiments.rounding OUT.json MODEL ... [--mixes 24] [--samples 16]`` builds each model with the nearest
integers and with those of GPTQ: in uniform recipes, with weights alone or activations alone on few bits, and with
regions that are drawn at random. SNR is that of the worst output, and that of what the last linear operator reads:
where a model gives one or two numbers, errors cancel or do not. MODEL is ``example:digits`` or a folder of the zoo.
Nothing is timed but the rounding, in CPU seconds of one thread, as in a search.
"""

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from autoquant.api import steps
from autoquant.domain.feed import Feed
from autoquant.domain.quality import QualityMeter
from autoquant.domain.region import Assignment, Region
from autoquant.domain.scheme import RangeMethod, Rounding, Scheme, TensorFormat
from autoquant.domain.target import Target
from autoquant.model.copies import to_bytes
from autoquant.model.graph import Graph
from autoquant.model.ops import is_linear
from autoquant.model.prepared import PreparedModel
from autoquant.model.rewrite import with_outputs
from autoquant.qdq.builder import Builder
from autoquant.runtime.session import Session, open_session, ort_values
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.believe.subjects import Subject, subject_of

__all__ = ["main", "measure_rounding", "render_rounding"]

_COMPARED = (Rounding.NEAREST, Rounding.GPTQ)
_SHARES = (0.1, 0.25, 0.5, 0.8)
"""Of the regions that a mix quantizes."""
_RECIPES = {
    "channel-minmax": ("u8", "s8:channel:sym", "min-max"),
    "channel-mse": ("u8", "s8:channel:sym", "mse"),
    "tensor-minmax": ("u8", "s8:tensor:sym", "min-max"),
    "weights alone, channel": ("u16", "s8:channel:sym", "min-max"),
    "weights alone, tensor": ("u16", "s8:tensor:sym", "min-max"),
    "activations alone, minmax": ("u8", "s16:channel:sym", "min-max"),
    "activations alone, mse": ("u8", "s16:channel:sym", "mse"),
}


def measure_rounding(subject: Subject, *, n_mixes: int = 24, n_samples: int = 16) -> dict[str, Any]:
    """SNR in dB against the prepared float model: ``uniform`` by recipe and rounding, ``mixes`` with both roundings.

    Each is a dictionary with ``output`` and ``inner``. ``seconds`` are those of all weights in one format.
    """
    samples = steps.read_data(subject.model, subject.calibration)
    prepared = _with_inner(steps.prepare(subject.model, samples))
    regions, statistics_ = steps.find_regions(prepared), steps.calibrate(prepared, samples)
    schemes = [_scheme(recipe, rounding) for recipe in _RECIPES for rounding in _COMPARED]
    space = steps.fitted(replace(steps.definition_of("default", "cpu"), schemes=tuple(schemes)), [Target()])
    start = time.process_time()
    one = replace(space, schemes=(_scheme("channel-minmax", Rounding.GPTQ),))
    steps.round_weights(prepared, regions, statistics_, samples, space=one)
    seconds = time.process_time() - start
    rounder = steps.round_weights(prepared, regions, statistics_, samples, space=space)
    builder = steps.builder_of(prepared, regions, statistics_, space=space, rounder=rounder)
    feeds = steps.read_data(subject.model, subject.evaluation, role="evaluation").feeds
    names = list(prepared.graph.outputs)
    meter = _Reference(names, feeds, open_session(to_bytes(prepared.graph.model), Target()))
    uniform = {
        recipe: {r: meter.snr_db(builder, _uniform(regions, f"{recipe} {r}")) for r in _COMPARED} for recipe in _RECIPES
    }
    few = _Reference(names, feeds[:n_samples], meter.session)
    mixes = [_mix(few, builder, regions, i) for i in range(n_mixes)]
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"model": subject.name, "seconds": seconds, "peak_mb": peak_mb, "uniform": uniform, "mixes": mixes}


def _with_inner(prepared: PreparedModel) -> PreparedModel:
    """With what the last linear operator reads as another output, the last one."""
    graph = prepared.graph
    inner = [node.inputs[0] for node in graph.nodes if is_linear(node, graph)][-1]
    return replace(prepared, graph=Graph(with_outputs(graph.model, {inner: graph.shape(inner)})))


def _scheme(recipe: str, rounding: Rounding) -> Scheme:
    activation, weight, ranges = _RECIPES[recipe]
    return Scheme(
        name=f"{recipe} {rounding}",
        activation=TensorFormat.parse(f"{activation}:tensor:asym"),
        weight=TensorFormat.parse(weight),
        ranges=RangeMethod.parse(ranges),
        rounding=rounding,
    )


def _uniform(regions: Sequence[Region], scheme: str) -> Assignment:
    return {region.id: scheme for region in regions}


class _Reference:
    """The float model's outputs, held."""

    def __init__(self, names: Sequence[str], feeds: Sequence[Feed], session: Session) -> None:
        self.names, self.feeds, self.session = names, feeds, session
        self.outputs = [session.run(None, feed) for feed in feeds]

    def snr_db(self, builder: Builder, assignment: Assignment) -> dict[str, float]:
        """``output``, the worst one of a candidate, and ``inner``."""
        candidate = builder.build(assignment)
        session = open_session(candidate.skeleton, Target(), initializers=ort_values(candidate.constants))
        meter = QualityMeter(self.names)
        for feed, reference in zip(self.feeds, self.outputs, strict=True):
            meter.add(reference, session.run(None, feed))
        found = dict(meter.quality().per_output)
        inner = found.pop(self.names[-1])
        return {"output": min(found.values()), "inner": inner}


def _mix(reference: _Reference, builder: Builder, regions: Sequence[Region], number: int) -> dict[str, Any]:
    """Both roundings of a random choice of regions, at least one."""
    rng, share = np.random.default_rng(number), _SHARES[number % len(_SHARES)]
    recipe = ("channel-minmax", "channel-mse")[number // len(_SHARES) % 2]
    first = rng.integers(len(regions))
    chosen = [region for i, region in enumerate(regions) if i == first or rng.random() < share]
    found = {str(r): reference.snr_db(builder, _uniform(chosen, f"{recipe} {r}")) for r in _COMPARED}
    return {"share": share, "recipe": recipe, **found}


def render_rounding(document: Mapping[str, Any]) -> str:
    """Markdown: for each model a line with the SNR at the output and one with that inside."""
    found = sorted((part["found"] for part in document["parts"].values()), key=lambda each: str(each["model"]))
    headings = ("model", "dB", *_RECIPES, "mixes: mean gain", "mixes that gain", "CPU s", "peak MB")
    return markdown(headings, [_line(each, place) for each in found for place in ("output", "inner")])


def _line(found: Mapping[str, Any], place: str) -> list[str]:
    pairs = [found["uniform"][recipe] for recipe in _RECIPES]
    mixes = [(mix["nearest"][place], mix["gptq"][place]) for mix in found["mixes"]]
    gains = [gptq - nearest for nearest, gptq in mixes if None not in (nearest, gptq) and gptq != nearest]
    return [
        found["model"],
        place,
        *(f"{pair['nearest'][place]:.1f} → {pair['gptq'][place]:.1f}" for pair in pairs),
        f"{statistics.mean(gains or [0.0]):+.2f}",
        f"{sum(gain > 0 for gain in gains)} of {len(gains)}",
        f"{found['seconds']:.1f}",
        f"{found['peak_mb']:.0f}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every model, write and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.rounding", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("models", nargs="+", type=subject_of, metavar="MODEL")
    parser.add_argument("--mixes", type=int, default=24, help="random choices of regions")
    parser.add_argument("--samples", type=int, default=16, help="evaluation samples of each mix")
    asked = parser.parse_args(arguments)
    for subject in asked.models:
        part = new_part("experiments.rounding", mixes=asked.mixes, samples=asked.samples)
        with threadpool_limits(limits=1):
            part["found"] = measure_rounding(subject, n_mixes=asked.mixes, n_samples=asked.samples)
        write_part(asked.out, subject.name, part)
    print(render_rounding(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
