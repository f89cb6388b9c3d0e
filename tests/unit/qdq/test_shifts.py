from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.region import Region, RegionId, TensorName
from autoquant.domain.scheme import BiasCorrection, Rounding, Scheme
from autoquant.model.fragments import inline_external
from autoquant.model.ops import channel_axes, weight_of
from autoquant.model.optimized import read_optimized
from autoquant.model.rewrite import with_outputs
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.ports import Means, Rounder
from autoquant.qdq.shifts import mean_output
from tests.graphs import OP_TYPES, U8S8_CHANNEL, U8S8_TENSOR, Case, case_of, opened, run, scheme
from tests.models import Array, Floats, floats, model_of

IMAGE, ROWS = "(float[1,4,5,5] x) => (float[1,6,?,?] y)", "(float[9,4] x) => (float[9,6] y)"
BIAS = floats(6, seed=7)
ALL = RegionId("all")
FINE = scheme("u16:tensor:asym", "s8:tensor:sym")
"""Activations so fine that only the weight's rounding counts."""

LINEAR: dict[str, tuple[str, str, Floats]] = {
    "conv": (IMAGE, "Conv(x, w, b)", floats(6, 4, 3, 3)),
    "conv without bias": (IMAGE, "Conv(x, w)", floats(6, 4, 3, 3)),
    "grouped": (IMAGE, "Conv<group=2>(x, w, b)", floats(6, 2, 3, 3)),
    "depthwise": ("(float[1,6,5,5] x) => (float[1,6,?,?] y)", "Conv<group=6>(x, w, b)", floats(6, 1, 3, 3)),
    "transposed": (IMAGE, "ConvTranspose<strides=[2,2]>(x, w, b)", floats(4, 6, 2, 2)),
    "transposed, grouped": (IMAGE, "ConvTranspose<group=2, strides=[2,2]>(x, w, b)", floats(4, 3, 2, 2)),
    "gemm": (ROWS, "Gemm(x, w, b)", floats(4, 6)),
    "gemm without bias": (ROWS, "Gemm(x, w)", floats(4, 6)),
    "gemm, beta": (ROWS, "Gemm<beta=0.5>(x, w, b)", floats(4, 6)),
    "gemm, transposed": (ROWS, "Gemm<transB=1>(x, w, b)", floats(6, 4)),
    "gemm, both transposed": ("(float[4,9] x) => (float[9,6] y)", "Gemm<transA=1, transB=1>(x, w)", floats(6, 4)),
    "matmul": ("(float[2,9,4] x) => (float[2,9,6] y)", "MatMul(x, w)", floats(4, 6)),
}


def case(name: str) -> Case:
    signature, call, weight = LINEAR[name]
    constants: dict[str, Array | float] = {"w": weight, "b": BIAS} if ", b)" in call else {"w": weight}
    return case_of(model_of(signature, f"y = {call}", constants))


def along(values: npt.NDArray[np.generic], axis: int) -> npt.NDArray[np.float64]:
    """Means of the channels."""
    means: npt.NDArray[np.float64] = (
        np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).astype(float).mean(axis=1)
    )
    return means


def means_of(case: Case) -> Means:
    return lambda tensor, axis: along(case.feed[tensor], axis)


def no_means(tensor: TensorName, axis: int) -> None:
    """Of nothing."""


def builder_of(case: Case, taken: Scheme, means: Means = no_means, rounder: Rounder | None = None) -> Builder:
    nodes = tuple(node.name for node in case.graph.nodes)
    region = Region(id=ALL, nodes=nodes, inputs=(), outputs=(), pattern="", op_types=("",) * len(nodes), work=1.0)
    return Builder(case.graph, [region], {"taken": taken}, OP_TYPES | {"ConvTranspose"}, case.ranges, means, rounder)


def built(case: Case, taken: Scheme, means: Means = no_means) -> Candidate:
    return builder_of(case, taken, means).build({ALL: "taken"})


def model_in(candidate: Candidate) -> onnx.ModelProto:
    return inline_external(candidate.skeleton, candidate.constants, {})


def corrected(taken: Scheme) -> Scheme:
    return replace(taken, bias=BiasCorrection.MEAN)


@pytest.mark.parametrize("name", LINEAR)
def test_inputs_that_are_constant_by_channel_give_the_mean_output(name: str) -> None:
    found = case(name)
    node, x = found.graph.nodes[0], found.feed["x"]
    means = floats(x.shape[channel_axes(node)[0]])
    shape = [1] * x.ndim
    shape[channel_axes(node)[0]] = means.size
    (y,) = run(found.graph.model, {"x": np.broadcast_to(means.reshape(shape), x.shape).copy()})
    weight = weight_of(node, found.graph)
    assert weight is not None
    bias = BIAS * (0.5 if "beta" in name else 1.0) if len(node.inputs) > 2 else np.zeros(6)
    found_means = mean_output(node, found.graph.constant(weight), means.astype(np.float64)) + bias
    np.testing.assert_allclose(found_means, along(y, channel_axes(node)[1]), rtol=1e-4, atol=1e-5)


def mean_errors(found: Case, candidate: Candidate) -> npt.NDArray[np.float64]:
    """Of what the operator itself writes, before it is quantized."""
    axis, model = channel_axes(found.graph.nodes[0])[1], model_in(candidate)
    (name,) = (node.output[0] for node in model.graph.node if node.name == "y")
    (expected,) = run(found.graph.model, found.feed)
    (y,) = opened(with_outputs(model, {name: None}), is_optimized=False).run([name], dict(found.feed))
    return along(y, axis) - along(expected, axis)


