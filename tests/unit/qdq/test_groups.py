"""Groups of convolutions that are joined with zeros."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.region import RegionId
from autoquant.domain.rewrite import Rewrite
from autoquant.domain.scheme import DType, Scheme, TensorFormat
from autoquant.model.dequantized import float_model
from autoquant.model.fragments import inline_external
from autoquant.model.graph import Graph
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.groups import JoinedGroups
from tests.graphs import U8S8_CHANNEL, U8S8_TENSOR, U16S8, Case, case_of, run
from tests.models import floats, model_of, saved

U8U8 = Scheme(
    name="u8u8",
    activation=TensorFormat.parse("u8:tensor:asym"),
    weight=TensorFormat.parse("u8:channel:asym"),
    ranges=U8S8_TENSOR.ranges,
)


def a_case(n_groups: int, n_inputs: int, n_outputs: int = 2, *, kernel: int = 3) -> Case:
    """One Conv; what each group reads and writes is given."""
    size, pad = n_groups * n_inputs, kernel // 2
    written, reading = n_groups * n_outputs, f"float[1,{size},5,5] x"
    body = f"y = Conv<pads=[{pad},{pad},{pad},{pad}], group={n_groups}>(x, w, b)"
    constants = {"w": floats(written, n_inputs, kernel, kernel) + np.float32(0.5), "b": floats(written)}
    return case_of(model_of(f"({reading}) => (float[1,{written},5,5] y)", body, constants))


def candidates(case: Case, scheme: Scheme) -> tuple[Candidate, Candidate]:
    """As it is, and with joined groups."""
    builder = case.builder({scheme.name: scheme})
    plain = builder.build({RegionId("y"): scheme.name})
    builder.write(frozenset({Rewrite.JOINED_GROUPS}))
    return plain, builder.build({RegionId("y"): scheme.name})


def opened(candidate: Candidate) -> onnx.ModelProto:
    return inline_external(candidate.skeleton, candidate.constants, {})


def n_groups_of(model: onnx.ModelProto) -> int:
    (conv,) = (node for node in model.graph.node if node.op_type == "Conv")
    return next(attribute.i for attribute in conv.attribute if attribute.name == "group")


@given(
    n_groups=st.integers(2, 12),
    n_inputs=st.sampled_from([1, 2, 4, 6]),
    n_outputs=st.integers(1, 4),
    kernel=st.sampled_from([1, 3]),
    scheme=st.sampled_from([U8S8_CHANNEL, U8S8_TENSOR, U8U8]),
)
@settings(max_examples=40)
def test_outputs_stay_the_same(n_groups: int, n_inputs: int, n_outputs: int, kernel: int, scheme: Scheme) -> None:
    case = a_case(n_groups, n_inputs, n_outputs, kernel=kernel)
    if scheme.weight.dtype is DType.S8:
        scheme = replace(scheme, weight=replace(scheme.weight, unsaturated=True))
    plain, joined = (run(opened(each), case.feed) for each in candidates(case, scheme))
    np.testing.assert_array_equal(plain, joined)


@pytest.mark.parametrize(
    ("n_groups", "n_inputs", "left"),
    [
        (8, 8, 2),
        (8, 4, 1),
        (16, 4, 2),
        (4, 32, 4),
        (2, 64, 2),
        (46, 8, 23),
        (23, 16, 23),
        (19, 8, 1),
        (32, 1, 1),
        (8, 3, 8),
        (2, 28, 2),
    ],
)
def test_groups_have_about_36_inputs_where_their_number_allows(n_groups: int, n_inputs: int, left: int) -> None:
    plain, joined = candidates(a_case(n_groups, n_inputs), U8S8_CHANNEL)
    assert n_groups_of(opened(joined)) == left
    assert (joined.digest == plain.digest) is (left == n_groups)


def test_what_has_a_kernel_for_each_channel_and_what_runs_in_float_stays() -> None:
    depthwise, wide = a_case(32, 1, 1), a_case(8, 4)
    assert not depthwise.builder({}).possible
    assert wide.builder({}).possible == {Rewrite.JOINED_GROUPS}
    plain, joined = candidates(wide, U16S8)
    assert plain.digest == joined.digest
    builder = wide.builder({})
    builder.write(frozenset({Rewrite.JOINED_GROUPS}))
    assert n_groups_of(opened(builder.build({}))) == 8


@pytest.mark.parametrize(
    ("signature", "constants"),
    [
        ("(float[1,8,5,5] x, float[8,2,3,3] w) => (float[1,8,3,3] y)", {}),
        ("(float[1,0,5,5] x) => (float[1,8,3,3] y)", {"w": floats(8, 0, 3, 3)}),
    ],
    ids=["not constant", "without inputs"],
)
def test_weights_that_cannot_be_spread_stay(signature: str, constants: dict[str, npt.NDArray[np.float32]]) -> None:
    graph = Graph(model_of(signature, "y = Conv<group=4>(x, w)", constants))
    assert not JoinedGroups(graph).has_narrow


def test_the_float_model_of_a_member_has_the_groups_of_the_member(tmp_path: Path) -> None:
    case = a_case(8, 4)
    _, joined = candidates(case, U8S8_CHANNEL)
    member, prepared = saved(opened(joined), tmp_path / "m.onnx"), saved(case.graph.model, tmp_path / "p.onnx")
    found = float_model(member, prepared)
    assert n_groups_of(found) == 1
    np.testing.assert_allclose(run(found, case.feed)[0], run(case.graph.model, case.feed)[0], atol=0.5)
