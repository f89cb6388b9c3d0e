import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoquant.api.steps import find_regions, fitted, least_bytes, prepare, prepare_without_data, read_data
from autoquant.calibration.sources import DataSource
from autoquant.domain.feed import Samples
from autoquant.domain.region import TensorName
from autoquant.domain.space import SpaceRule
from autoquant.domain.target import Target
from autoquant.errors import DataError, SpaceError, UsageError
from autoquant.space.resolve import resolve
from autoquant.space.schema import read_space
from tests.branching import RATE, a_branching_model, feed_at
from tests.models import Array, a_mlp, floats, model_of, op_types, saved


@pytest.mark.parametrize(
    ("threads", "is_unsaturated"), [([1], False), ([1, 2], True), ([2, 1], True)], ids=["none", "last", "first"]
)
def test_a_space_is_fitted_to_the_kernels_of_every_target(
    monkeypatch: pytest.MonkeyPatch, threads: Sequence[int], is_unsaturated: bool
) -> None:
    """As if those with two threads saturated."""
    monkeypatch.setattr("autoquant.api.steps.preparation.is_saturating", lambda target: target.threads == 2)
    space = read_space("default", ep="cpu")
    assert space.unsaturated() != space
    found = fitted(space, [Target(threads=n) for n in threads])
    assert found == (space.unsaturated() if is_unsaturated else space)


def test_a_batch_stays_dynamic_only_where_samples_are_batches_of_several_sizes(tmp_path: Path) -> None:
    body = "y = MatMul(x, w)"
    model = saved(model_of("(float[N,4] x) => (float[N,3] y)", body, {"w": floats(4, 3)}), tmp_path / "model.onnx")

    def shape(source: DataSource) -> tuple[int, ...] | None:
        return prepare(model, read_data(model, source)).graph.shape(TensorName("x"))

    arrays = [floats(2, 4), floats(3, 4)]
    assert shape(folder_of(tmp_path / "cut", arrays)) == (1, 4)
    assert shape(folder_of(tmp_path / "whole", [array[np.newaxis] for array in arrays])) is None
    assert shape([{"x": array} for array in arrays]) is None


def folder_of(folder: Path, arrays: Sequence[Array]) -> Path:
    """A file for each array."""
    folder.mkdir()
    for number, array in enumerate(arrays):
        np.savez(folder / f"{number}.npz", x=array)
    return folder


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
def test_a_rule_for_matmul_holds_where_preprocessing_makes_it_a_gemm(op_type: str, tmp_path: Path) -> None:
    constants = {"w": floats(4, 4), "c": floats(4)}
    model = model_of("(float[1,3,4] x) => (float[1,3,4] y)", "a = MatMul(x, w) b = Add(a, c) y = Tanh(b)", constants)
    prepared = prepare_without_data(saved(model, tmp_path / "model.onnx"), None)
    assert "Gemm" in op_types(prepared.graph.model)
    rule = SpaceRule(op_types=frozenset({op_type}), nodes=None, schemes=("float",))
    space = replace(read_space("default", ep="cpu"), rules=(rule,))
    found = find_regions(prepared, space=space)
    assert set(resolve(space, found).choices.values()) == {("float",)}


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


def test_a_path_is_no_prepared_model(model: Path) -> None:
    with pytest.raises(UsageError, match=r"the model is of type '.*', give what prepare\(model, samples\) gives"):
        find_regions(model)  # type: ignore[arg-type]


def test_a_dimension_that_contradicts_the_data_is_an_error(tmp_path: Path) -> None:
    path = saved(a_mlp(), tmp_path / "dynamic.onnx")
    np.savez(tmp_path / "data.npz", x=floats(6, 3, 4))
    samples = read_data(path, tmp_path / "data.npz")
    with pytest.raises(DataError, match=r"the dimension time shall be 7, but .* or give data of that size$"):
        prepare(path, samples, dims={"time": 7})
    with pytest.raises(DataError, match=r"sample 0; leave it out, or ask for a batch of 4$"):
        prepare(path, samples, dims={"batch": 4})


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


def test_the_least_size_counts_the_given_model_beside_a_branch(tmp_path: Path) -> None:
    model = saved(a_branching_model(), tmp_path / "model.onnx")
    prepared = prepare(model, read_data(model, [feed_at(RATE, seed=k) for k in range(3)]))
    assert prepared.around is not None
    space = read_space("quick", ep="cpu")
    found = find_regions(prepared, space=space)
    least = least_bytes(replace(prepared, around=None), found, space)
    assert least_bytes(prepared, found, space) == least + len(prepared.around.model)
