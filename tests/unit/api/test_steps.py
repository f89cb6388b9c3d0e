import math
import pickle
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autoquant.api.steps import (
    build,
    calibrate,
    equalise,
    find_regions,
    measure,
    model_path,
    open_bench,
    prepare,
    prepare_without_data,
    read_data,
    recalibrate,
    round_weights,
    signatures_of,
)
from autoquant.calibration.batches import read_samples, select
from autoquant.calibration.collect import collect
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.feed import Samples
from autoquant.domain.measurement import Failure, Measurement
from autoquant.domain.quality import QualityMeter
from autoquant.domain.region import TensorName
from autoquant.domain.scheme import Rounding, TensorFormat
from autoquant.domain.target import Target
from autoquant.errors import DataError, ModelError, OutputError, SpaceError, UsageError
from autoquant.measurement.bench import Bench
from autoquant.model.copies import to_bytes
from autoquant.model.ops import original_of
from autoquant.model.rewrite import with_outputs
from autoquant.qdq.candidate import Candidate
from autoquant.runtime.session import open_session
from autoquant.space.schema import read_space
from tests.models import a_convnet, a_mlp, floats, model_of, outputs_of, saved


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(a_convnet(), tmp_path / "model.onnx")


@pytest.fixture
def samples(model: Path, tmp_path: Path) -> Samples:
    np.savez(tmp_path / "data.npz", x=floats(6, 3, 8, 8))
    return read_data(model, tmp_path / "data.npz")


def test_a_model_is_a_path_or_an_example(tmp_path: Path) -> None:
    assert model_path("some/model.onnx") == Path("some/model.onnx")
    assert model_path("example:digits").is_file()
    with pytest.raises(ModelError, match="example 'letters' is unknown"):
        model_path("example:letters")


def test_data_are_checked_against_the_model(model: Path, tmp_path: Path, samples: Samples) -> None:
    assert len(samples) == 6
    assert samples.feeds[0]["x"].shape == (1, 3, 8, 8)
    np.savez(tmp_path / "other.npz", z=floats(6, 3, 8, 8))
    with pytest.raises(DataError):
        read_data(model, tmp_path / "other.npz")


def test_a_model_without_inputs_has_nothing_to_measure(tmp_path: Path) -> None:
    path = saved(model_of("() => (float[2] y)", "y = Relu(c)", {"c": floats(2)}), tmp_path / "constant.onnx")
    with pytest.raises(ModelError, match="the model has no inputs"):
        read_data(path, tmp_path / "data.npz")


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


def test_the_steps_lead_from_a_model_to_a_measurement(model: Path, samples: Samples, tmp_path: Path) -> None:
    prepared = prepare(model, samples)
    found = find_regions(prepared, n_regions=3)
    assert 1 < len(found) <= 3
    seen: list[int] = []
    statistics = calibrate(prepared, samples, cache_folder=tmp_path / "cache", on_sample=seen.append)
    assert len(seen) == len(samples)
    assert (
        calibrate(prepared, samples, cache_folder=tmp_path / "cache", on_sample=seen.append).digest == statistics.digest
    )
    assert len(seen) == len(samples)
    bench = Bench(model, [Target()], samples.feeds)

    everything = measure(bench, build(prepared, found, statistics, {}), {}, found)
    assert isinstance(everything, Measurement)
    assert everything.quality.worst_db > 80
    assert set(everything.effective.values()) == {"float"}

    scheme = read_space("default", ep="cpu").schemes[0].name
    assignment = {region.id: scheme for region in found}
    candidate = build(prepared, found, statistics, assignment)
    quantized = measure(bench, candidate, assignment, found)
    assert isinstance(quantized, Measurement)
    assert 10 < quantized.quality.worst_db < 80
    assert quantized.digest != everything.digest
    known = replace(quantized, size_bytes=1)
    assert measure(bench, candidate, assignment, found, known={quantized.digest: known}) == quantized


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


def test_a_bench_holds_its_samples_in_memory(model: Path, samples: Samples, tmp_path: Path) -> None:
    lazy = read_samples(tmp_path / "data.npz", signatures_of(model), role="evaluation", held_bytes=0)
    bench = open_bench(model, lazy)
    (tmp_path / "data.npz").unlink()
    for feed, expected in zip(bench.feeds, samples.feeds, strict=True):
        np.testing.assert_array_equal(feed["x"], expected["x"])


