import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoquant.domain.division import Division
from autoquant.measurement.costs import LEAST_ROUNDS, TimingCosts
from autoquant.measurement.judging import Judging, Wishes
from autoquant.measurement.latency import REFERENCE
from autoquant.measurement.measured import Judged
from tests.benches import FixedScorer
from tests.models import Array, floats, model_of, saved
from tests.unit.measurement.joints import FEEDS, N_FEEDS, measurement


def test_what_outputs_say_is_superseded_is_not_timed(files: dict[str, Path]) -> None:
    def superseded(judged: Mapping[str, Judged]) -> list[str]:
        qualities = {key: found.quality for key, found in judged.items()}
        return [key for key, quality in qualities.items() if quality is not None and quality.worst_db < math.inf]

    final = measurement(files, n_sessions=2)
    final.wishes = Wishes(superseded=superseded)
    found = final.run()
    assert found.keys() == {"same", REFERENCE}
    assert found["same"].latency["cpu-2t"].n_sessions == 2
    assert all(round_.seconds.keys() == {"same", REFERENCE} for _, _, round_ in final.rounds)


@pytest.mark.parametrize(
    ("n_affordable", "expected"), [(0, ["same"]), (1, ["same"]), (2, ["same", "other"]), (3, None)]
)
def test_spares_are_timed_where_there_is_time(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, n_affordable: int, expected: list[str] | None
) -> None:
    monkeypatch.setattr(TimingCosts, "n_timed", lambda *_: n_affordable)
    final = measurement({**files, "third": files["same"]}, seconds=60.0, n_sessions=1)
    final.wishes = Wishes(spares=lambda judged, _: [key for key in ("other", "third") if key in judged])
    kept = expected or ["same", "other", "third"]
    assert list(final.run()) == [*kept, REFERENCE]
    left_out = 3 - len(kept)
    said = f"left out without being timed, as time is short and others should beat them: {left_out} of 3 files"
    assert (said in final.notes) == (left_out > 0)


def test_one_file_is_timed_though_all_are_spares(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimingCosts, "n_timed", lambda *_: 0)
    final = measurement(files, seconds=60.0, n_sessions=1)
    final.wishes = Wishes(spares=lambda judged, _: list(judged))
    assert list(final.run()) == ["same", REFERENCE]


def test_without_a_limit_of_time_all_spares_are_timed(files: dict[str, Path]) -> None:
    final = measurement(files, n_sessions=1)
    final.wishes = Wishes(spares=lambda judged, _: list(judged))
    assert list(final.run()) == ["same", "other", REFERENCE]


def test_held_out_data_of_their_own_are_not_in_the_snr(files: dict[str, Path]) -> None:
    final = measurement(files, n_sessions=1)
    final.division = Division(n_search=4, n_held_out=3, is_pooled=False)
    quality = final.run()["other"].judged.quality
    assert quality is not None
    assert quality.n_samples == 4


def test_without_time_one_file_is_scored(files: dict[str, Path]) -> None:
    final = measurement(files, n_sessions=1, seconds=-1)
    final.setup = replace(final.setup, make_scorer=FixedScorer)
    assert list(final.run()) == ["same", REFERENCE]


def test_files_that_metrics_leave_no_time_for_are_counted(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Judging, "_leave_out_late", lambda *_: None)
    final = measurement(files, n_sessions=1, seconds=-1)
    final.setup = replace(final.setup, make_scorer=FixedScorer)
    assert list(final.run()) == ["same", REFERENCE]
    assert "there was no time for the metrics of 1 of 2 files, which are left out; give more time" in final.notes


def test_who_wants_no_more_waits_for_the_metrics_of_one_file(files: dict[str, Path]) -> None:
    final = measurement(files, n_sessions=1)
    final.setup = replace(final.setup, make_scorer=FixedScorer)
    final.is_ended = lambda: True
    assert list(final.run()) == ["same", REFERENCE]
    assert "left out, as the user wanted no more: the metrics of 1 of 2 files" in final.notes


