from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoquant.api.steps import build, calibrate, find_regions, open_bench, prepare, read_data
from autoquant.domain.feed import Samples
from autoquant.domain.target import Target
from autoquant.errors import OutputError, UsageError
from autoquant.runtime.session import open_session
from autoquant.space.schema import read_space
from tests.models import floats, model_of, saved


def test_an_assignment_of_unknown_names_is_a_usage_error(model: Path, samples: Samples, tmp_path: Path) -> None:
    prepared = prepare(model, samples)
    found = find_regions(prepared)
    statistics = calibrate(prepared, samples, cache_folder=tmp_path / "cache")
    with pytest.raises(UsageError, match="u3s5"):
        build(prepared, found, statistics, {found[0].id: "u3s5"})
    with pytest.raises(UsageError, match="nowhere"):
        build(prepared, found, statistics, {"nowhere": "float"})  # type: ignore[dict-item]


def test_a_scheme_that_the_opset_cannot_express_is_a_usage_error(tmp_path: Path) -> None:
    body = "c = Conv(x, w) h = Relu(c) y = Hardmax<axis=1>(h)"
    model = model_of("(float[1,4,5,5] x) => (float[1,4,5,5] y)", body, {"w": floats(4, 4, 1, 1)}, opset=11)
    path = saved(model, tmp_path / "old.onnx")
    samples = read_data(path, {"x": floats(3, 4, 5, 5)})
    prepared = prepare(path, samples)
    found, statistics = find_regions(prepared), calibrate(prepared, samples, cache_folder=tmp_path)
    build(prepared, found, statistics, {found[0].id: "float"})
    said = "scheme 'u8s8-channel-mse', which takes opset 13, but the model stays at opset 11; export it again with"
    with pytest.raises(UsageError, match=said):
        build(prepared, found, statistics, {found[0].id: "u8s8-channel-mse"})


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


def test_statistics_of_another_model_are_a_usage_error(model: Path, samples: Samples, tmp_path: Path) -> None:
    other = saved(
        model_of("(float[1,4] x) => (float[1,4] other)", "other = Gemm(x, w)", {"w": floats(4, 4)}), tmp_path / "o.onnx"
    )
    their_samples = read_data(other, {"x": floats(3, 4)})
    statistics = calibrate(prepare(other, their_samples), their_samples, cache_folder=tmp_path)
    prepared = prepare(model, samples)
    with pytest.raises(UsageError, match="hold tensor 'other', which the model lacks; give those of calibrate"):
        build(prepared, find_regions(prepared), statistics, {})


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
