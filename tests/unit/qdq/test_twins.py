"""Schemes that quantize a region alike."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from autoquant.domain.region import NodeName, Region, RegionId, TensorName
from autoquant.domain.scheme import FLOAT, BiasCorrection, Operators, RangeMethod, Rounding, Scheme, TensorFormat
from autoquant.domain.space import SearchSpace
from autoquant.domain.statistics import CalibrationRange
from autoquant.qdq.planner import Planner
from autoquant.qdq.twins import find_twins
from tests.graphs import OP_TYPES, U8S8_CHANNEL, U8S8_TENSOR, U16S8, Case, case_of, scheme
from tests.models import floats, model_of

LINEAR = replace(U8S8_TENSOR, name="linear", operators=Operators.LINEAR)
P99 = scheme("u8:tensor:asym", "s8:tensor:sym", ranges="percentile-99")
DYNAMIC = scheme("u8:tensor:asym", "s8:tensor:sym", ranges="dynamic")
MANY = [U8S8_TENSOR, U8S8_CHANNEL, LINEAR, P99, DYNAMIC]


def twins_of(
    body: str,
    nodes: str,
    schemes: list[Scheme],
    *,
    narrower: str = "",
    is_seen: bool = True,
    unbounded: str = "",
) -> Mapping[str, str]:
    """Of the region of some nodes; of tensors in ``narrower`` percentiles are narrower than extremes."""
    case = case_of(model_of("(float[4,4] x) => (float[4,4] y)", body, {"w": floats(4, 4, scale=0.5)}))
    region = RegionId("r")
    own = tuple(map(NodeName, nodes.split()))
    found = Region(id=region, nodes=own, inputs=(), outputs=(), pattern="", op_types=("",) * len(own), work=1.0)
    space = SearchSpace(
        choices={region: (FLOAT, *(each.name for each in schemes))}, schemes={each.name: each for each in schemes}
    )
    planner = Planner(case.graph, OP_TYPES, _Ranges(case, narrower.split()), set(map(TensorName, unbounded.split())))
    return find_twins(planner, [found], space, has_ranges=is_seen).get(region, {})


class _Ranges:
    def __init__(self, case: Case, narrower: list[str]) -> None:
        self.case, self.narrower = case, narrower

    def __call__(self, tensor: TensorName, tensor_format: TensorFormat, method: RangeMethod) -> CalibrationRange:
        used = method if tensor in self.narrower else U8S8_TENSOR.ranges
        return self.case.ranges(tensor, tensor_format, used)


def test_a_scheme_for_linear_operators_is_that_for_all_where_there_are_no_others() -> None:
    schemes = [U8S8_TENSOR, LINEAR]
    assert twins_of("y = MatMul(x, w)", "y", schemes) == {"linear": U8S8_TENSOR.name}
    assert twins_of("m = MatMul(x, w) y = Relu(m)", "m y", schemes) == {"linear": U8S8_TENSOR.name}
    assert not twins_of("m = MatMul(x, w) y = Sigmoid(m)", "m y", schemes)
    assert twins_of("m = MatMul(x, w) y = Sigmoid(m)", "y", schemes) == {"linear": FLOAT}


def test_formats_of_weights_do_not_matter_where_there_are_none() -> None:
    assert twins_of("y = Add(x, x)", "y", [U8S8_TENSOR, U8S8_CHANNEL]) == {U8S8_CHANNEL.name: U8S8_TENSOR.name}
    assert not twins_of("y = MatMul(x, w)", "y", [U8S8_TENSOR, U8S8_CHANNEL])
    assert not twins_of("y = Add(x, w)", "y", [U8S8_TENSOR, U8S8_CHANNEL])


@pytest.mark.parametrize(
    ("narrower", "expected"), [("", True), ("x", False), ("m", False), ("y", True)], ids=["none", "read", "own", "far"]
)
def test_ways_to_choose_ranges_are_one_where_they_choose_the_same(narrower: str, *, expected: bool) -> None:
    body, schemes = "m = MatMul(x, w) y = Sigmoid(m)", [U8S8_TENSOR, P99]
    assert twins_of(body, "m", schemes, narrower=narrower) == ({P99.name: U8S8_TENSOR.name} if expected else {})
    assert not twins_of(body, "m", schemes, narrower=narrower, is_seen=False)


@pytest.mark.parametrize(
    "other",
    [
        replace(P99, name="other", activation=TensorFormat.parse("u8:tensor:sym")),
        replace(P99, name="other", bias=BiasCorrection.MEAN),
        replace(P99, name="other", rounding=Rounding.GPTQ),
    ],
    ids=["activations", "biases", "rounding"],
)
def test_what_else_differs_keeps_schemes_apart(other: Scheme) -> None:
    assert not twins_of("m = MatMul(x, w) y = Sigmoid(m)", "m", [U8S8_TENSOR, other])


def test_where_activations_have_two_types_ranges_are_not_compared() -> None:
    body = "m = MatMul(x, w) y = Sigmoid(m)"
    assert not twins_of(body, "m", [U8S8_TENSOR, P99, U16S8])
    assert twins_of(body, "y", [U8S8_TENSOR, U8S8_CHANNEL, U16S8]) == {U8S8_CHANNEL.name: U8S8_TENSOR.name}


def test_what_is_clipped_has_the_range_of_the_result() -> None:
    body, expected = "m = MatMul(x, w) y = Relu(m)", {P99.name: U8S8_TENSOR.name}
    assert twins_of(body, "m y", [U8S8_TENSOR, P99], narrower="m") == expected
    assert not twins_of(body, "m y", [U8S8_TENSOR, P99], narrower="y")


def test_the_range_of_what_is_moved_is_that_of_its_source() -> None:
    body = "t = Transpose(x) y = Sigmoid(t)"
    assert not twins_of(body, "y", [U8S8_TENSOR, P99], narrower="x")
    assert twins_of(body, "t", [U8S8_TENSOR, P99], narrower="x t") == {P99.name: U8S8_TENSOR.name}
    body = "e = Erf(x) t = Transpose(e) y = Sigmoid(t)"
    assert not twins_of(body, "y", [U8S8_TENSOR, P99], narrower="e")


def test_what_no_range_covers_is_float_under_all_schemes_but_those_that_find_ranges_at_run_time() -> None:
    found = twins_of("y = MatMul(x, w)", "y", MANY, unbounded="y")
    assert found == dict.fromkeys((each.name for each in MANY if each is not DYNAMIC), FLOAT)
    assert twins_of("y = Sigmoid(x)", "y", MANY, unbounded="x") == dict.fromkeys((each.name for each in MANY), FLOAT)