@pytest.mark.parametrize(("division", "n_compared"), [(Division(n_search=6, n_held_out=1), 6), (None, N_FEEDS)])
def test_metrics_have_the_samples_of_a_search_whoever_wants_it_to_end(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, division: Division | None, n_compared: int
) -> None:
    monkeypatch.setattr("autoquant.measurement.judging.CHUNK_S", 0.0)
    final = measurement(files, n_sessions=1)
    final.setup, final.division = replace(final.setup, make_scorer=FixedScorer), division
    final.is_ended = lambda: True
    (metric,) = final.run()["same"].judged.metrics.values()
    assert metric.value.all.value == n_compared


def test_a_file_that_fails_on_a_later_sample_is_dropped_with_its_reason(files: dict[str, Path], tmp_path: Path) -> None:
    """It looks up a place that is there for the first sample and not for larger ones."""
    largest = float(FEEDS[0]["x"].max()) + 1e-3
    assert max(float(feed["x"].max()) for feed in FEEDS) > largest
    body = """m = ReduceMax<keepdims=0>(x) is_larger = Greater(m, largest) place = Cast<to=7>(is_larger)
              z = Gather(zero, place) p = GlobalAveragePool(x) f = Flatten(p) g = Gemm(f, w) y = Add(g, z)"""
    constants: dict[str, Array | float] = {"largest": largest, "zero": np.zeros(1, np.float32), "w": floats(3, 5)}
    model = model_of("(float[1,3,8,8] x) => (float[1,5] y)", body, constants)
    final = measurement({**files, "other": saved(model, tmp_path / "late.onnx")})
    final.setup = replace(final.setup, sample_names=[f"a.npz, sample {10 + index}" for index in range(len(FEEDS))])
    assert final.run().keys() == {"same", REFERENCE}
    first = next(index for index, feed in enumerate(FEEDS) if float(feed["x"].max()) > largest)
    assert f"onnxruntime cannot run it on a.npz, sample {10 + first}:" in final.lost["other"]


def test_all_files_are_compared_on_as_many_samples_as_their_share_of_the_time_allows(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.measurement.judging.CHUNK_S", 0.0)
    final = measurement(files, n_sessions=1, seconds=600)
    final.wishes = Wishes(comparing_share=0.0)
    found = final.run()
    for key in ("same", "other"):
        quality = found[key].judged.quality
        assert quality is not None
        assert quality.n_samples == LEAST_ROUNDS
    why = "there was no time for more; give more time"
    assert final.notes.count(f"outputs were compared on {LEAST_ROUNDS} of the {N_FEEDS} samples: {why}") == 1


def test_where_the_share_of_the_time_is_enough_every_sample_is_compared(files: dict[str, Path]) -> None:
    final = measurement(files, n_sessions=1, seconds=600)
    final.wishes = Wishes(comparing_share=0.25)
    quality = final.run()["other"].judged.quality
    assert quality is not None
    assert quality.n_samples == N_FEEDS
    assert not any("outputs were compared on" in note for note in final.notes)


@pytest.mark.parametrize(("long_share", "first_left"), [(0.1, 2 * N_FEEDS - 2), (0.0, 2 * N_FEEDS - 1)])
def test_the_first_sample_leaves_out_files_only_where_it_takes_long(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, long_share: float, first_left: int
) -> None:
    """All is new to it: on a busy machine 15 of 20 files were left out by what it took."""
    asked: list[int] = []
    monkeypatch.setattr("autoquant.measurement.judging.CHUNK_S", 0.0)
    monkeypatch.setattr("autoquant.measurement.judging._LONG_SHARE", long_share)
    monkeypatch.setattr(Judging, "_leave_out_late", lambda *arguments: asked.append(arguments[-1]))
    final = measurement(files, n_sessions=1, seconds=600)
    final.run()
    assert asked[0] == first_left
    assert asked[-1] == 0
