import pickle
from pathlib import Path

import numpy as np
import pytest

from autoquant.api.steps import (
    build,
    calibrate,
    equalise,
    find_regions,
    measure,
    prepare,
    read_data,
    recalibrate,
    signatures_of,
)
from autoquant.calibration.batches import read_samples
from autoquant.calibration.collect import collect
from autoquant.domain.feed import Samples
from autoquant.domain.measurement import Measurement
from autoquant.domain.region import TensorName
from autoquant.domain.target import Target
from autoquant.errors import DataError
from autoquant.measurement.bench import Bench
from autoquant.model.copies import to_bytes
from autoquant.model.ops import original_of
from autoquant.model.rewrite import with_outputs
from autoquant.runtime.session import open_session
from autoquant.space.schema import read_space
from tests.models import floats, model_of, saved


def test_samples_of_another_model_are_refused(model: Path, samples: Samples, tmp_path: Path) -> None:
    other = saved(model_of("(float[1,4] z) => (float[1,4] y)", "y = Relu(z)"), tmp_path / "other.onnx")
    with pytest.raises(DataError, match="the samples are of another model, as this one has no input 'z'; read its own"):
        calibrate(prepare(model, samples), read_data(other, {"z": floats(2, 4)}))


def test_what_a_rescaled_model_leaves_as_it_was_need_not_be_observed_again(
    model: Path, samples: Samples, tmp_path: Path
) -> None:
    prepared = prepare(model, samples)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path / "cache")
    found = equalise(prepared, statistics)
    assert recalibrate(found.prepared, samples, statistics, found.tensors, cache_folder=tmp_path, seconds=0.0) is None
    renewed = recalibrate(found.prepared, samples, statistics, found.tensors, cache_folder=tmp_path / "cache")
    again = calibrate(found.prepared, samples, cache_folder=tmp_path / "cache")
    assert renewed is not None
    assert pickle.dumps(renewed.tensors) == pickle.dumps(again.tensors)
    assert renewed.channels.keys() == again.channels.keys()
    for name, channel in again.channels.items():
        np.testing.assert_array_equal(renewed.channels[name].mean, channel.mean)
    assert (renewed.digest, renewed.n_samples) == (again.digest, again.n_samples)


def test_channels_of_what_linear_operators_read_and_write_are_observed(
    model: Path, samples: Samples, tmp_path: Path
) -> None:
    prepared = prepare(model, samples)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path / "cache")
    graph = prepared.graph
    linear = [node for node in graph.nodes if node.op_type in ("Conv", "Gemm")]
    names = {name for node in linear for name in (node.inputs[0], node.outputs[0])}
    assert statistics.channels.keys() == names & statistics.tensors.keys() >= {node.inputs[0] for node in linear}
    x = np.concatenate([feed["x"] for feed in samples.feeds])
    found = statistics.channels[TensorName("x")]
    np.testing.assert_allclose(found.mean, x.mean(axis=(0, 2, 3), dtype=np.float64), rtol=1e-12)
    np.testing.assert_array_equal(found.maximum, x.max(axis=(0, 2, 3)))
    for name, channels in statistics.channels.items():
        assert channels.minimum.min() == np.float32(statistics.tensors[name].minimum)
        assert channels.maximum.max() == np.float32(statistics.tensors[name].maximum)
    assert len(statistics.channels[graph.outputs[0]].mean) == 5


def test_data_files_that_disappear_between_steps_are_a_data_error(
    model: Path, samples: Samples, tmp_path: Path
) -> None:
    prepared = prepare(model, samples)
    lazy = read_samples(tmp_path / "data.npz", signatures_of(model), role="calibration", held_bytes=0)
    (tmp_path / "data.npz").unlink()
    with pytest.raises(DataError, match="cannot be read any more"):
        prepare(model, lazy)
    with pytest.raises(DataError, match="cannot be read any more"):
        calibrate(prepared, lazy, cache_folder=tmp_path / "cache")


def test_what_a_relu_of_the_same_region_clips_is_not_observed_and_every_assignment_can_be_built(tmp_path: Path) -> None:
    model = saved(
        model_of(
            "(float[1,4,5,5] x) => (float[1,4,5,5] y)",
            "a = Conv(x, wa) b = Relu(a) c = Conv(b, wc) d = Add(c, b) e = Relu(d) y = Conv(e, wy)",
            {name: floats(4, 4, 1, 1, seed=i) for i, name in enumerate(("wa", "wc", "wy"))},
        ),
        tmp_path / "model.onnx",
    )
    samples = read_data(model, {"x": floats(3, 4, 5, 5)})
    prepared, definition = prepare(model, samples), read_space("default", ep="cpu")
    statistics = calibrate(prepared, samples, cache_folder=tmp_path)
    assert statistics.tensors.keys() == {"x", "b", "c", "e", "y"}
    regions = find_regions(prepared)
    for scheme in definition.schemes:
        for kept in range(2 ** len(regions)):
            chosen = {region.id: scheme.name for i, region in enumerate(regions) if kept >> i & 1}
            assert build(prepared, regions, statistics, chosen).skeleton


