from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.api import steps
from autoquant.study.study import Study
from experiments.recipes import RECIPES
from experiments.search.scale import CHANNELS, SIDE, large_model, main, measure_scale, render_scale, timed_asks
from tests.models import feed_of, outputs_of


def test_each_block_has_six_nodes_and_adds_to_its_input() -> None:
    model = large_model(3)
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == [
        *["Conv", "Clip", "Conv", "Clip", "Conv", "Add"] * 3,
        "GlobalAveragePool",
    ]
    (output,) = outputs_of(model, feed_of(model))
    assert np.isfinite(output).all()
    assert np.ptp(output) > 0


def test_uniform_recipes_run_on_integers_and_leave_an_snr_of_use(tmp_path: Path) -> None:
    model, samples = tmp_path / "model.onnx", tmp_path / "x.npz"
    onnx.save(large_model(20), model)
    shape = (4, CHANNELS, SIDE, SIDE)
    np.savez(samples, x=np.random.default_rng(1).standard_normal(shape).astype(np.float32))
    data = steps.read_data(model, samples)
    prepared = steps.prepare(model, data)
    regions = steps.find_regions(prepared, n_regions=20)
    space = steps.definition_of("default", "cpu")
    builder = steps.builder_of(prepared, regions, steps.calibrate(prepared, data), space=space)
    candidate = builder.build({region.id: "u8s8-channel-minmax" for region in regions})
    bench = steps.open_bench(model, data)
    opened = bench.opener.open(candidate.skeleton, candidate.constants)
    expected = {node.name for node in prepared.graph.nodes if node.op_type in ("Conv", "Add")}
    assert len(expected) == 80
    assert expected <= opened.optimized.integer_nodes
    assert 10 < bench.untimed_quality(opened, 4).worst_db < 40


def test_proposals_are_timed_only_inside() -> None:
    before = Study.ask
    with timed_asks() as seconds:
        assert Study.ask is not before
    assert Study.ask is before
    assert seconds == []


@pytest.mark.slow
def test_what_was_enqueued_is_no_proposal_and_files_are_measured_beside_recipes() -> None:
    found = measure_scale(2, 6, 30.0)
    assert len(found["asks_s"]) < found["n_trials"]
    for name in found["targets"]:
        assert len(found["recipes"][name]) == len(RECIPES)
        assert all(snr_db < 100 for snr_db, _ in found["recipes"][name])
    assert len({len(points) for points in found["members"].values()}) == 1


def test_a_line_for_each_target() -> None:
    part = {
        "settings": {"seconds": 600.0},
        "n_nodes": 1501,
        "n_regions": 200,
        "targets": ["cpu-1t", "cpu-2t"],
        "n_trials": 900,
        "asks_s": [0.5] * 100 + [0.2] * 50,
        "peak_mb": 300.4,
        "peak_measuring_mb": 200.0,
        "recipes": {"cpu-1t": [(12.0, 0.5)], "cpu-2t": []},
        "members": {"cpu-1t": [(60.0, 0.5)], "cpu-2t": [(60.0, 0.9)]},
    }
    lines = render_scale({"parts": {"250-200": part}}).splitlines()
    assert lines[2:] == [
        "| 1501 | 200 | cpu-1t | 600 | 900 | 200 | 200 | 300 | 200 | 0.045 | 0.500 |",
        "| 1501 | 200 | cpu-2t | 600 | 900 | 200 | 200 | 300 | 200 | 0.000 | 0.100 |",
    ]


def test_a_time_that_is_none_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "scale.json"), "--time", "soon"]) == 2
    assert "soon" in capsys.readouterr().err
