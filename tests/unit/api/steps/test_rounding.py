import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoquant.api.steps import build, calibrate, find_regions, prepare, read_data, round_weights
from autoquant.calibration.batches import select
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.feed import Samples
from autoquant.domain.quality import QualityMeter
from autoquant.domain.scheme import Rounding, TensorFormat
from autoquant.space.schema import read_space
from tests.models import floats, model_of, outputs_of, saved


def test_weights_that_make_up_for_each_other_are_nearer_to_float(model: Path, samples: Samples, tmp_path: Path) -> None:
    """Without optimizations: kernels that saturate would have errors of their own."""
    prepared = prepare(model, samples)
    found = find_regions(prepared)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path)
    default = read_space("default", ep="cpu", accuracy=Accuracy.NONE)
    coarse = replace(default.schemes[0], weight=TensorFormat.parse("s8:tensor:sym"))
    assignment, worst_db = {region.id: "coarse" for region in found}, []
    for rounding in Rounding:
        space = replace(default, schemes=(replace(coarse, name="coarse", rounding=rounding),))
        rounded = round_weights(prepared, found, statistics, samples, space=space)
        candidate = build(prepared, found, statistics, assignment, space=space, rounder=rounded)
        again = pickle.loads(pickle.dumps(rounded))
        assert build(prepared, found, statistics, assignment, space=space, rounder=again).digest == candidate.digest
        candidate.save(tmp_path / "made.onnx")
        meter = QualityMeter(["y"])
        for feed in samples.feeds:
            meter.add(outputs_of(model, feed), outputs_of(tmp_path / "made.onnx", feed))
        worst_db.append(meter.quality().worst_db)
    assert min(worst_db[1:]) > worst_db[0] + 1


@pytest.mark.parametrize(("weight", "won_db"), [("s4:block-32:sym", 3), ("s8:block-32:sym", 0.5)])
def test_weights_in_blocks_make_up_for_each_other_too(weight: str, won_db: float, tmp_path: Path) -> None:
    made = model_of("(float[6,96] x) => (float[6,16] y)", "y = MatMul(x, w)", {"w": floats(96, 16)})
    model = saved(made, tmp_path / "rows.onnx")
    np.savez(tmp_path / "rows.npz", x=floats(64, 6, 12) @ floats(12, 96, seed=1) + 0.1 * floats(64, 6, 96, seed=2))
    samples = read_data(model, tmp_path / "rows.npz")
    prepared = prepare(model, samples)
    (found,) = find_regions(prepared)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path)
    default = read_space("default", ep="cpu", accuracy=Accuracy.NONE)
    (blocks,) = (scheme for scheme in default.schemes if scheme.is_blockwise)
    activation, meters = TensorFormat.parse("s8:block-32:sym"), [QualityMeter(["y"]), QualityMeter(["y"])]
    for rounding, meter in zip((Rounding.NEAREST, Rounding.GPTQ), meters, strict=True):
        scheme = replace(blocks, activation=activation, weight=TensorFormat.parse(weight), rounding=rounding)
        space = replace(default, schemes=(scheme,))
        rounded = round_weights(prepared, [found], statistics, samples, space=space)
        candidate = build(prepared, [found], statistics, {found.id: scheme.name}, space=space, rounder=rounded)
        candidate.save(tmp_path / "made.onnx")
        for feed in samples.feeds:
            meter.add(outputs_of(model, feed), outputs_of(tmp_path / "made.onnx", feed))
    nearest_db, won = (meter.quality().worst_db for meter in meters)
    assert won > nearest_db + won_db


def test_without_time_weights_are_rounded_to_the_nearest_integers(
    model: Path, samples: Samples, tmp_path: Path
) -> None:
    prepared = prepare(model, samples)
    found = find_regions(prepared)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path)
    default = read_space("default", ep="cpu", accuracy=Accuracy.NONE)
    space = replace(default, schemes=(replace(default.schemes[0], rounding=Rounding.GPTQ),))
    assignment = {region.id: space.schemes[0].name for region in found}
    rounded = round_weights(prepared, found, statistics, samples, space=space, seconds=0)
    assert rounded.found == {}
    assert rounded.late == ("wa", "wb", "wc", "wy")
    candidate = build(prepared, found, statistics, assignment, space=space, rounder=rounded)
    assert candidate.digest == build(prepared, found, statistics, assignment, space=default).digest


def test_weights_that_were_rounded_are_found_again(
    model: Path, samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(model, samples)
    found = find_regions(prepared)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path)
    default = read_space("default", ep="cpu", accuracy=Accuracy.NONE)
    space = replace(default, schemes=(replace(default.schemes[0], rounding=Rounding.GPTQ),))
    given: dict[str, Any] = {"space": space, "cache_folder": tmp_path}
    first = round_weights(prepared, found, statistics, samples, **given)
    partly = round_weights(prepared, found, statistics, select(samples, [1, 0], "turned"), seconds=1e-9, **given)
    assert len(partly.found) == 1  # which was begun in time, and is of one sample alone

    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr("autoquant.rounding.rounder.WeightRounder._rounded", refuse)
    again = round_weights(prepared, found, statistics, samples, **given)
    assert again.found.keys() == first.found.keys()
    assert all(np.array_equal(again.found[key][0], first.found[key][0]) for key in first.found)
    with pytest.raises(NotImplementedError):
        round_weights(prepared, found, statistics, select(samples, [1, 0], "turned"), **given)
    monkeypatch.setattr("autoquant.api.steps.caching.runtime_version", lambda: "another")
    with pytest.raises(NotImplementedError):
        round_weights(prepared, found, statistics, samples, **given)
