"""The pure parts of the benchmark: intervals, the table, merging, samples; and its trials in this process."""

import json
import shutil
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import optuna
import pytest

from autoquant.api import isolated
from autoquant.domain.feed import Feed, Samples
from autoquant.domain.region import RegionId
from autoquant.domain.space import SearchSpace
from autoquant.examples import example
from experiments.bench import speed
from experiments.bench.direct import DirectWorker
from experiments.bench.floor import floor_lines, measure_floor
from experiments.bench.isolation import measure_isolation, measure_leaks
from experiments.bench.lines import (
    Interval,
    Line,
    interval_of,
    line_from,
    paired_ratio,
    ratio_of_medians,
    ratio_of_sums,
    render_table,
)
from experiments.bench.optuna_loop import Front, run_loop
from experiments.bench.passes import perturbed
from experiments.bench.speed import PARTS, lines_of, main, merge
from experiments.bench.subject import new_assignments, open_subject

ROOT = Path(__file__).parents[2]
CLASSIFIER = """<ir_version: 8, opset_import: ["" : 13]>
classifier (float[1, 8] x) => (float[1, 4] y)
{ h = MatMul(x, w)
  y = Relu(h) }"""


def a_line(value: float = 1.2, *, at_most: bool = True, bound: float = 1.3) -> Line:
    return Line(
        name="floor",
        text="a trial against its floor",
        bound=bound,
        at_most=at_most,
        measured=Interval(value, value - 0.1, value + 0.1),
        unit="x",
        note="40 trials",
    )


def test_a_paired_ratio_is_the_median_of_the_ratios_inside_its_interval() -> None:
    found = paired_ratio([2.0, 4.0, 9.0, 4.0], [1.0, 2.0, 3.0, 2.0])
    assert found.value == 2.0
    assert found.low <= found.value <= found.high


def test_a_ratio_of_sums_gives_long_pairs_their_weight() -> None:
    assert ratio_of_sums([1.0, 30.0], [1.0, 10.0]).value == pytest.approx(31 / 11)


def test_a_ratio_of_medians_takes_samples_of_unlike_size_and_is_certain_where_nothing_varies() -> None:
    assert ratio_of_medians([6.0, 6.0, 6.0], [2.0, 2.0]) == Interval(3.0, 3.0, 3.0)


def test_an_interval_repeats_with_its_seed() -> None:
    samples = [1.0, 2.0, 5.0, 3.0], [1.0, 1.5, 2.0, 1.0]
    assert paired_ratio(*samples, seed=3) == paired_ratio(*samples, seed=3)


@pytest.mark.parametrize(("value", "at_most", "holds"), [(1.3, True, True), (1.31, True, False), (1.31, False, True)])
def test_a_line_holds_up_to_its_bound(value: float, at_most: bool, holds: bool) -> None:
    assert a_line(value, at_most=at_most).holds is holds


def test_the_table_says_demand_measured_interval_and_whether_it_holds() -> None:
    table = render_table([a_line(), a_line(25.0, at_most=False, bound=100.0)])
    rows = table.splitlines()
    assert rows[2] == "| a trial against its floor | at most 1.3 x | 1.20 x | 1.10 to 1.30 | yes | 40 trials |"
    assert "| at least 100 x | 25.0 x | 24.9 to 25.1 | **no** |" in rows[3]


def test_what_was_measured_once_has_no_interval_in_the_table() -> None:
    line = line_from({**asdict(a_line()), "measured": asdict(interval_of(1.0))})
    assert "| once |" in render_table([line])


def test_a_line_survives_json() -> None:
    assert line_from(json.loads(json.dumps(asdict(a_line())))) == a_line()


def test_merging_replaces_parts_and_keeps_the_order_of_the_table() -> None:
    old = {"parts": {"evaluations": {"lines": []}, "floor": {"lines": [asdict(a_line(9.0))]}}}
    new = merge(old, {"floor": {"lines": [asdict(a_line())]}, "overhead": {"lines": []}}, {"id": "abc"})
    assert list(new["parts"]) == [name for name in PARTS if name in ("overhead", "floor", "evaluations")]
    assert lines_of(new) == [a_line()]
    assert new["environments"] == {"abc": {"id": "abc"}}


def test_each_half_of_the_trials_has_a_line_of_its_own() -> None:
    ones = [1.0] * 4
    raw = {"trials_s": [2.0, 2.0, 3.0, 3.0], "inference_s": ones, "n_inferences": ones, "opening_s": ones}
    assert [line.measured.value for line in floor_lines(raw)] == [1.25, 1.0, 1.5]
    assert [line.holds for line in floor_lines(raw)] == [True, True, False]


