from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoquant.api.configuration import Budget, Configuration, Demands
from autoquant.api.data import SearchData, read_search_data
from autoquant.domain.division import Division
from autoquant.domain.feed import InputSignature
from autoquant.domain.target import Target
from autoquant.errors import DataError, MetricError
from autoquant.metrics.grammar import parse_metrics
from tests.models import floats

INPUTS = (InputSignature("x", "float32", ("N", 4)),)


def arrays(n: int, seed: int, **more: object) -> dict[str, Any]:
    return {"x": floats(n, 4, seed=seed), **more}


def saved(path: Path, **content: Any) -> Path:
    np.savez(path, **content)
    return path


def data_of(tmp_path: Path, *, metrics: tuple[str, ...] = (), batch: int = 1, **sources: Any) -> SearchData:
    """Sources are arrays of files, or sources themselves."""
    files = {
        name: saved(tmp_path / f"{name}.npz", **source) if isinstance(source, dict) else source
        for name, source in sources.items()
    }
    asked = Configuration(
        model=Path("model.onnx"),
        calibration=files["calibration"],
        evaluation=files.get("evaluation"),
        held_out=files.get("held_out"),
        labels=files.get("labels"),
        metrics=parse_metrics(metrics),
        targets=(Target(batch=batch),),
        budget=Budget(seconds=1),
        demands=Demands(),
        out=Path("run"),
        space="default",
        n_regions=9,
    )
    return read_search_data(asked, INPUTS)


def test_enough_evaluation_samples_are_divided_whatever_their_order(tmp_path: Path) -> None:
    content = arrays(20, 2, label=np.arange(20))
    data = data_of(tmp_path, calibration=arrays(8, 1), evaluation=content)
    assert data.held_out is not None
    assert (len(data.calibration), len(data.search), len(data.held_out)) == (8, 10, 10)
    assert data.is_pooled
    (whole,), (part,) = data.divided(10), data.divided(3)
    assert (
        whole == "the search goes by 10 of the 20 evaluation samples and holds out 10 others for the last measurement"
    )
    assert part.startswith("the search goes by 3 of the 20 evaluation samples and holds out 3 others"), (
        "no time for more"
    )
    assert not data.united.divided(10)
    turned = data_of(tmp_path, calibration=arrays(8, 1), evaluation={k: v[::-1] for k, v in content.items()})
    assert set(turned.search.feed_digests) == set(data.search.feed_digests)
    assert data.everything.feeds[0]["x"].shape == (1, 4)
    assert len(data.everything.feeds) == 28


def test_united_samples_are_those_of_the_search_and_then_what_was_held_out(tmp_path: Path) -> None:
    content = arrays(20, 2, label=np.arange(20))
    data = data_of(tmp_path, calibration=arrays(8, 1), evaluation=content)
    united = data.united
    assert (united.held_out, united.notes, united.evaluation_digest) == (None, (), data.evaluation_digest)
    assert united.division(20) == Division(n_search=20)
    assert len(united.search) == len(united.search.feed_digests) == 20
    assert list(united.search.feed_digests[:10]) == list(data.search.feed_digests)
    for feed, label in zip(united.search.feeds, united.search.labels["label"], strict=True):
        np.testing.assert_array_equal(feed["x"][0], content["x"][label])
    apart = data_of(tmp_path, calibration=arrays(8, 1), evaluation=content, held_out=arrays(6, 3))
    assert apart.united is apart


def test_samples_that_parts_share_are_refused_though_no_batch_is_shared(tmp_path: Path) -> None:
    content = floats(16, 4)
    with pytest.raises(DataError, match="16 of the 16 evaluation samples are calibration samples too"):
        data_of(tmp_path, batch=4, calibration={"x": content}, evaluation={"x": np.roll(content, 1, axis=0)})


def test_labels_go_with_their_samples(tmp_path: Path) -> None:
    content = arrays(20, 2, label=np.arange(20))
    data = data_of(tmp_path, calibration=arrays(8, 1), evaluation=content)
    division = data.division(99)
    assert division == Division(n_search=10, n_held_out=10)
    for feed, label in zip(data.feeds(division), data.labels(division)["label"], strict=True):
        np.testing.assert_array_equal(feed["x"][0], content["x"][label])
    shorter = data.division(5)
    assert shorter == Division(n_search=5, n_held_out=5)
    assert len(data.feeds(shorter)) == len(data.labels(shorter)["label"]) == 10


def test_names_go_with_their_samples(tmp_path: Path) -> None:
    content = arrays(20, 2)
    data = data_of(tmp_path, calibration=arrays(8, 1), evaluation=content)
    where = f"evaluation data {tmp_path / 'evaluation.npz'}, sample "
    for division in (data.division(99), data.division(5)):
        for feed, name in zip(data.feeds(division), data.names(division), strict=True):
            np.testing.assert_array_equal(feed["x"][0], content["x"][int(name.removeprefix(where))])
    assert tuple(data.united.search.names) == data.names(data.division(99))
    calibrating = [f"calibration data {tmp_path / 'calibration.npz'}, sample {number}" for number in range(8)]
    assert list(data.everything.names) == [*calibrating, *data.united.search.names]


def test_few_evaluation_samples_are_all_searched_on_and_a_note_says_so(tmp_path: Path) -> None:
    data = data_of(tmp_path, calibration=arrays(8, 1), evaluation=arrays(15, 2))
    assert (len(data.search), data.held_out, data.is_pooled) == (15, None, True)
    assert data.notes == ("nothing is held out: that takes 16 different evaluation samples",)


