"""How many steps a Loop makes, and what it counts."""

from typing import Any

import numpy as np
import pytest

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.rewrites.loops import Loop
from tests.unit.rewrites.test_cells import LSTM, N_STEPS, a_layer, constants


def a_loop(**named: Any) -> Loop:
    graph = Graph(a_layer(LSTM, **named))
    (node,) = (node for node in graph.nodes if node.op_type == "Loop")
    return Loop(graph, node)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("d = Identity(c)", True),
        ("d = Identity(true)", True),
        ("j = Add(i, step) d = Less(j, trips)", True),
        ("j = Add(step, i) k2 = Add(j, step) d = LessOrEqual(k2, trips)", True),
        ("f = Cast<to=1>(i) n = Cast<to=1>(trips) e = Less(f, n) d = And(e, c)", True),
        ("d = LessOrEqual(i, step)", False),
        ("j = Add(i, i) d = Less(j, trips)", False),
        ("j = Mul(i, step) d = Less(j, trips)", False),
        ("d = Less(trips, i)", False),
        ("d = Not(c)", False),
    ],
)
def test_a_condition_may_end_it_behind_the_last_step_alone(condition: str, *, expected: bool) -> None:
    assert a_loop(condition=condition).goes_through(TensorName("x")) is expected


def test_it_may_begin_without_a_condition() -> None:
    assert a_loop(start="").goes_through(TensorName("x"))


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ("s = Shape(x) l = Slice(s, start, end) n = Squeeze(l)", True),
        ("s = Shape(x) l = Slice(s, end, two) n = Squeeze(l)", False),
        ("s = Shape<start=1>(x) n = Gather(s, zero)", False),
        ("s = Shape(x) n = Gather(s, step)", False),
        ("s = Shape(h0) n = Gather(s, zero)", False),
        ("s = Shape(x) m = Gather(s, zero) n = Sub(m, step)", False),
    ],
)
def test_there_is_a_step_for_each_slice_of_a_sequence_of_any_length(lengths: str, *, expected: bool) -> None:
    found = a_loop(more=lengths, trips="n", n_steps="t")
    assert found.goes_through(TensorName("x")) is expected


@pytest.mark.parametrize(
    ("begins", "expected"),
    [
        ("go0 = Less(zero, trips) go = And(go0, true)", True),
        ("go = Less(step, trips)", False),
        ("go = Less(trips, trips)", False),
        ("go = Not(true)", False),
    ],
)
def test_it_begins_where_there_is_a_step(begins: str, *, expected: bool) -> None:
    assert a_loop(more=begins, start="go").goes_through(TensorName("x")) is expected


def test_it_goes_through_nothing_that_is_longer() -> None:
    assert not a_loop(n_steps=str(N_STEPS + 1)).goes_through(TensorName("x"))


def test_a_state_that_is_counted_from_another_number_is_ahead() -> None:
    found = a_loop(counter="step", condition="j1 = Add(j, step) d = Identity(c)")
    assert [found.steps_ahead(TensorName(name)) for name in ("i", "j", "j1", "h", "t")] == [0, 1, 2, None, None]


def test_what_is_added_to_another_name_of_it_is_no_counter() -> None:
    doubled = " ".join(f"v{i + 1} = Identity(u{i}) u{i + 1} = Add(u{i}, v{i + 1})" for i in range(40))
    found = a_loop(condition=f"u0 = Identity(i) {doubled} d = Identity(c)")
    assert found.steps_ahead(TensorName("u40")) is None


def test_what_each_step_passes_on_is_what_it_was_before_the_first() -> None:
    found = a_loop(counter="step", condition="j1 = Identity(j) d = Identity(c)")
    assert [found.outside(TensorName(name)) for name in ("j", "x", "h", "i", "t")] == ["step", "x", None, None, None]


def test_what_is_taken_out_of_constants_is_constant() -> None:
    body = """a0, a1 = Split<axis=0, num_outputs=2>(biases) a2 = Squeeze(a1, first) a3 = Slice(a2, first, two, first)
              a4 = Slice(h, first, two, first) d = Identity(c)"""
    found = a_loop(condition=body)
    value = found.constant(TensorName("a3"))
    assert value is not None
    np.testing.assert_array_equal(value, constants()["biases"][1, :2])
    assert found.constant(TensorName("a4")) is None
