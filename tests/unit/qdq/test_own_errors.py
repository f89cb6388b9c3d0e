from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from autoquant.domain.region import NodeName, Region, RegionId, TensorName
from autoquant.domain.scheme import FLOAT, Scheme, TensorFormat
from autoquant.domain.space import SearchSpace
from autoquant.domain.statistics import CalibrationRange
from autoquant.qdq.own_errors import OwnErrors, errors_of_regions
from autoquant.qdq.planner import Planner
from tests.graphs import OP_TYPES, U8S8_CHANNEL, U8S8_TENSOR, U16S8, case_of, scheme
from tests.models import Array, floats, model_of

DYNAMIC = scheme("u8:tensor:asym", "s8:tensor:sym", ranges="dynamic")
BLOCKS = scheme("s8:block-16:sym", "s8:block-16:sym", ranges="dynamic")
COARSE = scheme("s8:block-16:sym", "s4:block-16:sym", ranges="dynamic")
UNEVEN = floats(32, 4) * np.array([1, 1, 1, 100], np.float32)


def a_region(name: str, *nodes: str) -> Region:
    own = tuple(map(NodeName, nodes))
    return Region(id=RegionId(name), nodes=own, inputs=(), outputs=(), pattern="", op_types=("",) * len(own), work=1.0)


def errors_of(
    signature: str,
    body: str,
    constants: Mapping[str, Array | float],
    regions: list[Region],
    schemes: list[Scheme],
    activations: Mapping[str, float],
    *,
    seconds: float = np.inf,
) -> OwnErrors | None:
    case = case_of(model_of(signature, body, constants))

    def activation_error(
        tensor: TensorName, calibration_range: CalibrationRange | None, tensor_format: TensorFormat
    ) -> float:
        assert (calibration_range is None) == any(scheme.is_dynamic for scheme in schemes)
        return activations.get(tensor, 0.0) * 2.0 ** (16 - 2 * tensor_format.dtype.bits)

    names = (FLOAT, *(scheme.name for scheme in schemes))
    space = SearchSpace(
        choices=dict.fromkeys((region.id for region in regions), names), schemes={s.name: s for s in schemes}
    )
    return errors_of_regions(
        Planner(case.graph, OP_TYPES, case.ranges), regions, space, activation_error, seconds=seconds
    )


def of_product(*schemes: Scheme, weight: Array = UNEVEN) -> dict[str, float]:
    """What one MatMul and its weight add, by scheme; its activations add nothing."""
    found = errors_of(
        "(float[2,32] x) => (float[2,4] y)", "y = MatMul(x, w)", {"w": weight}, [a_region("r", "y")], list(schemes), {}
    )
    assert found is not None
    return dict(found[RegionId("r")])


def test_activations_count_where_they_are_quantized_and_once_in_each_region() -> None:
    found = errors_of(
        "(float[4,4] x) => (float[4,4] y)",
        "a = Sigmoid(x) b = Add(a, x) y = Mul(b, x)",
        {},
        [a_region("first", "a", "b"), a_region("second", "y")],
        [U8S8_TENSOR],
        {"x": 1e-3, "a": 1e-4, "b": 1e-5, "y": 1e-6},
    )
    assert found is not None
    assert found[RegionId("first")][U8S8_TENSOR.name] == pytest.approx(1e-3 + 1e-4 + 1e-5)
    assert found[RegionId("second")][U8S8_TENSOR.name] == pytest.approx(1e-3 + 1e-6)


def test_weights_add_a_twelfth_of_their_squared_steps() -> None:
    found, power = of_product(U8S8_TENSOR), np.mean(np.square(UNEVEN))
    step = np.abs(UNEVEN).max() / 127
    assert found[U8S8_TENSOR.name] == pytest.approx(step**2 / 12 / power, rel=1e-5)


def test_steps_by_channel_are_as_good_or_better_and_rounding_says_the_same() -> None:
    found, power = of_product(U8S8_CHANNEL, U8S8_TENSOR), np.mean(np.square(UNEVEN))
    step = np.abs(UNEVEN).max(axis=0) / 127
    rounded = np.rint(UNEVEN / step) * step
    assert found[U8S8_CHANNEL.name] < 0.6 * found[U8S8_TENSOR.name]
    assert found[U8S8_CHANNEL.name] == pytest.approx(np.mean(np.square(rounded - UNEVEN)) / power, rel=0.3)