def test_the_page_of_speeds_has_the_lines_of_its_report() -> None:
    document = json.loads((ROOT / "reports/speed/2026-11-21/speed.json").read_text(encoding="utf-8"))
    floor = document["parts"]["floor"]
    assert render_table(map(line_from, floor["lines"])) == render_table(floor_lines(floor["raw"]))
    assert render_table(lines_of(document)) in (ROOT / "docs/results/speed.md").read_text(encoding="utf-8")


def test_random_assignments_are_all_different_and_allowed() -> None:
    choices = {RegionId("a"): ("float", "u8"), RegionId("b"): ("float",), RegionId("c"): ("float", "u8", "u16")}
    found = list(islice(new_assignments(SearchSpace(choices=choices, schemes={})), 6))
    assert len({tuple(assignment.values()) for assignment in found}) == 6
    assert all(name in choices[region] for assignment in found for region, name in assignment.items())


def test_further_samples_are_perturbed_and_the_first_ones_are_not() -> None:
    feeds: tuple[Feed] = ({"x": np.ones(3, np.float32), "n": np.arange(2)},)
    samples = Samples(feeds=feeds, feed_digests=("",), names=("",), labels={}, digest="", source="")
    found = list(perturbed(samples, 3))
    assert found[0] is feeds[0]
    assert not np.array_equal(found[1]["x"], found[2]["x"])
    assert all(feed["x"].dtype == np.float32 and np.array_equal(feed["n"], [0, 1]) for feed in found)


def test_the_plain_front_deletes_what_is_beaten(tmp_path: Path) -> None:
    front, files = Front(), [tmp_path / f"{i}.onnx" for i in range(4)]
    for file, point in zip(files, [(30.0, 0.5), (20.0, 0.6), (40.0, 0.7), (45.0, 0.5)], strict=True):
        file.touch()
        front.add(*point, file)
    assert [path for _, _, path in front.members] == [files[3]]
    assert [file.exists() for file in files] == [False, False, False, True]


def test_the_plain_loop_measures_and_leaves_its_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(CLASSIFIER)
    model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=(8, 4)).astype(np.float32), "w"))
    onnx.save(model, tmp_path / "model.onnx")
    for name in ("calib", "eval"):
        np.savez(tmp_path / f"{name}.npz", x=rng.normal(size=(4, 8)).astype(np.float32))
    monkeypatch.setattr(optuna.logging, "set_verbosity", lambda _: None)
    model_path, calibration, evaluation = (tmp_path / name for name in ("model.onnx", "calib.npz", "eval.npz"))
    found = run_loop(model_path, calibration, evaluation, tmp_path / "out", seconds=0)
    assert (found["n_trials"], found["n_failed"]) == (1, 0)
    assert [(tmp_path / "out" / name).exists() for _, _, name in found["front"]] == [True]


def test_a_folder_without_the_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["speed", str(tmp_path), str(tmp_path / "out.json")])
    assert main() == 2
    assert "has no model.onnx" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_what_was_measured_is_written_before_a_later_part_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(folder: Path) -> Any:
        raise RuntimeError("no memory")

    monkeypatch.setattr(speed, "measure_leaks", lambda: ([a_line()], {"seen": [1]}))
    monkeypatch.setattr(speed, "measure_memory", failing)
    model, out = tmp_path / speed.MODEL / "model.onnx", tmp_path / "out.json"
    model.parent.mkdir()
    model.touch()
    monkeypatch.setattr("sys.argv", ["speed", str(tmp_path), str(out), "--part", "leaks", "memory"])
    with pytest.raises(RuntimeError, match="no memory"):
        main()
    document = json.loads(out.read_text(encoding="utf-8"))
    assert document["parts"].keys() == {"leaks"}
    assert lines_of(document) == [a_line()]
    assert document["model"]["name"] == speed.MODEL


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """The embedded example, as the zoo has its models."""
    own, folder = example("digits"), tmp_path / "digits"
    folder.mkdir()
    for source, name in ((own.model, "model.onnx"), (own.calibration, "calib.npz"), (own.evaluation, "eval.npz")):
        shutil.copyfile(source, folder / name)
    return folder


def test_a_worker_without_a_process_evaluates_assignments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "Worker", DirectWorker)
    _, raw = measure_leaks(2)
    assert [seen["n_trials"] for seen in raw["seen"]] == [1, 2]


def test_trials_in_this_process_and_in_their_own_take_turns(digits: Path, tmp_path: Path) -> None:
    _, raw = measure_isolation(open_subject(digits, tmp_path / "cache"), n_trials=2)
    assert {name: len(seconds) for name, seconds in raw["seconds"].items()} == {"here": 2, "there": 2}


def test_trials_of_a_search_are_watched_from_inside(digits: Path, tmp_path: Path) -> None:
    _, raw = measure_floor(digits, tmp_path / "cache", n_trials=3)
    assert {name: len(values) for name, values in raw.items()} == dict.fromkeys(raw, 3)
    assert all(n > 0 for n in raw["n_inferences"])