def test_tensors_with_the_values_of_another_have_its_statistics_and_channels_of_their_own(tmp_path: Path) -> None:
    body = "a = MatMul(x, wa) b = Reshape(a, shape) c = Transpose<perm=[0,2,1]>(b) y = MatMul(c, wy)"
    constants = {"wa": floats(4, 6, seed=1), "shape": np.array([1, 6, 3]), "wy": floats(6, 2, seed=2)}
    model = saved(model_of("(float[1,3,4] x) => (float[1,3,2] y)", body, constants), tmp_path / "model.onnx")
    samples = read_data(model, {"x": floats(4, 3, 4)})
    prepared = prepare(model, samples)
    found = calibrate(prepared, samples, cache_folder=tmp_path)
    graph = prepared.graph
    inner: dict[str, tuple[int, ...] | None] = {
        name: graph.shape(name) for name in found.tensors if name in graph.producer
    }
    session = open_session(to_bytes(with_outputs(graph.model, inner)), Target())
    axes = {name: channel.axis for name, channel in found.channels.items()}
    each = collect(session, list(found.tensors), samples.feeds, digest="", channel_axes=axes)
    originals = [original_of(name, graph) for name in found.tensors]
    assert len(set(originals)) < len(originals)
    assert any(original_of(name, graph) != name for name in axes)
    for name, expected in each.tensors.items():
        assert pickle.dumps(found.tensors[name]) == pickle.dumps(expected)
    for name, channel in each.channels.items():
        assert pickle.dumps(found.channels[name]) == pickle.dumps(channel)


@pytest.mark.parametrize(
    ("signature", "shapes"),
    [("(float[1,T,8] x) => (float[1,T] y)", ((1, 5, 8), (1, 7, 8))), ("(float[8] x) => (float y)", ((8,), (8,)))],
)
def test_what_a_product_with_a_vector_writes_has_no_channels(
    signature: str, shapes: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    model = saved(model_of(signature, "h = Relu(x) y = MatMul(h, v)", {"v": floats(8)}), tmp_path / "model.onnx")
    samples = read_data(model, [{"x": floats(*shape)} for shape in shapes])
    prepared = prepare(model, samples)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path)
    assert statistics.tensors.keys() >= {"h", "y"}
    assert statistics.channels.keys() == {"h"}
    found = find_regions(prepared)
    assignment = {region.id: "u8s8-channel-minmax" for region in found}
    candidate = build(prepared, found, statistics, assignment)
    measured = measure(Bench(model, [Target()], samples.feeds), candidate, assignment, found)
    assert isinstance(measured, Measurement)
    assert measured.quality.worst_db > 25


DYNAMIC_SPACE = """
schema = 1
[ep.cpu]
schemes = ["d"]
op_types = ["Gemm", "LSTM", "Relu"]
[schemes.d]
activation = "u8:tensor:asym"
weight = "s8:channel:sym"
ranges = "dynamic"
"""


def test_a_space_of_dynamic_schemes_needs_nothing_of_calibration_but_its_samples(tmp_path: Path) -> None:
    body = "l = LSTM<hidden_size=4>(x, w, r) y = Relu(l)"
    made = model_of(
        "(float[5,3,6] x) => (float y)", body, {"w": floats(1, 16, 6, scale=0.5), "r": floats(1, 16, 4, scale=0.5)}
    )
    model, space = saved(made, tmp_path / "lstm.onnx"), tmp_path / "space.toml"
    space.write_text(DYNAMIC_SPACE)
    samples = read_data(model, {"x": np.stack([floats(5, 3, 6, seed=seed) for seed in range(4)])})
    prepared = prepare(model, samples)
    found = find_regions(prepared, space=str(space))
    assert [region.op_types for region in found] == [("LSTM",)]
    statistics = calibrate(prepared, samples, space=str(space), cache_folder=tmp_path)
    assert (statistics.n_samples, len(statistics.tensors)) == (4, 0)
    assignment = {found[0].id: "d"}
    candidate = build(prepared, found, statistics, assignment, space=str(space))
    measured = measure(Bench(model, [Target()], samples.feeds), candidate, assignment, found)
    assert isinstance(measured, Measurement)
    assert measured.effective == assignment
    assert 20 < measured.quality.worst_db < 80