def test_wider_activations_leave_the_error_of_the_weights() -> None:
    found = errors_of(
        "(float[2,32] x) => (float[2,4] y)",
        "a = MatMul(x, w) y = Sigmoid(a)",
        {"w": UNEVEN},
        [a_region("r", "a", "y")],
        [U8S8_TENSOR, U16S8],
        {"x": 1e-2, "a": 1e-2, "y": 1e-2},
    )
    assert found is not None
    own, weight = found[RegionId("r")], of_product(U8S8_TENSOR)[U8S8_TENSOR.name]
    assert own[U8S8_TENSOR.name] == pytest.approx(3e-2 + weight, rel=1e-5)
    assert own[U16S8.name] == pytest.approx(3e-2 / 2**16 + weight, rel=1e-5)


def test_a_dynamic_range_is_that_of_the_extremes_and_blocks_lose_in_both_operands() -> None:
    late = np.where(np.arange(32)[:, None] < 16, 1, 50).astype(np.float32) * floats(32, 4)
    found = errors_of(
        "(float[2,32] x) => (float[2,4] y)",
        "y = MatMul(x, w)",
        {"w": late},
        [a_region("r", "y")],
        [DYNAMIC, BLOCKS, COARSE],
        {"x": 1e-3},
    )
    assert found is not None
    own = found[RegionId("r")]
    power, blocks = np.mean(np.square(late)), np.abs(late).reshape(2, 16, 4).max(axis=1) / 128
    fine = np.mean(np.square(blocks)) / 12 / power
    assert own[BLOCKS.name] == pytest.approx(2 * fine, rel=1e-5)
    assert own[COARSE.name] == pytest.approx((1 + 16**2) * fine, rel=1e-5), "weights of 4 bits, activations of 8"
    step = np.abs(late).max() / 127
    assert own[DYNAMIC.name] > 1e-3 + 0.5 * step**2 / 12 / power


def test_both_weights_of_an_lstm_count() -> None:
    weights = {"w": floats(1, 16, 6), "r": floats(1, 16, 4, seed=1)}
    one, two = (
        errors_of(
            "(float[5,1,6] x) => (float[5,1,1,4] y)",
            "y = LSTM<hidden_size=4>(x, w, r)",
            {**weights, "r": recurrent},
            [a_region("r", "y")],
            [DYNAMIC],
            {"x": 0.0},
        )
        for recurrent in (np.zeros_like(weights["r"]), weights["r"])
    )
    assert one is not None
    assert two is not None
    assert 0 < one[RegionId("r")][DYNAMIC.name] < two[RegionId("r")][DYNAMIC.name]


@pytest.mark.parametrize("taken", [U8S8_CHANNEL, U8S8_TENSOR])
def test_a_weight_of_zeros_has_no_error(taken: Scheme) -> None:
    assert of_product(taken, weight=np.zeros((32, 4), np.float32)) == {taken.name: 0.0}


def test_channels_and_blocks_of_zeros_lose_nothing() -> None:
    dead = floats(32, 4)
    dead[:, 1] = 0
    step = np.abs(dead).max(axis=0) / 127
    expected = np.mean(np.square(step)) / 12 / np.mean(np.square(dead))
    assert of_product(U8S8_CHANNEL, weight=dead)[U8S8_CHANNEL.name] == pytest.approx(expected, rel=1e-5)
    late = np.where(np.arange(32)[:, None] < 16, 0, 1).astype(np.float32) * floats(32, 4)
    assert of_product(BLOCKS, weight=late)[BLOCKS.name] < 1e-4


def test_what_is_rounded_to_zero_loses_no_more_than_itself() -> None:
    tiny = np.full((32, 2), 1e-3, np.float32)
    tiny[0] = 1e3
    fewer = np.concatenate([tiny, np.full((32, 2), 1e-6, np.float32)], axis=1)
    own = of_product(U8S8_TENSOR, U8S8_CHANNEL, weight=fewer)
    powers = np.mean(np.square(fewer, dtype=np.float64), axis=0)
    assert own[U8S8_CHANNEL.name] == pytest.approx(np.mean((1e3 / 127) ** 2 / 12 * (powers > 1)) / powers.mean(), 1e-3)