def test_an_assignment_of_unknown_names_is_a_usage_error(model: Path, samples: Samples, tmp_path: Path) -> None:
    prepared = prepare(model, samples)
    found = find_regions(prepared)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path / "cache")
    with pytest.raises(UsageError, match="u3s5"):
        build(prepared, found, statistics, {found[0].id: "u3s5"})
    with pytest.raises(UsageError, match="nowhere"):
        build(prepared, found, statistics, {"nowhere": "float"})  # type: ignore[dict-item]


def test_statistics_of_another_space_are_a_usage_error(tmp_path: Path) -> None:
    body = "c = Conv(x, w) y = Tanh(c)"
    path = saved(
        model_of("(float[1,4,5,5] x) => (float[1,4,5,5] y)", body, {"w": floats(4, 4, 1, 1)}), tmp_path / "tanh.onnx"
    )
    samples, quick = read_data(path, {"x": floats(3, 4, 5, 5)}), read_space("quick", ep="cpu")
    prepared, larger = prepare(path, samples), replace(quick, op_types=quick.op_types | {"Tanh"})
    statistics = calibrate(prepared, samples, space=quick, cache_folder=tmp_path)
    found = find_regions(prepared, space=larger)
    assignment = {region.id: "u8s8-channel-mse" for region in found}
    with pytest.raises(
        UsageError,
        match="hold activation 'y', which space quick quantizes; calibrate this model with that space and ep",
    ):
        build(prepared, found, statistics, assignment, space=larger)


def test_a_saved_candidate_gives_the_outputs_that_were_measured(model: Path, samples: Samples, tmp_path: Path) -> None:
    prepared = prepare(model, samples)
    regions = find_regions(prepared)
    assignment = {region.id: "u8s8-channel-mse" for region in regions}
    statistics = calibrate(prepared, samples, cache_folder=tmp_path / "cache")
    candidate, bench = build(prepared, regions, statistics, assignment), open_bench(model, samples)
    candidate.save(tmp_path / "made.onnx")
    session, opened = (
        open_session(tmp_path / "made.onnx", Target()),
        bench.opener.open(candidate.skeleton, candidate.constants),
    )
    for feed in samples.feeds:
        found, expected = session.run(None, feed), opened.sessions["cpu-1t"].run(None, feed)
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    with pytest.raises(OutputError, match=r"cannot be written .*choose another folder"):
        candidate.save(tmp_path / "nowhere" / "made.onnx")


def test_a_candidate_that_cannot_be_opened_is_a_failure(model: Path, samples: Samples) -> None:
    broken = Candidate(
        skeleton=b"nothing", constants={}, variants={}, integer_nodes=frozenset(), float_nodes=frozenset()
    )
    outcome = measure(Bench(model, [Target()], samples.feeds), broken, {}, ())
    assert isinstance(outcome, Failure)
    assert outcome.stage == "open"
    assert "onnxruntime cannot open it" in outcome.reason


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


def test_a_space_that_does_not_exist_is_a_space_error(model: Path, samples: Samples) -> None:
    with pytest.raises(SpaceError):
        find_regions(prepare(model, samples), space="no such space")


def test_an_execution_provider_may_have_the_name_that_onnxruntime_gives_it(model: Path) -> None:
    prepared = prepare_without_data(model, None)
    assert find_regions(prepared, ep="CPUExecutionProvider") == find_regions(prepared, ep="cpu") != ()


def test_regions_can_be_looked_at_without_data(model: Path, tmp_path: Path) -> None:
    prepared = prepare_without_data(model, None)
    assert prepared.difference_db == math.inf
    assert find_regions(prepared)
    dynamic = saved(a_mlp(), tmp_path / "dynamic.onnx")
    assert find_regions(prepare_without_data(dynamic, None, dims={"batch": 1, "time": 3}))


def test_a_partition_has_at_least_one_region(model: Path) -> None:
    with pytest.raises(UsageError, match="the number of regions is 0, it must be at least 1"):
        find_regions(prepare_without_data(model, None), n_regions=0)


