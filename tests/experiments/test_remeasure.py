"""The independent measurement, on numbers worked out by hand."""

import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from experiments.remeasure import (
    DEMANDS_DB,
    FLOAT,
    Row,
    main,
    mean_saving,
    open_session,
    remeasure,
    saving_at,
    together,
    worst_snr_db,
)

SCALER = """<ir_version: 8, opset_import: ["" : 13]>
scaler (float[batch, 4] x) => (float[batch, 4] y)
<float factor = {{{factor}}}> {{ y = Mul(x, factor) }}"""


def save_scaler(path: Path, factor: float) -> Path:
    onnx.save(onnx.parser.parse_model(SCALER.format(factor=factor)), path)
    return path


def save_samples(path: Path) -> Path:
    np.savez(path, x=np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), label=np.arange(6))
    return path


def test_the_saving_at_a_demand_is_that_of_the_fastest_model_that_meets_it() -> None:
    points = [(45.0, 0.7), (22.0, 0.5), (8.0, 0.3)]
    assert saving_at(points, 45) == pytest.approx(0.3)
    assert saving_at(points, 20) == pytest.approx(0.5)


def test_nothing_is_saved_where_no_model_meets_the_demand_or_float_is_faster() -> None:
    assert saving_at([(22.0, 0.5)], 25) == 0
    assert saving_at([(50.0, 1.3)], 20) == 0
    assert saving_at([], 20) == 0


def test_the_mean_saving_averages_over_eleven_demands() -> None:
    assert len(DEMANDS_DB) == 11
    # 0.5 at 10, 15, 20; 0.3 at 25, ..., 45; 0 at 50, 55, 60
    assert mean_saving([(22.0, 0.5), (45.0, 0.7)]) == pytest.approx((3 * 0.5 + 5 * 0.3) / 11)


def test_models_equal_to_float_save_at_every_demand() -> None:
    assert mean_saving([(math.inf, 0.9)]) == pytest.approx(0.1)
    assert mean_saving(iter([])) == 0


def test_the_snr_is_pooled_over_samples_and_the_worst_output_counts() -> None:
    reference = [[np.array([3.0]), np.array([10.0])], [np.array([4.0]), np.array([0.0])]]
    quantized = [[np.array([3.5]), np.array([10.0])], [np.array([4.0]), np.array([1.0])]]
    assert worst_snr_db(reference, quantized) == pytest.approx(10 * math.log10(25 / 0.25))  # the other: 100 / 1


def test_equal_outputs_have_an_infinite_snr_and_integers_are_left_aside() -> None:
    reference = [[np.array([1.0, 2.0]), np.array([1, 2])]]
    assert worst_snr_db(reference, [[np.array([1.0, 2.0]), np.array([7, 7])]]) == math.inf


@pytest.mark.parametrize("found", [np.array([1.0]), np.array([1.0, math.nan]), np.array([1.0, math.inf])])
def test_another_shape_or_a_value_that_is_not_finite_is_worst_of_all(found: np.ndarray) -> None:
    assert worst_snr_db([[np.array([1.0, 2.0])]], [[found]]) == -math.inf


def test_noise_on_an_output_of_zeros_is_worst_of_all() -> None:
    assert worst_snr_db([[np.zeros(2)]], [[np.ones(2)]]) == -math.inf


def test_files_are_measured_against_the_float_model(tmp_path: Path) -> None:
    model, samples = save_scaler(tmp_path / "float.onnx", 2.0), save_samples(tmp_path / "samples.npz")
    files = {"same": model, "coarse": save_scaler(tmp_path / "coarse.onnx", 2.2)}
    baseline, same, coarse = remeasure(model, samples, files, rounds=5)
    assert (baseline.name, baseline.ratio, baseline.snr_db) == (FLOAT, 1, math.inf)
    assert same.snr_db == math.inf
    assert coarse.snr_db == pytest.approx(20, abs=1e-3)  # a tenth of the amplitude
    assert coarse.ratio_low <= coarse.ratio <= coarse.ratio_high


def test_without_the_snr_latencies_alone_are_measured(tmp_path: Path) -> None:
    model, samples = save_scaler(tmp_path / "float.onnx", 2.0), save_samples(tmp_path / "samples.npz")
    rows = remeasure(model, samples, {"same": model}, rounds=5, has_snr=False)
    assert all(math.isnan(row.snr_db) and row.ratio > 0 for row in rows)


def test_of_several_processes_the_median_counts_and_every_interval() -> None:
    def a_row(ratio: float, snr_db: float = math.nan) -> Row:
        return Row(
            name="a",
            snr_db=snr_db,
            median_ms=2 * ratio,
            ratio=ratio,
            ratio_low=ratio - 0.1,
            ratio_high=ratio + 0.1,
            process_ratios=(ratio,),
        )

    found = together([a_row(0.6, 40.0), a_row(0.9), a_row(0.5)])
    assert (found.snr_db, found.median_ms) == (40.0, 1.2)
    assert (found.ratio, found.ratio_low, found.ratio_high) == (0.6, 0.4, 1.0)
    assert found.process_ratios == (0.6, 0.9, 0.5)


def test_files_are_opened_in_another_order_in_each_process_and_told_in_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, samples = save_scaler(tmp_path / "float.onnx", 2.0), save_samples(tmp_path / "samples.npz")
    files = {f"{i}": save_scaler(tmp_path / f"{i}.onnx", 2.0 + i) for i in range(8)}
    opened: list[str] = []

    def opening(path: Path, threads: int) -> Any:
        opened.append(path.stem)
        return open_session(path, threads)

    monkeypatch.setattr("experiments.remeasure.open_session", opening)
    for seed in range(2):
        rows = remeasure(model, samples, files, rounds=5, seed=seed)
        assert [row.name for row in rows] == [FLOAT, *files]
    assert sorted(opened[1:9]) == sorted(opened[10:]) == sorted(files)
    assert opened[1:9] != opened[10:]


def test_a_file_that_does_not_load_is_logged_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, samples = save_scaler(tmp_path / "float.onnx", 2.0), save_samples(tmp_path / "samples.npz")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    assert [row.name for row in remeasure(model, samples, {"broken": broken}, rounds=5)] == [FLOAT]
    assert "broken doesn't run" in caplog.text


def test_the_name_of_the_float_model_is_taken(tmp_path: Path) -> None:
    model, samples = save_scaler(tmp_path / "float.onnx", 2.0), save_samples(tmp_path / "samples.npz")
    with pytest.raises(ValueError, match="can't be named 'float'"):
        remeasure(model, samples, {FLOAT: model})


def test_an_input_without_data_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", z=np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match="has no array for x"):
        remeasure(save_scaler(tmp_path / "float.onnx", 2.0), tmp_path / "samples.npz", {})


def test_nothing_is_measured_in_a_process_that_has_loaded_autoquant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "autoquant", ModuleType("autoquant"))
    with pytest.raises(AssertionError, match="autoquant is loaded"):
        main()
