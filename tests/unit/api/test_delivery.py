import math
from dataclasses import fields, replace
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace
from typing import Any

import pytest

from autoquant.api.delivery import Delivery, _likely_sentences, _lost_sentences, _process_sentences
from autoquant.api.finalists import Finalist
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.division import Division
from autoquant.domain.measurement import Believed, Evaluation, Quality, SnrInterval
from autoquant.domain.objective import DEFAULT_OBJECTIVES, NO_BOUNDS, Bounds, Objectives, Standing
from autoquant.measurement.costs import FileCosts
from autoquant.measurement.measured import Judged, Measured
from autoquant.metrics.grammar import parse_metrics
from autoquant.model.source import SourceFiles
from autoquant.space.schema import read_space
from tests.records import a_latency, a_measured, a_metric


def standing(ratio: float, *, spread: float = 0.5, snr_db: float = 40.0) -> Standing:
    quality = Quality(per_output={"y": snr_db}, agreement={}, n_samples=4)
    return Standing(quality=quality, latency={"cpu-1t": a_latency(ratio, spread=spread)}, size_bytes=1, drops={})


def test_models_that_are_likely_to_be_faster_are_counted() -> None:
    found = {"a": standing(0.8), "b": standing(0.7), "slow": standing(1.2)}
    (said,) = _likely_sentences(found, NO_BOUNDS, is_late=True)
    assert said.startswith("of the measured models 2 had a lower median than float, the lowest 0.70 of it, but none")
    assert said.endswith(": give more time, or search again where nothing else runs")
    (said,) = _likely_sentences(found, NO_BOUNDS, is_late=False)
    assert said.endswith("there): search again where nothing else runs")
    assert list(_likely_sentences({"slow": standing(1.2), "level": standing(0.996)}, NO_BOUNDS, is_late=True)) == []
    assert list(_likely_sentences(found, Bounds(min_snr_db=50), is_late=True)) == []


@pytest.mark.parametrize(("n_sessions", "n_said"), [(1, 1), (2, 0)])
def test_intervals_of_one_process_are_told(n_sessions: int, n_said: int) -> None:
    latency = replace(a_latency(1.0), n_sessions=n_sessions)
    baseline = Measured(judged=Judged(), latency={"cpu-1t": latency}, footprint={}, ratio={})
    assert len(list(_process_sentences(baseline))) == n_said


def test_why_files_cannot_be_delivered_is_told_once_a_reason() -> None:
    lost = {"t1": "metric 'hits' returned nan", "t2": "metric 'hits' returned nan", "t3": "it crashed"}
    assert list(_lost_sentences(lost, 4)) == [
        "last measurement: 2 of 4 files cannot be delivered: metric 'hits' returned nan",
        "last measurement: 1 of 4 files cannot be delivered: it crashed",
    ]


def a_delivery(**known: Any) -> Delivery:
    """With nothing but what is said."""
    others: dict[str, Any] = dict.fromkeys((field.name for field in fields(Delivery)), None)
    others.update(known)
    return Delivery(**others)


def judged(snr_db: float, held_out_db: float | None, drop: float = 0.0) -> Judged:
    held_out = None if held_out_db is None else SnrInterval(worst_db=held_out_db, n_samples=2, low_db=0, high_db=90)
    quality = Quality(per_output={"y": snr_db}, agreement={}, n_samples=4)
    return Judged(quality=quality, snr_held_out=held_out, metrics={"top1": a_metric(0.9, drop)})


@pytest.mark.parametrize(
    ("n_held_out", "refined", "superseded"),
    [
        (2, judged(30, 45), "t1"),
        (2, judged(50, 35), "t1-refined"),
        (2, judged(50, None), "t1-refined"),
        (0, judged(50, None), "t1"),
        (2, judged(50, 45, drop=0.2), "t1-refined"),
    ],
    ids=["better", "worse on held-out samples", "not run on them", "none held out", "drops more than is allowed"],
)
def test_a_refined_version_stays_where_held_out_samples_and_demands_say_so(
    tmp_path: Path, n_held_out: int, refined: Judged, superseded: str
) -> None:
    plain = judged(40, 40 if n_held_out else None)
    paths = {name: tmp_path / f"{name}.onnx" for name in ("t1", "t1-refined")}
    finalists = {}
    for name, path in paths.items():
        path.write_bytes(b"")
        plain_id = "t1" if name == "t1-refined" else None
        finalists[name] = Finalist(
            evaluation=a_measured(), path=path, sha256="", size_bytes=0, algorithms=(), plain=plain_id
        )
    bounds = Bounds(max_drops={"top1": 0.1})
    delivery = a_delivery(division=Division(n_search=2, n_held_out=n_held_out), bounds=bounds, notes=[])
    said: list[str] = []
    for _ in range(2):  # a measurement may have to begin anew
        assert delivery._superseded(finalists, said, {"t1": plain, "t1-refined": refined}) == [superseded]
    assert len(said) == (0 if n_held_out and refined.snr_held_out is None else 1)