def test_batches_are_counted_as_such_and_what_fills_none_is_noted(tmp_path: Path) -> None:
    few = data_of(tmp_path, batch=8, calibration=arrays(8, 1), evaluation=arrays(67, 2))
    assert few.notes == (
        "3 of the 67 evaluation samples fill no batch of 8 and are not used",
        "nothing is held out: that takes 16 different batches of 8 evaluation samples",
    )
    enough = data_of(tmp_path, batch=8, calibration=arrays(9, 1), evaluation=arrays(128, 2))
    assert enough.notes[0] == "1 of the 9 calibration samples fill no batch of 8 and are not used"
    assert enough.divided(8)[0].startswith(
        "the search goes by 8 of the 16 batches of 8 evaluation samples and holds out 8 others"
    )
    alone = data_of(tmp_path, batch=8, calibration=arrays(32, 1))
    assert alone.notes[0] == "no evaluation data: 2 of the 4 batches of 8 samples calibrate, the other 2 evaluate"


def test_calibration_data_alone_are_divided_in_three(tmp_path: Path) -> None:
    data = data_of(tmp_path, calibration=arrays(40, 1, label=np.arange(40)))
    assert data.held_out is not None
    assert (len(data.calibration), len(data.search), len(data.held_out)) == (20, 10, 10)
    assert len(data.notes) == 1


def test_held_out_data_of_their_own_are_no_part_of_the_evaluation(tmp_path: Path) -> None:
    data = data_of(tmp_path, calibration=arrays(8, 1), evaluation=arrays(20, 2), held_out=arrays(6, 3))
    assert data.held_out is not None
    assert (len(data.search), len(data.held_out), data.is_pooled) == (20, 6, False)
    assert data.division(20).pooled == range(20)
    assert data.notes == ()


def test_labels_of_a_file_are_those_of_what_evaluates(tmp_path: Path) -> None:
    labels = tmp_path / "labels.npy"
    np.save(labels, np.arange(20))
    data = data_of(tmp_path, calibration=arrays(8, 1), evaluation=arrays(20, 2), labels=labels, metrics=("accuracy",))
    assert sorted(data.labels(data.division(20))["label"]) == list(range(20))
    with pytest.raises(MetricError, match="20 of them for 19 samples"):
        data_of(tmp_path, calibration=arrays(8, 1), evaluation=arrays(19, 2), labels=labels)
    with pytest.raises(MetricError, match="no metric reads them; add the metric accuracy, or leave them out"):
        data_of(tmp_path, calibration=arrays(8, 1), evaluation=arrays(20, 2), labels=labels, metrics=("top1",))


@pytest.mark.parametrize("shared", ["calibration", "evaluation"])
def test_held_out_samples_of_another_part_are_refused(tmp_path: Path, shared: str) -> None:
    sources: dict[str, Any] = {"calibration": arrays(8, 1), "evaluation": arrays(20, 2)}
    with pytest.raises(DataError, match=f"of the .* held-out samples are {shared} samples too"):
        data_of(tmp_path, **sources, held_out=sources[shared])


def test_a_few_evaluation_samples_that_calibrate_too_are_left_out(tmp_path: Path) -> None:
    calibration, evaluation = arrays(8, 1), arrays(20, 2, label=np.arange(20))
    evaluation["x"][[3, 11]] = calibration["x"][[0, 5]]
    data = data_of(tmp_path, calibration=calibration, evaluation=evaluation)
    assert data.notes[0] == "2 of the 20 evaluation samples calibrate too and are left out"
    assert sorted(data.labels(data.division(18))["label"]) == [n for n in range(20) if n not in (3, 11)]
    known = set(data.calibration.feed_digests)
    assert known.isdisjoint(data.search.feed_digests)
    assert len(data.calibration) == 8


@pytest.mark.parametrize("n_shared", [11, 20])
def test_evaluation_samples_most_of_which_calibrate_are_refused(tmp_path: Path, n_shared: int) -> None:
    calibration, evaluation = arrays(20, 1), arrays(20, 2)
    evaluation["x"][:n_shared] = calibration["x"][:n_shared]
    with pytest.raises(DataError, match=f"{n_shared} of the 20 evaluation samples are calibration samples too"):
        data_of(tmp_path, calibration=calibration, evaluation=evaluation)


def test_evaluation_samples_that_calibrate_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="8 of the 8 evaluation samples are calibration samples too"):
        data_of(tmp_path, calibration=arrays(8, 1), evaluation=arrays(8, 1))


@pytest.mark.parametrize(
    ("labels", "phrase"),
    [({}, "there are no labels 'label', add them"), ({"label": np.zeros((6, 2))}, r"of shape \(6, 2\), but those")],
)
def test_held_out_data_without_the_labels_of_the_others_are_refused(
    tmp_path: Path, labels: dict[str, Any], phrase: str
) -> None:
    sources: dict[str, Any] = {"calibration": arrays(8, 1), "evaluation": arrays(20, 2, label=np.arange(20))}
    with pytest.raises(MetricError, match=phrase):
        data_of(tmp_path, **sources, held_out=arrays(6, 3, **labels), metrics=("accuracy",))
    data = data_of(tmp_path, **sources, held_out=arrays(6, 3, **labels), metrics=("cosine",))
    assert data.labels(data.division(20)) == {}
