from collections.abc import Callable
from itertools import count

import numpy as np
import onnx
import pytest

from autoquant.domain.feed import Feed
from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType, Rounding
from autoquant.model.graph import Graph
from autoquant.rounding import products
from autoquant.rounding.moments import Moments
from autoquant.rounding.rounded import grid_digest
from autoquant.rounding.rounder import WeightRounder
from tests.models import Floats, floats, model_of, outputs_of
from tests.unit.rounding.test_moments import Opener

W, V = TensorName("w"), TensorName("v")
GRID = np.asarray(0.1, np.float32), np.zeros((), np.int8), DType.S8, Rounding.GPTQ
GRAPHS = {
    "Conv": ("(float[1,4,6,6] x) => (float[1,6,6,6] y)", "Conv <pads=[1,1,1,1]> (x, w)", (6, 4, 3, 3), 0),
    "grouped Conv": ("(float[1,4,6,6] x) => (float[1,6,4,4] y)", "Conv <group=2> (x, w)", (6, 2, 3, 3), 0),
    "depthwise Conv": ("(float[1,4,6,6] x) => (float[1,4,4,4] y)", "Conv <group=4> (x, w)", (4, 1, 3, 3), 0),
    "MatMul": ("(float[8,12] x) => (float[8,5] y)", "MatMul(x, w)", (12, 5), 1),
    "Gemm": ("(float[8,12] x) => (float[8,5] y)", "Gemm <transB=1> (x, w)", (5, 12), 0),
}


def rounder_of(
    model: onnx.ModelProto, seconds: float = np.inf, clock: Callable[[], float] = lambda: 0.0
) -> tuple[WeightRounder, list[Feed]]:
    graph = Graph(model)
    feeds: list[Feed] = [{"x": floats(*(graph.shape(graph.inputs[0]) or ()), seed=seed) + 3} for seed in range(8)]
    return WeightRounder(graph, Moments(graph, Opener(graph), feeds), seconds, clock), feeds


def with_weight(model: onnx.ModelProto, values: Floats) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float32), "w"))
    return copy


@pytest.mark.parametrize("rounding", [Rounding.GPTQ, Rounding.ADAROUND, Rounding.ADAQUANT])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_output_is_nearer_to_that_of_the_weights(name: str, per_channel: bool, rounding: Rounding) -> None:
    signature, call, shape, axis = GRAPHS[name]
    weight = floats(*shape)
    model = model_of(signature, f"y = {call}", {"w": weight})
    rounder, feeds = rounder_of(model)
    others = tuple(i for i in range(weight.ndim) if i != axis) if per_channel else None
    scale = np.asarray(np.abs(weight).max(axis=others) / 7, np.float32)
    found = rounder(W, scale, np.zeros(scale.shape, np.int8), DType.S8, rounding)
    assert found is not None
    integers, scale_found = np.asarray(found[0]), found[1]
    stored = integers.astype(np.float32)
    assert integers.dtype == np.int8
    assert integers.shape == shape
    assert scale_found.shape == scale.shape
    assert np.array_equal(scale_found, scale) is (rounding is not Rounding.ADAQUANT)
    along = [-1 if i == axis else 1 for i in range(weight.ndim)] if per_channel else []

    def error(steps: Floats, on: Floats) -> float:
        quantized = with_weight(model, steps * on.reshape(along))
        return float(sum(((outputs_of(model, f)[0] - outputs_of(quantized, f)[0]) ** 2).sum() for f in feeds))

    nearest = np.rint(weight / scale.reshape(along))
    assert error(stored, scale_found) < 0.7 * error(nearest, scale)
    assert (np.abs(stored - weight / scale_found.reshape(along)) < 3).all()


