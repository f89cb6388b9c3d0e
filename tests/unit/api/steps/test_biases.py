from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from autoquant.api.steps import builder_of, calibrate, find_regions, observe_shifts, prepare, read_data
from autoquant.calibration.drift import channel_means
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.feed import Feed, Samples
from autoquant.domain.region import Assignment, TensorName
from autoquant.model.copies import Model
from autoquant.model.fragments import inline_external
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.space.schema import read_space
from tests.graphs import run
from tests.models import a_convnet, floats, saved

TENSOR = "u8s8-tensor-minmax"
Floats = npt.NDArray[np.float64]


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    return read_data(saved(a_convnet(), tmp_path / "model.onnx"), {"x": floats(24, 3, 8, 8)})


@pytest.fixture
def prepared(tmp_path: Path, samples: Samples) -> PreparedModel:
    return prepare(tmp_path / "model.onnx", samples)


@pytest.fixture
def builder(prepared: PreparedModel, samples: Samples, tmp_path: Path) -> Builder:
    space = read_space("default", ep="cpu", accuracy=Accuracy.NONE)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path)
    return builder_of(prepared, find_regions(prepared), statistics, space=space)


@pytest.fixture
def assignment(prepared: PreparedModel) -> Assignment:
    return {region.id: TENSOR for region in find_regions(prepared)}


def mean_error(prepared: PreparedModel, candidate: Candidate, samples: Samples) -> npt.NDArray[np.float64]:
    model = inline_external(candidate.skeleton, candidate.constants, {})
    errors = [run(model, feed)[0] - run(prepared.graph.model, feed)[0] for feed in samples.feeds]
    return np.asarray(np.mean(errors, axis=0, dtype=np.float64))


def test_means_of_the_outputs_come_nearer_to_float(
    prepared: PreparedModel, builder: Builder, assignment: Assignment, samples: Samples
) -> None:
    shifts = observe_shifts(prepared, builder, assignment, samples)
    linear = {node.name for node in prepared.graph.nodes if node.op_type in ("Conv", "Gemm")}
    assert shifts.keys() == linear
    before = mean_error(prepared, builder.build(assignment), samples)
    after = mean_error(prepared, builder.build(assignment, shifts), samples)
    assert np.linalg.norm(after) < 0.5 * np.linalg.norm(before)


def test_expected_shifts_are_what_there_is_without_time_and_without_samples_to_compare(
    prepared: PreparedModel, builder: Builder, assignment: Assignment, samples: Samples
) -> None:
    expected = builder.expected_shifts(assignment)
    for found in (
        observe_shifts(prepared, builder, assignment, samples, seconds=0),
        observe_shifts(prepared, builder, assignment, samples, n_samples=1),
    ):
        assert found.keys() == expected.keys()
        for name, shift in found.items():
            np.testing.assert_array_equal(shift, expected[name])


def test_shifts_that_were_observed_are_found_again(
    prepared: PreparedModel,
    builder: Builder,
    assignment: Assignment,
    samples: Samples,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hurried = observe_shifts(prepared, builder, assignment, samples, seconds=0, cache_folder=tmp_path)
    first = observe_shifts(prepared, builder, assignment, samples, cache_folder=tmp_path)
    assert any((first[name] != hurried[name]).any() for name in first)  # what was cut off is not kept

    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr("autoquant.api.steps.biases.residual_shifts", refuse)
    again = observe_shifts(prepared, builder, assignment, samples, cache_folder=tmp_path)
    assert again.keys() == first.keys()
    assert all((again[name] == first[name]).all() for name in first)
    one = next(iter(assignment))
    for other, n_samples in (({one: assignment[one]}, 24), (assignment, 12)):
        with pytest.raises(NotImplementedError):
            observe_shifts(prepared, builder, other, samples, n_samples=n_samples, cache_folder=tmp_path)
    monkeypatch.setattr("autoquant.api.steps.caching.runtime_version", lambda: "another")
    with pytest.raises(NotImplementedError):
        observe_shifts(prepared, builder, assignment, samples, cache_folder=tmp_path)


def test_means_that_are_fetched_in_several_passes_are_the_same(
    prepared: PreparedModel,
    builder: Builder,
    assignment: Assignment,
    samples: Samples,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = observe_shifts(prepared, builder, assignment, samples)
    n_fetched: list[int] = []

    def fetch(model: Model, axes: Mapping[TensorName, int], feeds: Iterable[Feed]) -> Mapping[TensorName, Floats]:
        n_fetched.append(len(axes))
        return channel_means(model, axes, feeds)

    monkeypatch.setattr("autoquant.api.steps.biases.channel_means", fetch)
    monkeypatch.setattr("autoquant.api.steps.passes._PASS_BYTES", 1)
    found = observe_shifts(prepared, builder, assignment, samples)
    assert n_fetched == [1] * len(whole)
    for name, shift in whole.items():
        np.testing.assert_allclose(found[name], shift, rtol=1e-4, atol=1e-6)


def test_samples_that_stand_for_all_are_spread_over_them(
    prepared: PreparedModel,
    builder: Builder,
    assignment: Assignment,
    samples: Samples,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observed: list[Feed] = []

    def fetch(model: Model, axes: Mapping[TensorName, int], feeds: Iterable[Feed]) -> Mapping[TensorName, Floats]:
        observed.extend(feeds)
        return channel_means(model, axes, observed)

    monkeypatch.setattr("autoquant.api.steps.biases.channel_means", fetch)
    observe_shifts(prepared, builder, assignment, samples, n_samples=6)
    places = [
        place for place, feed in enumerate(samples.feeds) if any((feed["x"] == each["x"]).all() for each in observed)
    ]
    assert len(places) == 6
    assert np.diff([-1, *places, len(samples)]).max() <= 8


def test_a_float_assignment_has_nothing_to_correct(prepared: PreparedModel, builder: Builder, samples: Samples) -> None:
    assert observe_shifts(prepared, builder, {}, samples) == {}


def test_operators_with_the_range_of_each_input_keep_their_biases(
    prepared: PreparedModel, builder: Builder, assignment: Assignment, samples: Samples
) -> None:
    last = [region.id for region in find_regions(prepared) if "Gemm" in region.op_types]
    dynamic = {**assignment, **dict.fromkeys(last, "dynamic-channel")}
    assert builder.plan(dynamic).dynamic
    shifts = observe_shifts(prepared, builder, dynamic, samples)
    assert shifts.keys() == {node.name for node in prepared.graph.nodes if node.op_type == "Conv"}
