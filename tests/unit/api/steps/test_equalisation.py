from pathlib import Path

from autoquant.api.steps import calibrate, equalise, find_regions, prepare
from autoquant.domain.feed import Samples


def test_a_rescaled_model_has_the_same_regions_and_is_calibrated_anew(
    model: Path, samples: Samples, tmp_path: Path
) -> None:
    prepared = prepare(model, samples)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path / "cache")
    found = equalise(prepared, statistics)
    assert found.tensors
    assert find_regions(found.prepared) == find_regions(prepared)
    again = calibrate(found.prepared, samples, cache_folder=tmp_path / "cache")
    assert again.tensors.keys() == statistics.tensors.keys()
    assert again.digest != statistics.digest
    before, after = statistics.channels, again.channels
    changed = {name for name, seen in after.items() if (seen.maximum != before[name].maximum).any()}
    assert changed
    assert changed <= set(found.tensors)