@pytest.mark.parametrize("rounding", [Rounding.GPTQ, Rounding.ADAROUND, Rounding.ADAQUANT])
@pytest.mark.parametrize("per_channel", [False, True])
def test_it_is_nearer_too_where_inputs_are_parts(
    per_channel: bool, rounding: Rounding, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = floats(300, 5)
    model = model_of("(float[40,300] x) => (float[40,5] y)", "y = MatMul(x, w)", {"w": weight})
    monkeypatch.setattr(products, "MAX_INPUTS", 180)  # three parts
    rounder, feeds = rounder_of(model)
    scale = np.asarray(np.abs(weight).max(axis=0 if per_channel else None) / 7, np.float32)
    found = rounder(W, scale, np.zeros(scale.shape, np.int8), DType.S8, rounding)
    assert found is not None
    x = np.concatenate([feed["x"] for feed in feeds])
    errors = [x @ (weight - each) for each in (found[0].astype(np.float32) * found[1], np.rint(weight / scale) * scale)]
    assert rounder.moments.of(W).mean.shape == (3, 100, 100)
    assert found[1].shape == scale.shape
    assert np.square(errors[0]).sum() < 0.5 * np.square(errors[1]).sum()


@pytest.mark.parametrize(
    ("n_inputs", "block", "most"), [(300, 64, 6144), (300, 64, 180), (70, 16, 6144), (8, 16, 6144)]
)
def test_blocks_of_inputs_have_scales_of_their_own(
    n_inputs: int, block: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = floats(n_inputs, 5) * np.repeat([1, 10], [n_inputs // 2, n_inputs - n_inputs // 2])[:, np.newaxis]
    weight = weight.astype(np.float32)
    model = model_of(f"(float[40,{n_inputs}] x) => (float[40,5] y)", "y = MatMul(x, w)", {"w": weight})
    monkeypatch.setattr(products, "MAX_INPUTS", most)  # three parts, or one
    rounder, feeds = rounder_of(model)
    blocks = np.pad(weight, [(0, -n_inputs % block), (0, 0)]).reshape(-1, block, 5)
    scale = np.asarray(-np.abs(blocks).max(axis=1) / 7, np.float32)
    found = rounder(W, scale, np.zeros((), np.int8), DType.S4, Rounding.GPTQ)
    assert found is not None
    by_input = scale.repeat(block, axis=0)[:n_inputs]
    np.testing.assert_array_equal(found[1], scale)
    x = np.concatenate([feed["x"] for feed in feeds])
    integers = np.asarray(found[0], np.float32)
    assert -8 <= integers.min() < integers.max() <= 7
    ours, nearest = (x @ (weight - each * by_input) for each in (integers, np.rint(weight / by_input)))
    assert np.square(ours).sum() < 0.7 * np.square(nearest).sum()


def test_an_unsigned_weight_has_its_zero_point() -> None:
    weight = floats(12, 5) - 1
    rounder, _ = rounder_of(model_of("(float[8,12] x) => (float[8,5] y)", "y = MatMul(x, w)", {"w": weight}))
    scale = np.asarray((weight.max() - weight.min()) / 255, np.float32)
    zero_point = np.asarray(np.rint(-weight.min() / scale), np.uint8)
    found = rounder(W, scale, zero_point, DType.U8, Rounding.GPTQ)
    assert found is not None
    assert found[0].dtype == np.uint8
    assert (np.abs((found[0].astype(np.float32) - zero_point) * scale - weight) < 3 * scale).all()


def test_inputs_that_are_always_zero_give_the_nearest_integers() -> None:
    weight = floats(4, 3)
    graph = Graph(model_of("(float[2,4] x) => (float[2,3] y)", "y = MatMul(x, w)", {"w": weight}))
    rounder = WeightRounder(graph, Moments(graph, Opener(graph), [{"x": np.zeros((2, 4), np.float32)}]))
    found = rounder(W, *GRID)
    assert found is not None
    np.testing.assert_array_equal(found[0], np.rint(weight / np.float32(0.1)))


def test_a_constant_that_nothing_is_multiplied_with_is_left_alone() -> None:
    rounder, _ = rounder_of(model_of("(float[2,4] x) => (float[2,4] y)", "y = Add(x, w)", {"w": floats(4)}))
    assert rounder(W, *GRID) is None
    assert not rounder.unfinished
    assert rounder.unfit == {W}


def test_what_there_is_no_time_for_stays_as_it_is_and_is_named() -> None:
    body = "h = MatMul(x, w) y = MatMul(h, v)"
    model = model_of("(float[3,4] x) => (float[3,2] y)", body, {"w": floats(4, 5), "v": floats(5, 2)})
    time = count()  # one second more at each look at the clock
    rounder, _ = rounder_of(model, seconds=5.0, clock=lambda: next(time))
    assert rounder(W, *GRID) is not None
    assert rounder.moments.of(W).n_products == 3 * 3  # of 8 samples with 3 rows
    assert rounder(V, *GRID) is None
    assert rounder.unfinished == {(V, grid_digest(*GRID))}


def test_what_was_rounded_once_is_given_again() -> None:
    rounder, _ = rounder_of(model_of("(float[2,4] x) => (float[2,3] y)", "y = MatMul(x, w)", {"w": floats(4, 3)}))
    found = rounder(W, *GRID)
    assert rounder(W, *GRID) is found
    assert list(rounder.found) == [("w", grid_digest(*GRID))]


def test_without_any_time_no_sample_is_run() -> None:
    graph = Graph(model_of("(float[2,4] x) => (float[2,3] y)", "y = MatMul(x, w)", {"w": floats(4, 3)}))
    opener = Opener(graph)
    rounder = WeightRounder(graph, Moments(graph, opener, []), seconds=0.0)
    assert rounder(W, *GRID) is None
    assert rounder.unfinished == {(W, grid_digest(*GRID))}
    assert opener.asked == []


def test_what_there_was_no_time_for_before_is_left_out_again() -> None:
    body = "h = MatMul(x, w) y = MatMul(h, v)"
    model = model_of("(float[3,4] x) => (float[3,2] y)", body, {"w": floats(4, 5), "v": floats(5, 2)})
    rounder, _ = rounder_of(model)
    rounder.without = frozenset({(V, grid_digest(*GRID))})
    assert rounder(W, *GRID) is not None
    assert rounder(V, *GRID) is None
    assert rounder.unfinished == rounder.without


def test_what_is_to_be_repeatable_is_made_of_all_samples() -> None:
    """Another call has more time, or a slower machine less: their integers are the same."""
    model = model_of(*GRAPHS["MatMul"][:1], f"y = {GRAPHS['MatMul'][1]}", {"w": floats(12, 5)})
    found = []
    for seconds in (7.0, np.inf):
        rounder, _ = rounder_of(model, seconds=seconds, clock=count().__next__)
        rounder.is_repeatable = True
        rounded = rounder(W, *GRID)
        assert rounded is not None
        found.append(np.asarray(rounded[0]))
    np.testing.assert_array_equal(found[0], found[1])
