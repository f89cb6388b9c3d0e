"""Weights of dynamic schemes that are rounded by samples."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper

from autoquant.domain.region import RegionId, TensorName
from autoquant.domain.scheme import DType, Rounding, Scheme
from autoquant.model.fragments import inline_external
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.ports import Rounder
from tests.graphs import OP_TYPES, Case, case_of, run, scheme
from tests.models import Array, Floats, floats, model_of
from tests.unit.qdq.test_builder import region

CHANNEL = scheme("u8:tensor:asym", "s8:channel:sym", ranges="dynamic")
BLOCKS = scheme("s8:block-16:sym", "s8:block-16:sym", ranges="dynamic")
COARSE = scheme("s8:block-16:sym", "s4:block-16:sym", ranges="dynamic")
ALL = RegionId("all")


def a_case() -> Case:
    body = "g = Gemm<alpha=2.0, transB=1>(x, v, b) l = MatMul(g, w) s = Constant<value = int64[3] {4, 1, 5}>()"
    constants = {"v": floats(6, 20), "b": floats(6), "w": floats(6, 5), "lw": floats(1, 12, 5), "lr": floats(1, 12, 3)}
    lstm = "r = Reshape(l, s) , , z = LSTM<hidden_size=3>(r, lw, lr)"
    return case_of(model_of("(float[4,20] x) => (float[1,1,3] z)", f"{body} {lstm}", constants))


def built(case: Case, taken: Scheme, rounder: Rounder) -> Candidate:
    names = [node.name for node in case.graph.nodes]
    schemes = {"taken": replace(taken, name="taken", rounding=Rounding.GPTQ)}
    builder = Builder(case.graph, [region(ALL, names)], schemes, OP_TYPES | {"LSTM"}, case.ranges, rounder=rounder)
    return builder.build({ALL: "taken"})


def inlined(candidate: Candidate) -> onnx.ModelProto:
    return inline_external(candidate.skeleton, candidate.constants, {})


def stored(candidate: Candidate) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in inlined(candidate).graph.initializer}


@pytest.mark.parametrize(
    ("taken", "scales", "ones"),
    [
        (CHANNEL, [(6,), (5,)], {"v": 20 * 6 * [1], "w": 6 * 5 * [1]}),
        (BLOCKS, [(2, 6), (1, 5)], {"v": 6 * [*20 * [129], *12 * [128]], "w": 5 * [*6 * [129], *10 * [128]]}),
        (COARSE, [(2, 6), (1, 5)], {"v": 6 * [*10 * [0x99], *6 * [0x88]], "w": 5 * [*3 * [0x99], *5 * [0x88]]}),
    ],
    ids=str,
)
def test_products_take_the_integers_of_a_rounder(
    taken: Scheme, scales: Sequence[tuple[int, ...]], ones: dict[str, list[int]]
) -> None:
    case, asked = a_case(), dict[TensorName, tuple[tuple[int, ...], DType]]()

    def rounder(
        weight: TensorName, scale: Floats, zero_point: npt.NDArray[np.generic], dtype: DType, rounding: Rounding
    ) -> tuple[npt.NDArray[np.int8], Floats]:
        assert rounding is Rounding.GPTQ
        assert not zero_point.any()
        asked[weight] = scale.shape, dtype
        return np.ones(case.graph.shape(weight) or (), np.int8), scale

    candidate = built(case, taken, rounder)
    assert asked == {name: (shape, taken.weight.dtype) for name, shape in zip("vw", scales, strict=True)}, "no LSTM"
    found = {name: values.ravel().tolist() for name, values in stored(candidate).items()}
    assert {name: found[f"{name}_quantized"] for name in "vw"} == ones
    assert candidate.roundings == {Rounding.GPTQ}


@pytest.mark.parametrize("taken", [CHANNEL, BLOCKS, COARSE], ids=str)
def test_the_nearest_integers_are_the_same_candidate_whoever_gives_them(taken: Scheme) -> None:
    case = a_case()
    nearest = built(case, taken, lambda *_: None)

    def rounder(
        weight: TensorName, scale: Floats, zero_point: npt.NDArray[np.generic], dtype: DType, rounding: Rounding
    ) -> tuple[npt.NDArray[np.int8], Floats]:
        del zero_point, rounding
        given, is_transposed = case.graph.constant(weight), weight == "v"
        rows = given.T if is_transposed else given
        along = scale.repeat(16, axis=0)[: len(rows)] if taken.is_blockwise else scale
        integers = np.clip(np.rint(rows / along), dtype.lowest, dtype.highest).astype(np.int8)
        return integers.T if is_transposed else integers, scale

    again = built(case, taken, rounder)
    assert (again.digest, again.variants_digest) == (nearest.digest, nearest.variants_digest)
    assert not again.roundings


@pytest.mark.parametrize("taken", [CHANNEL, BLOCKS, COARSE], ids=str)
def test_one_weight_is_another_one_for_another_rounding_integers_or_factor(taken: Scheme) -> None:
    body = "a = Gemm<alpha=0.5, transB=1>(x, w) b = Gemm<alpha=2.0, transB=1>(x, w) c = Gemm<alpha=0.5, transB=1>(x, w)"
    signature = "(float[4,16] x) => (float[4,6] a, float[4,6] b, float[4,6] c)"
    case = case_of(model_of(signature, body, {"w": floats(6, 16)}))
    schemes = {
        "nearest": replace(taken, name="nearest"),
        "gptq": replace(taken, name="gptq", rounding=Rounding.GPTQ),
    }
    regions = [region(RegionId(node.name), [node.name]) for node in case.graph.nodes]
    digests = set()
    for integer in (1, 2):
        builder = Builder(
            case.graph,
            regions,
            schemes,
            OP_TYPES,
            case.ranges,
            rounder=lambda _, scale, *__, integer=integer: (np.full((6, 16), integer, np.int8), scale),
        )
        mixed = {RegionId("a"): "nearest", RegionId("b"): "nearest", RegionId("c"): "gptq"}
        for assignment in (mixed, dict(reversed(mixed.items()))):
            candidate = builder.build(assignment)
            given, others = run(case.graph.model, case.feed), run(inlined(candidate), case.feed)
            losses = [float(np.square(a - b).mean() / np.square(a).mean()) for a, b in zip(given, others, strict=True)]
            assert max(losses[:2]) < 0.1 < losses[2]
            digests.add(candidate.variants_digest)
    assert len(digests) == 2
