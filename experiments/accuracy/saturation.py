"""What products in 16 bits cost where the processor adds them so, and what exact ones do.

``python -m experiments.accuracy.saturation OUT.json MODEL [MODEL ...] [--ranges percentile-99.999 dynamic]`` measures
uniform candidates, whose weights are s8 on the scales of their extremes, s8 on scales at which nothing saturates, and
u8, for which kernels are exact on every processor: SNR on the evaluation samples, and the latency ratio to float,
interleaved. On a processor that does not saturate the first two have equal kernels, and the second coarser weights.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autoquant.api import steps
from autoquant.domain.measurement import Failure
from autoquant.domain.scheme import DType, Granularity, RangeMethod, Scheme, TensorFormat
from autoquant.domain.target import Target
from autoquant.measurement.saturation import is_saturating
from autoquant.space.resolve import resolve
from autoquant.space.schema import read_space
from experiments.believe.document import markdown, new_part, read_document, write_part
from experiments.believe.subjects import Subject, subject_of

__all__ = ["main", "measure", "render"]

_WEIGHTS = ("s8:channel:sym", "s8:channel:sym:unsaturated", "u8:channel:sym")
_N_ROUNDS = 20


def measure(subject: Subject, ranges: RangeMethod, cache: Path) -> Iterator[dict[str, Any]]:
    """One candidate for each way to keep weights, none where nothing can be quantized."""
    space = read_space("default", ep="cpu")
    definition = replace(space, schemes=tuple(_scheme(text, ranges) for text in _WEIGHTS), rules=())
    calibration = steps.read_data(subject.model, subject.calibration)
    evaluation = steps.read_data(subject.model, subject.evaluation, role="evaluation")
    prepared = steps.prepare(subject.model, calibration)
    regions = steps.find_regions(prepared, space=definition)
    statistics = steps.calibrate(prepared, calibration, space=definition, cache_folder=cache)
    builder = steps.builder_of(prepared, regions, statistics, space=definition)
    bench = steps.open_bench(subject.model, evaluation, targets=(Target(),))
    for scheme in definition.schemes:
        assignment = resolve(definition, regions).uniform(scheme.name)
        if not assignment:
            return
        found = steps.measure(bench, builder.build(assignment), assignment, regions, n_rounds=_N_ROUNDS)
        if isinstance(found, Failure):
            raise RuntimeError(f"{subject.name}, {scheme.name}: {found.reason}")
        (latency,) = found.latency.values()
        yield {
            "weight": str(scheme.weight),
            "ranges": str(ranges),
            "snr_db": found.quality.worst_db,
            "ratio": latency.ratio,
            "ratio_low": latency.ratio_low,
            "ratio_high": latency.ratio_high,
        }


def _scheme(weight: str, ranges: RangeMethod) -> Scheme:
    activation = TensorFormat(dtype=DType.U8, granularity=Granularity.TENSOR)
    return Scheme(name=weight, activation=activation, weight=TensorFormat.parse(weight), ranges=ranges)


def render(document: Mapping[str, Any]) -> str:
    """A line for each model and way to choose ranges: SNR and ratio of each way to keep weights."""
    rows = []
    for model, part in document.get("parts", {}).items():
        for ranges in dict.fromkeys(record["ranges"] for record in part["candidates"]):
            found = {record["weight"]: record for record in part["candidates"] if record["ranges"] == ranges}
            texts = [f"{found[weight]['snr_db']:.1f} dB at {found[weight]['ratio']:.2f}" for weight in _WEIGHTS]
            rows.append([model, ranges, "yes" if part["is_saturating"] else "no", *texts])
    return markdown(["model", "ranges", "saturates", *_WEIGHTS], rows)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.accuracy.saturation", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file, with a part for each model")
    parser.add_argument("models", type=subject_of, nargs="+", help="example:digits, or folders of the zoo")
    parser.add_argument("--ranges", type=RangeMethod.parse, nargs="+", default=[RangeMethod.parse("percentile-99.999")])
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write after each model, and print."""
    asked = _parse(arguments)
    for subject in asked.models:
        part = new_part("experiments.accuracy.saturation")
        part["is_saturating"] = is_saturating(Target())
        with TemporaryDirectory(prefix="saturation-") as cache:
            part["candidates"] = [record for ranges in asked.ranges for record in measure(subject, ranges, Path(cache))]
        write_part(asked.out, subject.name, part)
    print(render(read_document(asked.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
