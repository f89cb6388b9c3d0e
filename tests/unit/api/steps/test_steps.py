from dataclasses import replace
from pathlib import Path

from autoquant.api.steps import build, calibrate, find_regions, measure, prepare
from autoquant.domain.feed import Samples
from autoquant.domain.measurement import Measurement
from autoquant.domain.target import Target
from autoquant.measurement.bench import Bench
from autoquant.space.schema import read_space


def test_the_steps_lead_from_a_model_to_a_measurement(model: Path, samples: Samples, tmp_path: Path) -> None:
    prepared = prepare(model, samples)
    found = find_regions(prepared, n_regions=3)
    assert 1 < len(found) <= 3
    seen: list[int] = []
    statistics = calibrate(prepared, samples, cache_folder=tmp_path / "cache", on_sample=seen.append)
    assert len(seen) == len(samples)
    assert (
        calibrate(prepared, samples, cache_folder=tmp_path / "cache", on_sample=seen.append).digest == statistics.digest
    )
    assert len(seen) == len(samples)
    bench = Bench(model, [Target()], samples.feeds)

    everything = measure(bench, build(prepared, found, statistics, {}), {}, found)
    assert isinstance(everything, Measurement)
    assert everything.quality.worst_db > 80
    assert set(everything.effective.values()) == {"float"}

    scheme = read_space("default", ep="cpu").schemes[0].name
    assignment = {region.id: scheme for region in found}
    candidate = build(prepared, found, statistics, assignment)
    quantized = measure(bench, candidate, assignment, found)
    assert isinstance(quantized, Measurement)
    assert 10 < quantized.quality.worst_db < 80
    assert quantized.digest != everything.digest
    known = replace(quantized, size_bytes=1)
    assert measure(bench, candidate, assignment, found, known={quantized.digest: known}) == quantized
