from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from autoquant.api.steps import build, calibrate, find_regions, prepare, read_data
from autoquant.domain.feed import Samples
from autoquant.domain.statistics import Statistics
from autoquant.equalisation.equalise import equalise
from autoquant.model.fragments import inline_external
from autoquant.model.prepared import PreparedModel
from tests.models import a_convnet, constants_of, floats, model_of, outputs_of, saved

RECIPE = "u8s8-channel-minmax"


def a_lopsided_net() -> onnx.ModelProto:
    """A network in which every channel has a range of its own."""
    model = a_convnet()
    powers = 2.0 ** np.random.default_rng(0).integers(-5, 6, 8)
    changed = {"wa": ("over", 0), "ba": ("over", 0), "wb": ("times", 1)}
    for tensor in model.graph.initializer:
        if tensor.name in changed:
            how, axis = changed[tensor.name]
            values = onnx.numpy_helper.to_array(tensor)
            factors = powers.reshape([-1 if i == axis else 1 for i in range(values.ndim)]).astype(np.float32)
            values = values * factors if how == "over" else values / factors
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return model


def prepared_of(model: onnx.ModelProto, folder: Path) -> tuple[PreparedModel, Samples, Statistics]:
    path = saved(model, folder / "model.onnx")
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    np.savez(folder / "data.npz", x=floats(8, *shape[1:]))
    samples = read_data(path, folder / "data.npz")
    prepared = prepare(path, samples)
    return prepared, samples, calibrate(prepared, samples, cache_folder=folder / "cache")


def quantized_error(prepared: PreparedModel, samples: Samples, folder: Path) -> float:
    """Squared error of the quantized model, over the samples."""
    regions, statistics = find_regions(prepared), calibrate(prepared, samples, cache_folder=folder / "cache")
    candidate = build(prepared, regions, statistics, {region.id: RECIPE for region in regions})
    model = inline_external(candidate.skeleton, candidate.constants, {})
    pairs = [(outputs_of(model, feed)[0], outputs_of(prepared.graph.model, feed)[0]) for feed in samples.feeds]
    return float(sum(((found - expected) ** 2).sum() for found, expected in pairs))


def test_outputs_are_equal_to_the_last_bit_and_only_constants_change(tmp_path: Path) -> None:
    prepared, samples, statistics = prepared_of(a_lopsided_net(), tmp_path)
    found = equalise(prepared, statistics.channels)
    before, after = prepared.graph, found.prepared.graph
    for feed in samples.feeds:
        np.testing.assert_array_equal(outputs_of(after.model, feed)[0], outputs_of(before.model, feed)[0])
    assert [(n.name, n.op_type, n.inputs, n.outputs) for n in after.nodes] == [
        (n.name, n.op_type, n.inputs, n.outputs) for n in before.nodes
    ]
    assert found.prepared.digest != prepared.digest
    assert any((array != constants_of(before.model)[n]).any() for n, array in constants_of(after.model).items())
    assert set(found.tensors) <= set(before.producer)
    assert 2 <= found.largest_exponent <= 8
    assert found.note.startswith(
        f"channels of {len(found.tensors)} activations are rescaled by powers of two, up to 2^"
    )


def test_regions_are_those_of_the_plain_model(tmp_path: Path) -> None:
    prepared, _, statistics = prepared_of(a_lopsided_net(), tmp_path)
    found = equalise(prepared, statistics.channels)
    assert found.tensors
    assert find_regions(found.prepared) == find_regions(prepared)


def test_lopsided_channels_cost_less_when_quantized(tmp_path: Path) -> None:
    prepared, samples, statistics = prepared_of(a_lopsided_net(), tmp_path)
    found = equalise(prepared, statistics.channels)
    assert quantized_error(found.prepared, samples, tmp_path) < quantized_error(prepared, samples, tmp_path) / 4


def test_a_model_that_gains_nothing_is_given_back(tmp_path: Path) -> None:
    prepared, _, _ = prepared_of(a_convnet(), tmp_path)
    found = equalise(prepared, {})
    assert found.prepared is prepared
    assert (found.tensors, found.largest_exponent) == ((), 0)
    assert found.note == "rescaling channels would gain nothing"


@pytest.mark.parametrize("between", ["Sigmoid(a)", "Clip(a, zero, six)"])
def test_a_model_that_cannot_be_rescaled_says_so(between: str, tmp_path: Path) -> None:
    constants: dict[str, npt.NDArray[np.generic] | float] = {
        "w": floats(4, 4, 1, 1),
        "v": floats(4, 4, 1, 1, seed=1),
        "zero": 0.0,
        "six": 6.0,
    }
    body = f"a = Conv(x, w) b = {between} y = Conv(b, v)"
    model = model_of("(float[1,4,6,6] x) => (float[1,4,6,6] y)", body, constants)
    prepared, _, statistics = prepared_of(model, tmp_path)
    found = equalise(prepared, statistics.channels)
    assert found.prepared is prepared
    assert found.note.startswith("no channel can be rescaled: ")