def test_spares_go_by_outputs_of_files_and_by_what_is_believed_of_latencies(tmp_path: Path) -> None:
    finalists, believed = {}, {}
    for number, (measured, ratio) in enumerate([(0.5, 0.6), (0.6, 0.5), (0.7, 0.7)]):
        path = tmp_path / f"t{number}.onnx"
        path.write_bytes(b"")
        evaluation = a_measured(number, snr_db=70.0 - number, ratio=measured)
        finalists[path.stem] = Finalist(evaluation=evaluation, path=path, sha256="", size_bytes=0, algorithms=())
        believed[number] = Believed(snr_db=40.0, ratios=(ratio,))
    delivery = a_delivery(objectives=DEFAULT_OBJECTIVES, bounds=NO_BOUNDS, believed=believed)
    found = {"t0": judged(30, None), "t1": judged(31, None), "t2": judged(32, None)}
    assert delivery._spares(finalists, found, {}) == ["t0"]
    assert delivery._spares(finalists, {"t0": found["t0"]}, {}) == []
    assert delivery._spares(finalists, found, {"t1": {"cpu-1t": [0.66]}}) == ["t0"], "0.58 in the mean"
    assert delivery._spares(finalists, found, {"t1": {"cpu-1t": [0.84]}}) == [], "0.67 in the mean"
    assert delivery._spares(finalists, found, {"t1": {"cpu-1t": [0.84, 0.84]}}) == ["t1"], "0.73 in the mean"


@pytest.mark.parametrize(("has_refiner", "why"), [(False, "all ranges are dynamic"), (True, "there was no time, or")])
def test_a_search_that_refines_says_where_nothing_was_refined(tmp_path: Path, has_refiner: bool, why: str) -> None:
    written = {
        "t1": Finalist(evaluation=a_measured(), path=tmp_path / "t1.onnx", sha256="", size_bytes=0, algorithms=())
    }
    finalists = SimpleNamespace(
        ingredients=SimpleNamespace(definition=SimpleNamespace(accuracy=Accuracy.FULL, schemes=())),
        refine=(lambda _: None) if has_refiner else None,
        write=lambda *_, **__: written,
    )
    source = tmp_path / "model.onnx"
    source.write_bytes(b"")
    delivery = a_delivery(
        source=SourceFiles({}, 0, {}),
        prepared=SimpleNamespace(source=source),
        facts=SimpleNamespace(float_s={"cpu-1t": 0.01}),
        finalists=finalists,
        objectives=DEFAULT_OBJECTIVES,
        bounds=NO_BOUNDS,
        notes=[],
    )
    assert delivery._write_finalists([], math.inf) == written
    (note,) = delivery.notes
    assert note.startswith(f"refinement: no finalist has a refined version: {why}")


def test_places_are_spelled_alike_on_every_system() -> None:
    delivery = a_delivery(folder=SimpleNamespace(path=PureWindowsPath("C:/run")))
    assert delivery._place(PureWindowsPath("C:/run/models/t1.onnx")) == "models/t1.onnx"


@pytest.mark.parametrize(
    ("objectives", "bounds", "numbers"),
    [
        (DEFAULT_OBJECTIVES, NO_BOUNDS, [1, 0]),
        (Objectives(metrics=(parse_metrics(["top1"])[0],)), NO_BOUNDS, [0]),
        (DEFAULT_OBJECTIVES, Bounds(max_drops={"top1": 0.1}), [0]),
    ],
    ids=["plain", "a metric", "a drop"],
)
def test_what_runs_the_kernels_of_a_timed_candidate_may_be_a_finalist_unless_drops_count(
    tmp_path: Path, objectives: Objectives, bounds: Bounds, numbers: list[int]
) -> None:
    source = tmp_path / "model.onnx"
    source.write_bytes(b"")
    schemes = read_space("default", ep="cpu").schemes
    chosen: list[Evaluation] = []

    def write(found: list[Evaluation], *_: float, **__: object) -> dict[str, Finalist]:
        chosen.extend(found)
        return {}

    delivery = a_delivery(
        source=SourceFiles({}, 0, {}),
        prepared=SimpleNamespace(source=source),
        facts=SimpleNamespace(float_s={"cpu-1t": 0.01}),
        finalists=SimpleNamespace(
            ingredients=SimpleNamespace(definition=SimpleNamespace(accuracy=Accuracy.NONE, schemes=schemes)),
            refine=None,
            write=write,
        ),
        costs=FileCosts(n_samples=4, opening_s=0.1),
        objectives=objectives,
        bounds=bounds,
        believed={},
        notes=[],
    )
    timed = a_measured(0, snr_db=14.0, assignment={"r0": "u8s8-channel-minmax"}, drops={"top1": 0.05})
    untimed = a_measured(1, ratio=None, snr_db=18.0, assignment={"r0": "u8s8-channel-mse"})
    delivery._write_finalists([timed, untimed], math.inf)
    assert [evaluation.trial.number for evaluation in chosen] == numbers
