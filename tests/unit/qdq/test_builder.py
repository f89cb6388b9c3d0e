from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

from autoquant.domain.region import NodeName, Region, RegionId
from autoquant.domain.scheme import Rounding, Scheme
from autoquant.errors import UsageError
from autoquant.model.fragments import inline_external
from autoquant.qdq.builder import Builder
from autoquant.qdq.ports import Rounder
from tests.graphs import OP_TYPES, U8S8_CHANNEL, Case, case_of, models, run
from tests.models import a_convnet

FIRST, SECOND = RegionId("first"), RegionId("second")


def region(name: RegionId, nodes: list[NodeName]) -> Region:
    return Region(id=name, nodes=tuple(nodes), inputs=(), outputs=(), pattern="", op_types=("",) * len(nodes), work=0.5)


def builder_of(case: Case, n_first: int = 3, rounded: Scheme | None = None, rounder: Rounder | None = None) -> Builder:
    names = [node.name for node in case.graph.nodes]
    regions = [region(FIRST, names[:n_first]), region(SECOND, names[n_first:])]
    schemes = {"int8": U8S8_CHANNEL} | ({"rounded": rounded} if rounded else {})
    return Builder(case.graph, regions, schemes, OP_TYPES, case.ranges, rounder=rounder)


def test_a_region_that_is_not_named_is_float() -> None:
    builder = builder_of(case_of(a_convnet()))
    assert builder.build({FIRST: "int8"}).digest == builder.build({FIRST: "int8", SECOND: "float"}).digest
    assert builder.build({}).integer_nodes == frozenset()


def test_only_the_nodes_of_a_quantized_region_are_asked_to_run_on_integers() -> None:
    candidate = builder_of(case_of(a_convnet())).build({FIRST: "int8"})
    assert candidate.integer_nodes == {"a", "b"}
    assert candidate.float_nodes == {"c", "y"}


@pytest.mark.parametrize("assignment", [{RegionId("third"): "int8"}, {FIRST: "int7"}])
def test_an_unknown_region_or_scheme_is_an_error(assignment: dict[RegionId, str]) -> None:
    with pytest.raises(KeyError, match=r"third|int7"):
        builder_of(case_of(a_convnet())).build(assignment)


GPTQ = replace(U8S8_CHANNEL, name="rounded", rounding=Rounding.GPTQ)


def ones_of(case: Case) -> Rounder:
    return lambda name, scale, *_: (np.ones(case.graph.shape(name) or (), np.int8), scale)


def test_a_scheme_that_rounds_by_samples_needs_a_rounder() -> None:
    builder = builder_of(case_of(a_convnet()), rounded=GPTQ)
    builder.build({FIRST: "int8", SECOND: "float"})
    with pytest.raises(UsageError, match="scheme 'rounded' rounds weights by 'gptq'"):
        builder.build({FIRST: "int8", SECOND: "rounded"})


def test_candidates_that_differ_in_their_rounding_alone_are_different_ones() -> None:
    case = case_of(a_convnet())
    builder = builder_of(case, rounded=GPTQ, rounder=ones_of(case))
    nearest, rounded = (builder.build({FIRST: name}) for name in ("int8", "rounded"))
    assert nearest.digest == builder_of(case).build({FIRST: "int8"}).digest
    assert rounded.variants_digest != nearest.variants_digest
    assert rounded.integer_nodes == nearest.integer_nodes
    assert {name for name, label in rounded.variants.items() if "gptq" in label} == {"wa_quantized", "wb_quantized"}


def test_a_rounder_that_changes_nothing_makes_no_other_candidate() -> None:
    builder = builder_of(case_of(a_convnet()), rounded=GPTQ, rounder=lambda *_: None)
    assert builder.build({FIRST: "int8"}).digest == builder.build({FIRST: "rounded"}).digest


@settings(max_examples=20)
@given(models())
def test_all_regions_of_one_scheme_are_the_uniform_model(model: onnx.ModelProto) -> None:
    case = case_of(model)
    parts = builder_of(case, len(case.graph.nodes) // 2 or 1).build({FIRST: "int8", SECOND: "int8"})
    assert parts.digest == case.quantized(U8S8_CHANNEL).candidate.digest


@settings(max_examples=20)
@given(models())
def test_the_all_float_assignment_gives_the_outputs_of_the_prepared_model(model: onnx.ModelProto) -> None:
    case = case_of(model)
    candidate = builder_of(case, 1).build({FIRST: "float"})
    built = inline_external(candidate.skeleton, candidate.constants, {})
    np.testing.assert_array_equal(run(built, case.feed)[0], run(model, case.feed)[0])
