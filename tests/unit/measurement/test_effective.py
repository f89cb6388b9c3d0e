from pathlib import Path

import pytest

from autoquant.domain.region import NodeName, Region, RegionId
from autoquant.domain.target import Target
from autoquant.measurement.effective import REQUANTIZED, effective_assignment
from autoquant.model.optimized import OptimizedGraph, read_optimized, unknown_graph
from autoquant.runtime.session import open_session
from tests.models import a_quantized_chain

FIRST, MIDDLE, LAST = RegionId("first"), RegionId("middle"), RegionId("last")


def a_region(name: RegionId, *nodes: str) -> Region:
    return Region(
        id=name,
        nodes=tuple(map(NodeName, nodes)),
        inputs=(),
        outputs=(),
        pattern="",
        op_types=("Conv",) * len(nodes),
        work=0.3,
    )


REGIONS = (a_region(FIRST, "a", "a_relu"), a_region(MIDDLE, "b"), a_region(LAST, "c"))


def names(*nodes: str) -> frozenset[NodeName]:
    return frozenset(map(NodeName, nodes))


def running(*integer: str) -> OptimizedGraph:
    return OptimizedGraph(frozenset(integer), (), "")


def test_a_region_of_which_one_node_runs_as_asked_has_its_scheme() -> None:
    asked = {FIRST: "u8s8", MIDDLE: "float", LAST: "u8u8"}
    found = effective_assignment(asked, REGIONS, running("a", "c"), names("a", "a_relu", "c"), names("b"))
    assert found == asked


def test_a_region_that_is_not_named_is_float() -> None:
    assert effective_assignment({}, REGIONS, running(), names(), names("a", "b", "c")) == dict.fromkeys(
        (FIRST, MIDDLE, LAST), "float"
    )


def test_a_region_whose_integer_kernel_was_not_made_counts_as_float() -> None:
    found = effective_assignment({FIRST: "u16"}, REGIONS, running(), names("a"), names("b", "c"))
    assert found[FIRST] == "float"


def test_a_node_that_happens_to_run_on_integers_without_being_asked_makes_no_scheme() -> None:
    found = effective_assignment({FIRST: "u8s8"}, REGIONS, running("a_relu"), names("a"), names())
    assert found[FIRST] == "float"


def test_a_linear_node_that_was_to_be_float_and_is_not_is_reported_even_in_a_quantized_region() -> None:
    found = effective_assignment({FIRST: "u8s8"}, REGIONS, running("a", "a_relu"), names("a_relu"), names("a"))
    assert found[FIRST] == REQUANTIZED


@pytest.mark.parametrize(("breaker", "expected"), [("", REQUANTIZED), ("Sum", "float")])
def test_onnxruntime_requantizes_a_float_region_unless_something_breaks_the_pattern(
    tmp_path: Path, breaker: str, expected: str
) -> None:
    path = tmp_path / "optimized.onnx"
    model = a_quantized_chain(middle_is_float=True, breaker=breaker)
    open_session(model.SerializeToString(), Target(), optimized_path=path)
    asked = {FIRST: "u8s8", LAST: "u8s8"}
    found = effective_assignment(asked, REGIONS, read_optimized(path), names("a", "c"), names("b"))
    assert found == {FIRST: "u8s8", MIDDLE: expected, LAST: "u8s8"}


def test_where_nothing_shows_what_runs_it_is_taken_to_be_what_was_asked() -> None:
    found = effective_assignment({FIRST: "u8s8"}, REGIONS, unknown_graph(b"model"), names("a"), names("b", "c"))
    assert found == {FIRST: "u8s8", MIDDLE: "float", LAST: "float"}
    assert unknown_graph(b"model").digest != unknown_graph(b"other").digest