def test_readers_in_one_region_share_what_they_quantize() -> None:
    signature, body = "(float[2,32] x) => (float[2,4] y, float[2,4] z)", "y = MatMul(x, w) z = MatMul(x, v)"
    constants = {"w": np.zeros((32, 4), np.float32), "v": np.zeros((32, 4), np.float32)}
    for taken in (DYNAMIC, U8S8_TENSOR):
        together = errors_of(signature, body, constants, [a_region("r", "y", "z")], [taken], {"x": 1e-3})
        apart = errors_of(signature, body, constants, [a_region("r", "y"), a_region("s", "z")], [taken], {"x": 1e-3})
        assert together is not None
        assert apart is not None
        assert together[RegionId("r")][taken.name] == apart[RegionId("s")][taken.name] == pytest.approx(1e-3)


def test_what_a_range_does_not_absorb_is_charged_to_its_producer_once() -> None:
    symmetric = scheme("s8:tensor:sym", "s8:tensor:sym")
    found = errors_of(
        "(float[1,4,6,6] x) => (float[1,4,6,6] y)",
        "a = Conv(x, w) r = Relu(a) y = Conv(r, w)",
        {"w": np.zeros((4, 4, 1, 1), np.float32)},
        [a_region("first", "a", "r"), a_region("second", "y")],
        [symmetric],
        {"x": 1e-3, "r": 1e-4, "y": 1e-5},
    )
    assert found is not None
    assert found[RegionId("first")][symmetric.name] == pytest.approx(1e-3 + 1e-4)
    assert found[RegionId("second")][symmetric.name] == pytest.approx(1e-5)


def test_what_only_moves_values_adds_nothing() -> None:
    found = errors_of(
        "(float[4,4] x) => (float[4,4] y)",
        "a = Sigmoid(x) b = Transpose(a) y = Sigmoid(b)",
        {},
        [a_region("first", "a"), a_region("moving", "b"), a_region("second", "y")],
        [U8S8_TENSOR],
        {"x": 1e-3, "a": 1e-4, "b": 1.0, "y": 1e-5},
    )
    assert found is not None
    assert [own[U8S8_TENSOR.name] for own in found.values()] == pytest.approx([1e-3 + 1e-4, 0.0, 1e-5])


def test_without_time_there_is_no_answer() -> None:
    signature, body = "(float[2,32] x) => (float[2,4] y)", "y = MatMul(x, w)"
    given = signature, body, {"w": UNEVEN}, [a_region("r", "y")], [U8S8_TENSOR], dict[str, float]()
    assert errors_of(*given, seconds=-1.0) is None


def test_the_integers_of_a_hard_sigmoid_that_are_those_of_what_it_reads_count_once() -> None:
    """And what they leave out is not needed."""
    covered: dict[TensorName, CalibrationRange | None] = {}

    def activation_error(
        tensor: TensorName,
        calibration_range: CalibrationRange | None,
        tensor_format: TensorFormat,
    ) -> float:
        covered[tensor] = calibration_range
        return 1e-3

    case = case_of(model_of("(float[4,4] x) => (float[4,4] y)", "c = Add(x, x) h = HardSigmoid(c) y = Mul(c, h)"))
    case = replace(case, extremes={**case.extremes, TensorName("c"): (np.float32(-20), np.float32(20))})
    names = [node.name for node in case.graph.nodes]
    space = SearchSpace(choices={RegionId("r"): (FLOAT, U8S8_TENSOR.name)}, schemes={U8S8_TENSOR.name: U8S8_TENSOR})
    found = errors_of_regions(
        Planner(case.graph, OP_TYPES, case.ranges), [a_region("r", *names)], space, activation_error
    )
    assert found is not None
    assert found[RegionId("r")][U8S8_TENSOR.name] == pytest.approx(3e-3)
    assert covered.keys() == {"x", "c", "y"}
    assert covered[TensorName("c")] == CalibrationRange(-20.0, 20.0)