def test_a_dimension_that_contradicts_the_data_is_an_error(tmp_path: Path) -> None:
    path = saved(a_mlp(), tmp_path / "dynamic.onnx")
    np.savez(tmp_path / "data.npz", x=floats(6, 3, 4))
    samples = read_data(path, tmp_path / "data.npz")
    with pytest.raises(DataError, match="--dim time=7"):
        prepare(path, samples, dims={"time": 7})


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


def test_statistics_of_the_first_samples_are_those_of_a_calibration_that_was_cut_off_there(
    model: Path, samples: Samples, tmp_path: Path
) -> None:
    prepared = prepare(model, samples)
    cut = calibrate(prepared, samples, cache_folder=tmp_path / "cache", seconds=0)
    whole = calibrate(prepared, samples, cache_folder=tmp_path / "cache")
    again = calibrate(prepared, samples, cache_folder=tmp_path / "cache", n_samples=1)
    assert (cut.n_samples, whole.n_samples, again.n_samples) == (1, 6, 1)
    assert cut.digest == again.digest != whole.digest
    for name, found in again.tensors.items():
        np.testing.assert_array_equal(found.counts, cut.tensors[name].counts)
    assert calibrate(prepared, samples, cache_folder=tmp_path / "cache", n_samples=6).digest == whole.digest


def test_samples_that_there_is_time_for_are_spread_over_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("(float[1,4] x) => (float[1,3] y)", "y = Gemm(x, w)", {"w": floats(4, 3)})
    path, x = saved(model, tmp_path / "model.onnx"), TensorName("x")
    samples = read_data(path, {"x": np.arange(100, dtype=np.float32)[:, np.newaxis] * np.ones(4, np.float32)})
    prepared = prepare(path, samples)
    with monkeypatch.context() as patched:
        patched.setattr("autoquant.calibration.timed.time", SimpleNamespace(perf_counter=count().__next__))
        cut = calibrate(prepared, samples, cache_folder=tmp_path, seconds=7)
    assert cut.n_samples == 8
    assert cut.tensors[x].maximum > 80
    np.testing.assert_allclose(cut.channels[x].mean, 49.5, atol=10)
    again = calibrate(prepared, samples, cache_folder=tmp_path, n_samples=8)
    assert again.digest == cut.digest
    np.testing.assert_array_equal(again.tensors[x].counts, cut.tensors[x].counts)


@pytest.mark.parametrize(("seconds", "n_samples"), [(math.inf, 6), (0, 1)])
def test_activations_that_take_much_memory_are_observed_in_several_passes_over_the_same_samples(
    model: Path, samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, n_samples: int
) -> None:
    prepared, told = prepare(model, samples), list[int]()
    at_once = calibrate(prepared, samples, cache_folder=tmp_path / "once", n_samples=n_samples)
    monkeypatch.setattr("autoquant.api.steps.passes._PASS_BYTES", 1)
    found = calibrate(prepared, samples, cache_folder=tmp_path / "often", seconds=seconds, on_sample=told.append)
    assert (found.n_samples, found.digest) == (n_samples, at_once.digest)
    assert told == list(range(1, n_samples + 1))
    assert found.tensors.keys() == at_once.tensors.keys()
    for name, one in at_once.tensors.items():
        np.testing.assert_array_equal(found.tensors[name].counts, one.counts)
        assert (found.tensors[name].minimum, found.tensors[name].maximum) == (one.minimum, one.maximum)
    assert found.channels.keys() == at_once.channels.keys()
    for name, channels in at_once.channels.items():
        np.testing.assert_array_equal(found.channels[name].mean, channels.mean)


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


def test_an_lstm_is_in_no_region_where_no_scheme_is_dynamic(tmp_path: Path) -> None:
    made = model_of(
        "(float[5,3,6] x) => (float y)",
        "l = LSTM<hidden_size=4>(x, w, r) y = Sigmoid(l)",
        {"w": floats(1, 16, 6), "r": floats(1, 16, 4)},
    )
    prepared = prepare_without_data(saved(made, tmp_path / "lstm.onnx"), None)
    ops = {op_type for region in find_regions(prepared, space="quick") for op_type in region.op_types}
    assert ops == {"Sigmoid"}
    assert "LSTM" in {op_type for region in find_regions(prepared) for op_type in region.op_types}