@pytest.mark.parametrize("name", ["transposed", "transposed, grouped", "gemm", "gemm, beta", "gemm, transposed"])
@pytest.mark.parametrize("weight", ["s8:tensor:sym", "u8:tensor:asym", "s8:channel:sym"])
def test_corrected_biases_take_back_what_the_weights_rounding_adds(name: str, weight: str) -> None:
    found, taken = case(name), scheme("u16:tensor:asym", weight)
    before = mean_errors(found, built(found, taken, means_of(found)))
    after = mean_errors(found, built(found, corrected(taken), means_of(found)))
    assert np.abs(after).max() < 0.1 * np.abs(before).max()


def test_learned_scales_come_with_corrected_biases() -> None:
    found, learned = case("gemm"), replace(FINE, rounding=Rounding.ADAQUANT)
    builder = builder_of(found, learned, means_of(found), rounder=lambda *_: None)
    assert builder.build({ALL: "taken"}).digest == built(found, corrected(FINE), means_of(found)).digest


@settings(max_examples=20)
@given(st.integers(0, 100), st.sampled_from([1, 2, 4]))
def test_a_pointwise_convolution_is_corrected_whatever_its_groups(seed: int, groups: int) -> None:
    constants = {"w": floats(8, 4 // groups, 1, 1, seed=seed), "b": floats(8, seed=seed)}
    signature = "(float[1,4,5,5] x) => (float[1,8,5,5] y)"
    found = case_of(model_of(signature, f"y = Conv<group={groups}>(x, w, b)", constants), seed=seed)
    before = mean_errors(found, built(found, FINE, means_of(found)))
    after = mean_errors(found, built(found, corrected(FINE), means_of(found)))
    assert np.abs(after).max() < 0.1 * np.abs(before).max()


def optimized_of(candidate: Candidate, folder: Path) -> tuple[Counter[str], str]:
    opened(model_in(candidate), str(folder / "optimized.onnx"))
    found = read_optimized(folder / "optimized.onnx")
    return Counter(found.kernels), found.digest


@pytest.mark.parametrize("name", ["conv", "conv without bias", "depthwise", "gemm", "gemm without bias", "matmul"])
@pytest.mark.parametrize("taken", [U8S8_TENSOR, U8S8_CHANNEL, FINE, scheme("u8:tensor:asym", "u8:tensor:asym")])
def test_the_same_kernels_run_where_biases_are_corrected(name: str, taken: Scheme, tmp_path: Path) -> None:
    found = case(name)
    plain, _ = optimized_of(built(found, taken, means_of(found)), tmp_path)
    kernels, _ = optimized_of(built(found, corrected(taken), means_of(found)), tmp_path)
    assert kernels == plain
    kernel = {"gemm": "QGemm", "matm": "QLinearMatMul"}.get(name[:4], "QLinearConv")
    if taken is not FINE:
        assert any(other.rpartition(":")[2] == kernel for other in kernels)


@pytest.mark.parametrize("n_channels", [4, 300])
def test_candidates_that_differ_in_their_biases_alone_have_different_digests(n_channels: int, tmp_path: Path) -> None:
    signature = f"(float[1,4,5,5] x) => (float[1,{n_channels},5,5] y)"
    found = case_of(
        model_of(signature, "y = Conv(x, w, b)", {"w": floats(n_channels, 4, 1, 1), "b": floats(n_channels)})
    )
    plain = built(found, U8S8_CHANNEL, means_of(found))
    other = built(found, corrected(U8S8_CHANNEL), means_of(found))
    identities = {f"{optimized_of(c, tmp_path)[1]}-{c.variants_digest}" for c in (plain, other)}
    assert len(identities) == 2
    assert plain.variants_digest != other.variants_digest
    assert built(found, corrected(U8S8_CHANNEL), means_of(found)).digest == other.digest


@pytest.mark.parametrize("name", LINEAR)
def test_nothing_changes_where_no_scheme_asks_for_it_or_no_means_are_known(name: str) -> None:
    found = case(name)
    plain = built(found, U8S8_CHANNEL)
    assert built(found, U8S8_CHANNEL, means_of(found)) == plain
    assert built(found, corrected(U8S8_CHANNEL), no_means).skeleton == plain.skeleton


@pytest.mark.parametrize(
    ("name", "taken", "gets_one"),
    [
        ("conv without bias", U8S8_CHANNEL, True),
        ("gemm without bias", U8S8_CHANNEL, True),
        ("gemm without bias", FINE, False),
        ("matmul", U8S8_CHANNEL, False),
    ],
)
def test_an_operator_without_a_bias_gets_one_where_its_kernel_takes_it(
    name: str, taken: Scheme, gets_one: bool
) -> None:
    found = case(name)
    plain, other = built(found, taken, means_of(found)), built(found, corrected(taken), means_of(found))
    assert (plain != other) is gets_one
    n_inputs = {node.name: len(node.input) for node in model_in(other).graph.node}
    assert n_inputs["y"] == (3 if gets_one else 2)


def test_given_shifts_go_before_those_of_the_scheme() -> None:
    found = case("gemm")
    builder = builder_of(found, corrected(FINE), means_of(found))
    shift = np.arange(6.0)
    moved = model_in(builder.build({ALL: "taken"}, {found.graph.nodes[0].name: shift}))
    still = model_in(builder_of(found, FINE).build({ALL: "taken"}))
    found_shift = [run(model, found.feed)[0].mean(axis=0) for model in (still, moved)]
    np.testing.assert_allclose(found_shift[0] - found_shift[1], shift, atol=0.02)
